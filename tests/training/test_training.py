"""The training loop: configs, data, checkpoints, and runs that are stopped, killed, split and spoilt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("lightning_fabric")
pytest.importorskip("tensorboard")
pytest.importorskip("yaml")

from n3net.checking import from_mapping
from n3net.errors import UserError
from n3net.models import create
from n3net.nn import PRESETS, N3Options
from n3net.tasks import task_class
from n3net.tasks.data import Images, Prefetcher, choose, generator
from n3net.tasks.gaussian import GaussianOptions
from n3net.training import checkpoint, config
from n3net.training.loop import Trainer, train
from n3net.training.optimizer import Average, Muon, build_optimizer, orthogonal
from n3net.training.schedule import learning_rate
from n3net.training.start import start_at_identity
from n3net.weights import info, load, save

TINY = """
task: gaussian
model: {name: n3net, noise_map: true, stages: 2, depth: 3, features: 8, block_channels: 3, k: 2, patch_size: 4,
        stride: 2, window: 5, options: reference-2018}
data: {train: [train], validation: [validation], sigma: [0, 50], crop: 16, crops_per_image: 4}
steps: 12
batch_size: 4
log_every: 1
save_every: 5
validate_every: 6
optimizer: {lr: 1.0e-3, clip: 50}
schedule: {name: one-cycle, warmup: 0.2}
"""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As many threads as in the processes of :func:`start`: another number rounds differently."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training and validation images, and a tiny config."""
    root = tmp_path_factory.mktemp("training")
    rng = np.random.default_rng(0)
    for name, count in (("train", 3), ("validation", 2)):
        (root / name).mkdir()
        for i in range(count):
            small = rng.integers(0, 256, (6, 7, 3), dtype=np.uint8)
            Image.fromarray(small).resize((28, 24), Image.Resampling.BICUBIC).save(root / name / f"{i}.png")
    (root / "tiny.yaml").write_text(TINY + f"base: {root / 'root.yaml'}\n")
    (root / "root.yaml").write_text(f"data: {{root: {root}}}\n")
    return root


def tiny(folder: Path, *overrides: str) -> config.Config:
    return config.load(str(folder / "tiny.yaml"), overrides)


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}


