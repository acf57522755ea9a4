"""The task of correspondences: its items, its loss, and runs through the one training loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("lightning_fabric")
pytest.importorskip("tensorboard")
pytest.importorskip("yaml")

from n3net.correspondence import geometry
from n3net.correspondence.matchfile import Pair, write_pairs
from n3net.correspondence.synthetic import synthetic_pair
from n3net.errors import UserError
from n3net.models import count_parameters, create
from n3net.nn import SetNorm
from n3net.tasks.correspondence import CorrespondenceOptions, Correspondences, pair_scores, thinned, turned
from n3net.tasks.data import generator
from n3net.training import config
from n3net.training.loop import train
from n3net.training.sync import SyncedSetNorm
from n3net.weights import info

MODEL = {"name": "n3net-sets", "features": 8, "depth": 2, "block_features": 8, "ratio": True, "mutual": True}
TINY = """
task: correspondence
model: {name: n3net-sets, features: 8, depth: 2, block_features: 8, ratio: true, mutual: true}
data: {train: [train.pairs], validation: [validation.pairs], synthetic: 0.4, matches: 40, turn: 20, blind: 0.2,
       essential_after: 12, validation_synthetic: 2}
steps: 10
batch_size: 4
log_every: 1
save_every: 5
validate_every: 5
optimizer: {lr: 1.0e-3, weight_decay: 0}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of matches of unequal numbers, and a tiny config."""
    root = tmp_path_factory.mktemp("correspondence")
    for name, seed in (("train", 0), ("validation", 100)):
        sizes = (30, 45, 64)
        write_pairs(
            root / f"{name}.pairs",
            (synthetic_pair(np.random.default_rng(seed + i), n, 0.5) for i, n in enumerate(sizes)),
        )
    (root / "tiny.yaml").write_text(TINY.replace("data: {", f"data: {{root: {root}, "))
    return root


def task(folder: Path, model: dict[str, Any] | None = None, **changes: Any) -> Correspondences:
    options = CorrespondenceOptions(["train.pairs"], ["validation.pairs"], str(folder), matches=40)
    return Correspondences(replace(options, **changes), model or MODEL, 0)


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}


@pytest.mark.parametrize("changes", [{}, {"synthetic": 1.0}, {"turn": 30.0, "blind": 0.5}])
def test_items_are_a_function_of_their_number(folder: Path, changes: dict[str, Any]) -> None:
    one, two = (task(folder, **changes) for _ in range(2))
    for number in (3, 0, 7):
        a, b = (t.item(number, generator(0, 0, number, 0)) for t in (one, two))
        for key in a:
            np.testing.assert_array_equal(a[key], b[key], err_msg=key)
        assert a["matches"].shape == (len(a["labels"]), 6)
        assert len(a["labels"]) <= 40
        expected = geometry.labels(a["essential"], a["matches"][:, :2], a["matches"][:, 2:4])
        np.testing.assert_array_equal(a["labels"], expected)


def test_labels_may_be_stricter_in_training(folder: Path) -> None:
    counts = []
    for threshold in (1e-4, 1e-6, 1e-9):
        t = task(folder, threshold=threshold)
        counts.append(sum(t.item(i, generator(0, 0, i, 0))["labels"].sum() for i in range(3)))
    assert counts[0] > counts[1] > counts[2]


def test_turning_and_mirroring_change_no_distance() -> None:
    pair = synthetic_pair(np.random.default_rng(0), 300, 0.5)
    before = geometry.symmetric_epipolar_distance(geometry.essential(*pair.pose), pair.x0, pair.x1)
    mirrored = set()
    for seed in range(8):
        after = turned(pair, np.random.default_rng(seed), 0.5)
        rotation, translation = after.pose
        assert np.linalg.det(rotation) == pytest.approx(1)
        assert np.linalg.norm(translation) == pytest.approx(1)
        distance = geometry.symmetric_epipolar_distance(geometry.essential(*after.pose), after.x0, after.x1)
        np.testing.assert_allclose(distance, before, rtol=1e-3, atol=1e-8)
        (a, b), (c, d) = pair.x0[:2], after.x0[:2]
        mirrored.add(bool(np.sign(np.cross(a, b)) != np.sign(np.cross(c, d))))
        assert np.abs(after.x0 - pair.x0).max() > 0.01
    assert mirrored == {True, False}


def test_thinning_keeps_what_belongs_together() -> None:
    n = 50
    numbers = np.arange(n, dtype=np.float32)
    pair = Pair(np.stack([numbers] * 2, 1), np.stack([numbers] * 2, 1), numbers, numbers % 2 == 0)
    few = thinned(pair, 20, np.random.default_rng(0))
    assert few.ratio is not None
    assert few.mutual is not None
    assert len(set(few.ratio.tolist())) == len(few) == 20
    np.testing.assert_array_equal(few.x0[:, 0], few.ratio)
    np.testing.assert_array_equal(few.mutual, few.ratio % 2 == 0)
    assert thinned(pair, 50, np.random.default_rng(0)) is pair


def test_batches_are_padded_and_padding_has_no_loss(folder: Path) -> None:
    t = task(folder, matches=64)
    items = [t.item(i, generator(0, 0, i, 0)) for i in range(3)]
    batch = t.collate(items)
    sizes = [len(item["labels"]) for item in items]
    assert sorted(sizes) == [30, 45, 64]
    assert batch["matches"].shape == (3, 64, 6)
    assert batch["mask"].sum(1).tolist() == sizes
    assert all(tensor.dtype != torch.float64 for tensor in batch.values())
    model = t.build_model().eval()  # batch statistics would tie the pairs together
    together, _ = t.loss(model, batch)
    apart = [t.loss(model, t.collate([item]))[0] for item in items]
    torch.testing.assert_close(together, torch.stack(apart).mean())


def test_essential_loss_begins_later(folder: Path) -> None:
    t = task(folder, essential_weight=0.3, essential_after=5)
    weights = [float(t.item(i, generator(0, 0, i, 0))["essential_weight"]) for i in (0, 4, 5, 9)]
    assert weights == [0, 0, pytest.approx(0.3), pytest.approx(0.3)]
    torch.manual_seed(0)
    model = t.build_model()
    torch.nn.init.constant_(model.get_parameter("last.bias"), 1.0)  # enough matches of positive weight
    for first, there in ((0, False), (5, True)):
        batch = t.collate([t.item(first + i, generator(0, 0, i, 0)) for i in range(3)])
        loss, figures = t.loss(model, batch)
        assert bool(figures["essential"] > 0) == there
        grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        assert all(bool(g.isfinite().all()) for g in grads if g is not None)


def test_validation_means_are_over_their_own_kind(folder: Path) -> None:
    t = task(folder, validation_synthetic=2)
    model = t.build_model().eval()
    assert t.validation_count == 5
    sums: dict[str, float] = {}
    for i in range(5):
        for name, value in t.validate(model, i, generator(0, 1, 0, i)).items():
            sums[name] = sums.get(name, 0.0) + value / 5
    expected = np.mean([pair_scores(model, pair)["ap"] for pair in t.validation])
    assert sums["ap"] == pytest.approx(expected)
    made_up = [synthetic_pair(generator(0, 1, 0, i), 2000, 0.9) for i in (3, 4)]
    assert sums["ap90"] == pytest.approx(np.mean([pair_scores(model, pair)["ap"] for pair in made_up]))


def test_scores_of_perfect_logits() -> None:
    pair = synthetic_pair(np.random.default_rng(1), 400, 0.6)
    right = geometry.labels(geometry.essential(*pair.pose), pair.x0, pair.x1)

    class Oracle(torch.nn.Linear):
        ratio = mutual = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(np.where(right, 3.0, -3.0))[None]

    assert pair_scores(Oracle(1, 1), pair) == {"map20": 1.0, "ap": 1.0, "precision": 1.0, "recall": 1.0}
    right[:] = False  # nothing is kept: no pose, nothing found
    assert set(pair_scores(Oracle(1, 1), pair).values()) == {0.0} | {pair_scores(Oracle(1, 1), pair)["ap"]}


@pytest.mark.parametrize("name", ["n3net-sets", "cnnet"])
def test_a_run_through_the_loop(name: str, folder: Path, tmp_path: Path) -> None:
    model = {"name": name, "features": 8, "depth": 2, "ratio": True, "mutual": True}
    settings = replace(config.load(str(folder / "tiny.yaml")), model=model)
    outcome = train(replace(settings, steps=6), tmp_path)
    assert list(losses(tmp_path)) == list(range(1, 7))
    assert {"map20", "ap", "ap90", "precision", "recall"} == set(outcome.scores)
    record = info(tmp_path / "weights.safetensors")
    assert record["model"]["name"] == name
    assert record["training"]["data"]["pairs"] == 3
    assert "root" not in record["training"]["data"]


def test_a_run_that_is_continued_is_the_same_run(folder: Path, tmp_path: Path) -> None:
    settings = config.load(str(folder / "tiny.yaml"), ["schedule.name=constant"])
    train(settings, tmp_path / "whole")
    train(replace(settings, steps=5), tmp_path / "parts")
    train(settings, tmp_path / "parts")
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_two_processes_equal_one(folder: Path, tmp_path: Path) -> None:
    same = [
        "accelerator=cpu",
        "optimizer.name=sgd",
        "steps=3",
        "ema=0",
        "validate_every=0",
        "data.validation_synthetic=0",
    ]
    command = [sys.executable, "-m", "n3net", "train", str(folder / "tiny.yaml"), "devices=2", *same]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--runs", str(tmp_path / "two")], capture_output=True, text=True, timeout=170, env=environment
    )
    assert done.returncode == 0, done.stderr
    train(config.load(str(folder / "tiny.yaml"), same), tmp_path / "one")
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), rel=1e-4)


def test_norms_of_one_process_are_synchronized_with_themselves() -> None:
    x = torch.rand(3, 10, 4, dtype=torch.float64, requires_grad=True)
    results = []
    for norm in (SetNorm(4).double(), SyncedSetNorm(SetNorm(4).double())):
        out = norm(x)
        results.append((out, torch.autograd.grad((out**3).sum(), x)[0], norm.running_var))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"synthetic": 1.5}, "synthetic: expected a share"),
        ({"outliers": (0.5, 1.0)}, "outliers: expected two shares"),
        ({"matches": 4}, "matches: expected at least 8"),
        ({"validation_pairs": -1}, "validation_pairs: expected 0 or more, got -1"),
        ({"train": []}, "train: expected files of matches"),
        ({"validation": ["train.pairs"]}, "also a training file"),
        ({"train": ["none.pairs"]}, r"none\.pairs"),
        ({"poses": "train.pairs"}, "not a readable file of numpy arrays"),
    ],
)
def test_wrong_options_are_refused(changes: dict[str, Any], words: str, folder: Path) -> None:
    with pytest.raises((UserError, ValueError), match=words):
        task(folder, **changes)


def test_networks_for_images_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="dncnn-17 is not for matches"):
        task(folder, {"name": "dncnn-17"})


def test_pairs_without_a_pose_are_refused(folder: Path) -> None:
    pair = replace(synthetic_pair(np.random.default_rng(0), 40), rotation=None, translation=None)
    write_pairs(folder / "no-pose.pairs", [pair], force=True)
    t = task(folder, train=["no-pose.pairs"])
    with pytest.raises(UserError, match="true pose"):
        t.item(0, generator(0, 0, 0, 0))


@pytest.mark.parametrize(("name", "count"), [("match-paper", 498_885), ("cnnet-paper", 397_057)])
def test_configs_of_the_paper(name: str, count: int) -> None:
    settings = config.load(name)
    assert count_parameters(create(**settings.model)) == count
    assert (settings.steps, settings.batch_size, settings.ema) == (500_000, 32, 0)
    assert (settings.optimizer.lr, settings.schedule.name) == (1e-3, "constant")
    assert settings.data["essential_after"] == 20_000 * 32


def test_configs_for_cpus_differ_in_the_model_only() -> None:
    one, two = (config.load(name) for name in ("match", "cnnet"))
    assert replace(one, model=two.model) == two
    assert {k: one.model[k] for k in two.model if k != "name"} == {k: v for k, v in two.model.items() if k != "name"}