def start(folder: Path, run: Path, *overrides: str) -> subprocess.Popen[str]:
    """``n3net train`` as a process of its own."""
    command = [sys.executable, "-m", "n3net", "train", str(folder / "tiny.yaml"), *overrides, "--runs", str(run)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_step(process: subprocess.Popen[str], run: Path, step: int) -> None:
    for _ in range(6000):
        if process.poll() is not None:
            pytest.fail(f"ended early: {process.stdout.read() if process.stdout else ''}")
        if (run / "log.jsonl").is_file() and f'"step": {step},' in (run / "log.jsonl").read_text():
            return
        time.sleep(0.01)
    pytest.fail("the run did not get going")


class TestConfig:
    @pytest.mark.parametrize("name", config.names())
    def test_packaged(self, name: str) -> None:
        settings = config.load(name)
        kind = task_class(settings.task)
        from_mapping(kind.Options, settings.data, "data")
        create(**settings.model)
        assert from_mapping(config.Config, config.to_mapping(settings)) == settings

    def test_paper_protocol(self) -> None:
        c = config.load("gaussian-50")
        assert (c.epochs, c.batch_size, c.optimizer.lr, c.schedule.final, c.optimizer.weight_decay) == (
            50,
            32,
            1e-3,
            1e-8,
            1e-4,
        )
        assert (c.data["sigma"], c.data["crop"], c.data["crops_per_image"]) == (50, 80, 512)

    @pytest.mark.parametrize(
        ("override", "words"),
        [
            ("optimizer.rl=1", "optimizer.rl: there is no such key, did you mean 'optimizer.lr'?"),
            ("batchsize=3", "did you mean 'batch_size'?"),
            ("batch_size=eight", "batch_size: expected an integer, got 'eight'"),
            ("batch_size=2.5", "batch_size: expected an integer"),
            ("optimizer.lr=fast", "optimizer.lr: expected a number"),
            ("optimizer.lr=-1", "optimizer.lr: expected a positive number"),
            ("optimizer.name=adagrad", "optimizer.name: expected 'adam' or 'adamw' or 'sgd' or 'muon'"),
            ("optimizer=7", "optimizer: expected keys and values"),
            ("channels_last=1", "channels_last: expected true or false"),
            ("budget=tomorrow", "budget"),
            ("save_every=often", "save_every"),
            ("optimizer.lr", "expected key=value"),
            ("ema=1", "ema: expected a decay"),
            ("data.train=[a", "data.train: expected a value in YAML, such as 3, name or [a, b], got '[a'"),
            ("precision=16-mixed", "precision: expected bf16-mixed, as 16-mixed scales"),
        ],
    )
    def test_errors_name_the_key(self, override: str, words: str) -> None:
        with pytest.raises(UserError) as error:
            config.load("gray", [override])
        assert words in str(error.value)

    def test_errors_of_the_task_and_the_model(self, folder: Path, tmp_path: Path) -> None:
        for override, words in [
            ("data.sigmas=3", "data.sigmas: there is no such key, did you mean 'data.sigma'?"),
            ("model.kk=3", "no option 'kk'"),
            ("task=gausian", "task: expected gaussian"),
            ("data.train=[nowhere]", "there is no such folder or image"),
            ("data.validation=[train]", "is also a training image"),
            ("data.crop=100", "crops need at least 100"),
            ("model.noise_map=false", "noise_map: true"),
            ("data.validation_images=-1", "data.validation_images: expected at least 0, got -1"),
            ("data.guide=dncnn-17", "data.guide: n3net takes none, got dncnn-17"),
            ("model.match_on=denoised", "data.guide: n3net needs the weights of the DnCNN that it matches on"),
        ]:
            with pytest.raises(UserError) as error:
                train(tiny(folder, override), tmp_path / "run")
            assert words in str(error.value)

    @pytest.mark.parametrize("name", ["vdsr", "cnnet", "raw-dncnn"])
    def test_models_for_something_else(self, folder: Path, name: str) -> None:
        options = GaussianOptions(["train"], ["validation"], str(folder), crop=16)
        task = task_class("gaussian")(options, {"name": name}, 0)
        with pytest.raises(UserError, match=f"model: {name} is not for denoising"):
            task.build_model()

    def test_guides(self, folder: Path, tmp_path: Path) -> None:
        model = {"name": "knn-denoised", "depth": 3, "features": 4}
        for depth in (17, 16):
            guide = tmp_path / f"{depth}.safetensors"
            save(guide, create("dncnn", depth=depth), {})
            options = GaussianOptions(["train"], ["validation"], str(folder), crop=16, guide=str(guide))
            task = task_class("gaussian")(options, model, 0)
            if depth == 17:
                loaded = task.build_model().get_submodule("net.guide").state_dict()
                for name, tensor in load(guide).get_submodule("net").state_dict().items():
                    assert torch.equal(loaded[name], tensor)
            else:
                with pytest.raises(UserError, match="is no DnCNN like the guide of knn-denoised"):
                    task.build_model()

    def test_unknown_config(self) -> None:
        with pytest.raises(UserError, match="did you mean 'gray'"):
            config.load("grey")

    def test_last_length_counts(self) -> None:
        c = config.load("gaussian-25", ["steps=7"])
        assert (c.epochs, c.steps, c.budget) == (None, 7, None)
        assert config.load("gray", ["budget=1h30m"]).budget == "1h30m"

    def test_one_option_of_a_preset(self) -> None:
        options = config.load("gray", ["model.options.neighbors=values"]).model["options"]
        assert N3Options(**options) == replace(PRESETS["reference-2018"], neighbors="values")
        assert config.load("gray", ["model.options=paper"]).model["options"] == "paper"

    def test_overrides_are_typed(self) -> None:
        c = config.load("gray", ["optimizer.lr=5e-4", "data.sigma=[5, 10]", "optimizer.clip=null"])
        assert c.optimizer.lr == 5e-4
        assert c.optimizer.clip is None
        assert c.data["sigma"] == [5, 10]


class TestSchedule:
    def test_ends(self) -> None:
        for name in ("exponential", "cosine", "one-cycle"):
            s = config.ScheduleConfig(name, final=1e-6, warmup=0.25 if name == "one-cycle" else 0)  # type: ignore[arg-type]
            assert learning_rate(s, 1e-3, 1.0) == pytest.approx(1e-6)
            assert learning_rate(s, 1e-3, s.warmup) == pytest.approx(1e-3)

    def test_warmup(self) -> None:
        s = config.ScheduleConfig("constant", warmup=0.5)
        assert [learning_rate(s, 1.0, f) for f in (0, 0.25, 0.5, 1)] == [0, 0.5, 1, 1]

    def test_steps(self) -> None:
        s = config.ScheduleConfig("steps")
        assert [learning_rate(s, 0.1, f) for f in (0, 0.24, 0.25, 0.75)] == pytest.approx([0.1, 0.1, 0.01, 1e-4])


class TestData:
    def test_items_are_pure(self, folder: Path) -> None:
        task = task_class("gaussian")(GaussianOptions(["train"], ["validation"], str(folder), crop=16), {}, 3)
        one, again = (task.item(5, generator(3, 0, 1, 1)) for _ in range(2))
        other = task.item(5, generator(3, 0, 1, 2))
        assert np.array_equal(one["noisy"], again["noisy"])
        assert not np.array_equal(one["noisy"], other["noisy"])

    def test_every_image_equally_often(self) -> None:
        assert sorted(choose(1, n, 7) for n in range(14, 21)) == list(range(7))

    def test_noise_has_its_level(self, folder: Path) -> None:
        options = GaussianOptions(["train"], ["validation"], str(folder), sigma=25, crop=16)
        task = task_class("gaussian")(options, {}, 0)
        items = [task.item(i, generator(0, 0, 0, i)) for i in range(200)]
        noise = np.stack([item["noisy"] - item["clean"] for item in items]) * 255
        assert noise.std() == pytest.approx(25, rel=0.02)

    def test_prefetcher_keeps_the_order(self) -> None:
        def make(step: int) -> dict[str, torch.Tensor]:
            time.sleep(0.002 * (step % 3))
            return {"step": torch.tensor(step)}

        batches = Prefetcher(make, 4, workers=3)
        iterator = iter(batches)
        assert [int(next(iterator)["step"]) for _ in range(20)] == list(range(4, 24))
        batches.close()

    def test_gray_and_colour(self, folder: Path) -> None:
        assert Images([folder / "train"], 1).images[0].shape == (24, 28, 1)
        assert Images([folder / "train" / "1.png"], 3).images[0].dtype == np.uint8


class TestOptimizer:
    def test_what_decays(self) -> None:
        model = create("dncnn", depth=3, features=4)
        decay, rest = build_optimizer(model, config.OptimizerConfig(weight_decay=0.1)).param_groups
        names = {id(p): name for name, p in model.named_parameters()}
        assert all(names[id(p)].endswith("weight") for p in decay["params"])
        assert all(names[id(p)].endswith("bias") for p in rest["params"])
        assert (decay["weight_decay"], rest["weight_decay"]) == (0.1, 0)

    @pytest.mark.parametrize("shape", [(16, 16), (16, 144), (64, 16)])
    def test_orthogonal(self, shape: tuple[int, int]) -> None:
        """As u vᵀ of the singular value decomposition, with singular values near 1."""
        matrices = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 1e3]).view(
            2, 1, 1
        )
        for matrix, result in zip(matrices, orthogonal(matrices), strict=True):
            u, _, v = torch.linalg.svd(matrix, full_matrices=False)
            inner = u.T @ result @ v.T
            assert (inner - inner.diagonal().diag()).abs().max() < 1e-4
            assert 0.3 < inner.diagonal().min() <= inner.diagonal().max() < 1.3
        assert orthogonal(torch.zeros(1, *shape)).abs().max() == 0

    def test_muon(self) -> None:
        """The first step of a matrix is orthogonal and as large as the rate says; what is no matrix is left to Adam."""
        ours, adams = (create("dncnn", depth=4, features=16) for _ in range(2))
        adams.load_state_dict(ours.state_dict())
        before = {name: p.detach().clone() for name, p in ours.named_parameters()}
        for model, name in ((ours, "muon"), (adams, "adam")):
            optimizer = build_optimizer(model, config.OptimizerConfig(name=name, lr=0.01))  # type: ignore[arg-type]
            model(torch.linspace(-1, 1, 400).view(1, 1, 20, 20)).square().sum().backward()
            gradient = {name: p.grad.flatten(1).clone() for name, p in model.named_parameters() if p.dim() == 4}
            optimizer.step()
        orthogonalised = 0
        for (name, p), theirs in zip(ours.named_parameters(), adams.parameters(), strict=True):
            if p.shape == (16, 16, 3, 3):
                step = (p - before[name]).detach()
                assert step.square().mean().sqrt() == pytest.approx(0.01, rel=0.3)
                torch.testing.assert_close(step.flatten(1), -0.01 * 12 * orthogonal(gradient[name][None])[0])
                orthogonalised += 1
            else:
                torch.testing.assert_close(p, theirs)
        assert orthogonalised == 2

    def test_muon_with_closure(self) -> None:
        results = []
        for by_closure in (False, True):
            layer = torch.nn.Linear(16, 16)
            torch.nn.init.eye_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
            optimizer = Muon([{"params": list(layer.parameters())}], 0.01, (0.9, 0.999))

            def loss(layer: torch.nn.Linear = layer) -> float:
                layer.zero_grad()
                out = layer(torch.linspace(-1, 1, 160).view(10, 16)).square().mean()
                out.backward()
                return float(out.detach())

            for _ in range(3):
                if by_closure:
                    value = optimizer.step(loss)
                else:
                    value = loss()
                    optimizer.step()
            results.append((value, layer.weight, layer.bias))
        assert results[0][0] == results[1][0]
        assert torch.equal(results[0][1], results[1][1])
        assert torch.equal(results[0][2], results[1][2])

    def test_average(self) -> None:
        model = torch.nn.Linear(1, 1)
        average = Average(model, 0.5)
        with torch.no_grad():
            before = model.weight.clone()
            model.weight += 1
        average.update(model, 1000)
        torch.testing.assert_close(average.model.weight, before + 0.5)

    def test_frozen_norms(self) -> None:
        """In training, a network whose norms are frozen computes what the averaged one does."""
        model = create("n3net-light", options="reference-2018", features=16, depth=3)
        average = Average(model, 0.5)
        x = torch.rand(2, 1, 40, 40)
        for step in (1000, 1001):
            model.train()(x)
            average.update(model, step)
        expected = average.model(x)
        average.freeze_norms(model.train())
        kept = {name: value.clone() for name, value in model.named_buffers()}
        y = model(x)
        torch.testing.assert_close(y, expected)
        y.sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        for name, value in model.named_buffers():
            torch.testing.assert_close(value, kept[name])
        model.train()
        assert (model(x) - expected).abs().max() > 1e-3  # the statistics of the batch are others

    @pytest.mark.parametrize("name", ["n3net", "dncnn"])
    def test_identity(self, name: str) -> None:
        model = create(name, noise_map=True, depth=3)
        start_at_identity(model)
        x = torch.rand(1, 1, 40, 40)
        torch.testing.assert_close(model(x, 25.0), x)


class TestCheckpoint:
    def test_truncated_one_is_passed_over(self, tmp_path: Path) -> None:
        for step in (1, 2, 3):
            checkpoint.save(tmp_path, step, {"step": step, "x": torch.rand(1000)})
        assert len(list(tmp_path.iterdir())) == checkpoint.KEEP
        newest = tmp_path / "step-000000003.pt"
        whole = newest.read_bytes()
        for content in (whole[:-1], whole[: len(whole) // 2], b"", whole[:2000] + b"\0\1\2\3" + whole[2004:]):
            newest.write_bytes(content)
            state, broken = checkpoint.latest(tmp_path)
            assert state is not None
            assert state["step"] == 2
            assert broken == [newest]


class TestRuns:
    def test_whole_run(self, folder: Path, tmp_path: Path) -> None:
        outcome = train(tiny(folder), tmp_path / "run")
        assert outcome.step == 12
        assert outcome.signal is None
        assert list(losses(tmp_path / "run")) == list(range(1, 13))
        weights = tmp_path / "run" / "weights.safetensors"
        assert info(weights)["training"]["steps"] == 12
        out = load(weights)(torch.rand(1, 1, 24, 24), 25.0)
        assert out.shape == (1, 1, 24, 24)
        assert {p.name for p in (tmp_path / "run").iterdir()} >= {
            "config.yaml",
            "checkpoints",
            "tensorboard",
            "log.jsonl",
        }
        again = train(tiny(folder), tmp_path / "run")  # complete: nothing left to do
        assert again.step == 12

    def test_learns(self, folder: Path, tmp_path: Path) -> None:
        outcome = train(tiny(folder, "steps=100", "data.sigma=50", "start=identity", "optimizer.lr=5e-3"), tmp_path)
        assert outcome.scores["psnr"] > 14.15 + 3  # that of the noisy image, and 3 dB

    def test_starts_from_weights(self, folder: Path, tmp_path: Path) -> None:
        train(tiny(folder), tmp_path / "one")
        weights = tmp_path / "one" / "weights.safetensors"
        still = ("steps=1", f"start={weights}", "optimizer.lr=1e-30")
        train(tiny(folder, *still), tmp_path / "two")
        one, two = (load(tmp_path / run / "weights.safetensors") for run in ("one", "two"))
        for (name, a), b in zip(one.named_parameters(), two.parameters(), strict=True):
            torch.testing.assert_close(a, b, msg=name)
        assert two.record["training"]["before"]["steps"] == 12  # type: ignore[union-attr]
        with pytest.raises(UserError, match=r"start: .*k 2.*, the config's model .*k 3"):
            train(tiny(folder, *still, "model.k=3"), tmp_path / "three")
        with pytest.raises(UserError, match="there are no weights 'identiti'"):
            train(tiny(folder, "start=identiti"), tmp_path / "four")

    @pytest.mark.parametrize(("fraction", "moves"), [(0, False), (0.5, True), (1, True)])
    def test_norms_are_frozen_in_time(self, folder: Path, tmp_path: Path, fraction: float, moves: bool) -> None:
        train(tiny(folder, f"freeze_norms={fraction}"), tmp_path)
        means = [b for name, b in load(tmp_path / "weights.safetensors").named_buffers() if "running_mean" in name]
        assert means
        assert any(bool(mean.any()) for mean in means) is moves  # they begin with 0

    def test_workers_change_nothing(self, folder: Path, tmp_path: Path) -> None:
        train(tiny(folder), tmp_path / "one")
        train(tiny(folder, "workers=3"), tmp_path / "three")
        assert losses(tmp_path / "one") == losses(tmp_path / "three")

    @pytest.mark.parametrize("optimizer", ["adam", "muon"])
    def test_killed_run_continues_as_if_nothing_had_happened(
        self, folder: Path, tmp_path: Path, optimizer: str
    ) -> None:
        long = ("steps=60", f"optimizer.name={optimizer}", "model.features=16")
        process = start(folder, tmp_path / "killed", *long)
        wait_for_step(process, tmp_path / "killed", 23)
        process.kill()
        process.wait()
        resumed = train(tiny(folder, *long), tmp_path / "killed")
        undisturbed = train(tiny(folder, *long), tmp_path / "whole")
        assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
        assert resumed.scores == undisturbed.scores
        one, two = (load(tmp_path / run / "weights.safetensors").state_dict() for run in ("killed", "whole"))
        assert all(torch.equal(one[name], two[name]) for name in one)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_signal_saves_and_exits(self, folder: Path, tmp_path: Path, number: signal.Signals) -> None:
        process = start(folder, tmp_path, "steps=100000", "save_every=1h")
        wait_for_step(process, tmp_path, 3)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + number, output
        assert "the same command goes on" in output
        state, _ = checkpoint.latest(tmp_path / "checkpoints")
        assert state is not None
        assert state["state"]["step"] == max(losses(tmp_path))

    def test_stop_where_a_validation_is_due(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Trainer, "_report", lambda self, *_: self._on_signal(2 * (self.state.step == 6)))
        outcome = train(tiny(folder), tmp_path)
        assert (outcome.step, outcome.signal) == (6, 2)
        lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines if line["kind"] == "validation"] == [6]

    def test_two_processes_equal_one(self, folder: Path, tmp_path: Path) -> None:
        same = ("accelerator=cpu", "optimizer.name=sgd", "optimizer.lr=1e-3", "steps=6", "ema=0")  # SGD: no division
        process = start(folder, tmp_path / "two", "devices=2", *same)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        train(tiny(folder, *same), tmp_path / "one")
        assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), rel=1e-4)
        one, two = (load(tmp_path / run / "weights.safetensors").state_dict() for run in ("one", "two"))
        for name in one:
            torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-5, msg=name)

    def test_divergence_says_where_and_keeps_the_checkpoint(self, folder: Path, tmp_path: Path) -> None:
        broken = tiny(folder, "optimizer.name=sgd", "optimizer.lr=1e30", "optimizer.clip=null", "schedule.warmup=0.9")
        train(tiny(folder, "steps=5", "optimizer.name=sgd"), tmp_path)
        with pytest.raises(UserError, match=r"stopped at step \d+: .*first in .*checkpoint of step 5 is kept"):
            train(broken, tmp_path)

    def test_budget_ends_annealed_and_counts_over_resumes(self, folder: Path, tmp_path: Path) -> None:
        train(tiny(folder, "budget=3s", "validate_every=0"), tmp_path)
        lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        rates = [line["lr"] for line in lines if line["kind"] == "train"]
        assert rates[-1] < 0.1 * max(rates)
        steps = train(tiny(folder, "budget=3s", "validate_every=0"), tmp_path).step  # the budget is used up
        assert steps == len(rates)

    def test_budget_counts_training_only(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 0.0

        def tick() -> float:  # a clock that goes on whenever it is looked at
            nonlocal now
            now += 1 / 16
            return now

        kind = task_class("gaussian")
        validate = kind.validate

        def slow(*args: object) -> dict[str, float]:
            nonlocal now
            now += 1000
            return validate(*args)

        monkeypatch.setattr("n3net.training.loop.time", SimpleNamespace(perf_counter=tick, monotonic=tick))
        monkeypatch.setattr(kind, "validate", slow)
        runs = [tmp_path / name for name in ("often", "never")]
        steps = [
            train(tiny(folder, "budget=1s", f"validate_every={every}", "save_every=2"), run).step
            for run, every in zip(runs, (3, 0), strict=True)
        ]
        assert steps[0] == steps[1] == 16
        assert info(runs[0] / "best.safetensors")["training"]["hours"] == pytest.approx(1 / 3600, abs=1e-3)

    @pytest.mark.parametrize("length", ["steps=6", "budget=1s"])
    def test_a_complete_run_says_so_and_stops(
        self, folder: Path, tmp_path: Path, length: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        first = train(tiny(folder, length), tmp_path)
        log, files = (tmp_path / "log.jsonl").read_bytes(), sorted(tmp_path.rglob("*"))
        weights = (tmp_path / "weights.safetensors").read_bytes()
        capfd.readouterr()
        assert train(tiny(folder, length), tmp_path) == first
        assert f"this run is complete after {first.step} steps" in capfd.readouterr().out
        assert (tmp_path / "log.jsonl").read_bytes() == log
        assert [path for path in sorted(tmp_path.rglob("*")) if "tfevents" not in path.name] == [
            path for path in files if "tfevents" not in path.name
        ]
        (tmp_path / "weights.safetensors").unlink()  # as if it had been killed before it was written
        train(tiny(folder, length), tmp_path)
        assert (tmp_path / "weights.safetensors").read_bytes() == weights
        assert (tmp_path / "log.jsonl").read_bytes() == log
        assert train(tiny(folder, f"steps={first.step + 2}"), tmp_path).step == first.step + 2

    @pytest.mark.parametrize(
        "change", ["model.k=3", "data.sigma=50", "data.crop=17", "start=identity", "optimizer.name=sgd"]
    )
    def test_what_cannot_change_within_a_run(self, folder: Path, tmp_path: Path, change: str) -> None:
        train(tiny(folder, "steps=1"), tmp_path)
        with pytest.raises(UserError, match=f"this run has {change.partition('=')[0]} .*cannot become"):
            train(tiny(folder, "steps=2", change), tmp_path)
        assert info(tmp_path / "weights.safetensors")["training"]["data"]["sigma"] == [0, 50]

    def test_what_can_change_within_a_run(self, folder: Path, tmp_path: Path) -> None:
        train(tiny(folder, "steps=1"), tmp_path)
        changes = ("validate_every=0", "data.validation_images=1", "data.validation_sigma=[10]", f"data.root={folder}/")
        assert train(tiny(folder, "steps=2", *changes), tmp_path).step == 2

    def test_changed_optimizer_settings_count(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = []
        monkeypatch.setattr(Trainer, "_clip", lambda self, rate: seen.append(self.optimizer.param_groups) or 1.0)
        train(tiny(folder, "steps=1"), tmp_path)
        train(tiny(folder, "steps=2", "optimizer.weight_decay=0.5", "optimizer.betas=[0.5, 0.9]"), tmp_path)
        decay, rest = seen[-1]
        assert (decay["weight_decay"], rest["weight_decay"], decay["betas"]) == (0.5, 0, (0.5, 0.9))

    def test_where_a_run_started_is_kept(self, folder: Path, tmp_path: Path) -> None:
        """Also when the file it started from has changed since."""
        for name, steps in (("one", 1), ("other", 2)):
            train(tiny(folder, f"steps={steps}"), tmp_path / name)
        weights = tmp_path / "one" / "weights.safetensors"
        train(tiny(folder, "steps=1", f"start={weights}"), tmp_path / "run")
        (tmp_path / "other" / "weights.safetensors").replace(weights)
        train(tiny(folder, "steps=2", f"start={weights}"), tmp_path / "run")
        assert info(tmp_path / "run" / "weights.safetensors")["training"]["before"]["steps"] == 1

    def test_bf16_and_channels_last(self, folder: Path, tmp_path: Path) -> None:
        train(tiny(folder, "steps=2", "precision=bf16-mixed", "channels_last=true", "model.name=dncnn-6x2"), tmp_path)
        assert all(np.isfinite(list(losses(tmp_path).values())))

    def test_clip_by_value_while_the_rate_is_zero(self, folder: Path, tmp_path: Path) -> None:
        settings = ("steps=2", "optimizer.clip_by=value", "schedule.name=cosine", "schedule.warmup=0.5")
        assert train(tiny(folder, *settings), tmp_path).step == 2

    def test_data_is_ready_in_time(self, folder: Path, tmp_path: Path) -> None:
        train(tiny(folder, "steps=60"), tmp_path)
        lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        assert [line["waiting"] for line in lines if line["kind"] == "speed"][-1] < 0.5  # a tiny net; a real one: 0.001


class TestCompany:
    """Processes of a run, by threads that stand for them."""

    def test_a_host_with_an_old_copy_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from n3net.training import company

        checkpoint.save(tmp_path / "shared", 10, {"state": {"step": 10, "elapsed": 4.5}})
        checkpoint.save(tmp_path / "old", 5, {"state": {"step": 5, "elapsed": 2.0}})
        answers = iter([[(10, 4.5), None], [("a", (10, 4.5)), ("b", (5, 2.0))]])
        monkeypatch.setattr(company, "gathered", lambda *_: next(answers))
        with pytest.raises(UserError, match=r"process 1 on b finds that of step 5 .* process 0 on a that of step 10"):
            company.same_checkpoint(tmp_path / "old", rank=1, world=2, patience=0)

    def test_a_directory_may_be_slow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from n3net.training import company

        def gathered(value: object, world: int) -> list[object]:
            if value is None:  # the first question; the file appears behind it
                checkpoint.save(tmp_path, 10, {"state": {"step": 10, "elapsed": 4.5}})
                return [(10, 4.5), None]
            return [("a", (10, 4.5)), value]

        monkeypatch.setattr(company, "gathered", gathered)
        content, _ = company.same_checkpoint(tmp_path, rank=1, world=2)
        assert content is not None
        assert content["state"]["step"] == 10

    def test_shares_need_not_be_equal(self, folder: Path, tmp_path: Path) -> None:
        """Three processes, four items: as one process, to rounding."""
        same = ("accelerator=cpu", "optimizer.name=sgd", "optimizer.lr=1e-3", "steps=4", "ema=0", "validate_every=0")
        process = start(folder, tmp_path / "three", "devices=3", *same)
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
        assert "3 processes (" in output
        train(tiny(folder, *same), tmp_path / "one")
        assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "three"), rel=1e-4)
