"""The scoreboard for correspondences, and the paper's Table 6 beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from n3net import weights
from n3net.correspondence import filtering
from n3net.correspondence.geometry import pose_error
from n3net.correspondence.matchfile import Pair, PairFile, write_pairs
from n3net.errors import UserError
from n3net.evaluation.correspondence import BASELINES, Filter, Row, evaluate, pair_sets
from n3net.evaluation.pose_report import differences, markdown, report, summarize
from n3net.models import create

cv2 = pytest.importorskip("cv2", reason="estimators need OpenCV")

Run = Callable[..., tuple[int, str, str]]


def make_pair(seed: int, n: int = 200, wrong: int = 120, descriptors: bool = True) -> Pair:
    """Points before two cameras; ratio and mutual tell the wrong matches apart, not perfectly."""
    rng = np.random.default_rng(seed)
    rotation = cv2.Rodrigues(rng.normal(0, 0.15, 3))[0]
    translation = rng.normal(0, 1, 3)
    translation /= np.linalg.norm(translation)
    x = np.c_[rng.uniform(-1.5, 1.5, (n, 2)), rng.uniform(4, 8, n)]
    y = x @ rotation.T + translation
    x0, x1 = x[:, :2] / x[:, 2:], y[:, :2] / y[:, 2:]
    x1[:wrong] = rng.uniform(-0.4, 0.4, (wrong, 2))
    good = np.arange(n) >= wrong
    ratio = np.where(good, rng.uniform(0.4, 0.9, n), rng.uniform(0.75, 1, n))
    mutual = rng.random(n) < np.where(good, 0.9, 0.3)
    known = (ratio, mutual) if descriptors else (None, None)
    return Pair(x0, x1, *known, rotation, translation, (f"{seed}a", f"{seed}b"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    write_pairs(directory / "hall.pairs", [make_pair(seed) for seed in range(4)])
    write_pairs(directory / "yard.pairs", [make_pair(9, descriptors=False)])
    return directory


def row(model: str, pair: int, angle: float, weights: str = "", **more: Any) -> Row:
    values: dict[str, Any] = {
        "dataset": "d", "estimator": "ransac", "rotation": angle, "translation": 0.0, "matches": 10, "kept": 5,
        "inliers": 4, "precision": 0.5, "recall": 0.5, "average_precision": 0.5, "seconds_scoring": 0.1,
        "seconds_pose": 0.2,
    }  # fmt: skip
    return Row(model=model, weights=weights, pair=pair, **(values | more))


def test_baselines_in_their_order(data: Path) -> None:
    rows = evaluate(BASELINES, pair_sets([data / "hall.pairs"])[0], ["ransac"])
    results = {r["model"]: r for r in summarize(rows)}
    assert list(results) == ["all matches", "ratio test 0.8", "ratio + mutual", "perfect labels"]
    assert results["perfect labels"]["map5"] == 1
    assert results["perfect labels"]["precision"] == results["perfect labels"]["average_precision"] == 1
    assert results["all matches"]["recall"] == 1
    assert results["all matches"]["kept"] == 200
    precisions = [results[name]["precision"] for name in list(results)[:3]]
    assert precisions == sorted(precisions)
    for r in results.values():
        low, high = r["map20_interval"]
        assert low <= r["map20"] <= high
        assert r["n"] == 4


def test_what_pairs_do_not_tell_is_not_measured(data: Path) -> None:
    rows = evaluate(BASELINES, pair_sets([data / "yard.pairs"])[0], ["ransac", "magsac"])
    assert {(r.model, r.estimator) for r in rows} == {
        (model, estimator) for model in ("all matches", "perfect labels") for estimator in ("ransac", "magsac")
    }


def test_nothing_kept_is_a_failure(data: Path) -> None:
    none = Filter("none", lambda pair, right: (np.zeros(len(pair)), np.zeros(len(pair), bool)))
    rows = evaluate([none], pair_sets([data / "hall.pairs"], 2)[0], ["ransac"])
    assert [(r.error, r.precision, r.recall, r.kept) for r in rows] == [(180, 0, 0, 0)] * 2
    assert summarize(rows)[0]["failures"] == 2


def test_a_pair_without_right_matches() -> None:
    result = summarize([row("m", 0, 3, recall=np.nan, average_precision=np.nan), row("m", 1, 3)])[0]
    assert result["recall"] == 0.5
    only = summarize([row("m", 0, 3, recall=np.nan, average_precision=np.nan)])[0]
    assert only["recall"] is None
    text = json.dumps(report([row("m", 0, 3, recall=np.nan)], [], "m"))
    assert "NaN" not in text
    assert "–" in markdown([only])


def test_weights_of_one_label_are_averaged() -> None:
    angles = {"s0": (3.0, 7.0), "s1": (3.0, 30.0)}
    rows = [row("n3", p, angles[w][p], w) for w in angles for p in range(2)] + [row("cn", p, 12.0) for p in range(2)]
    first, second = summarize(rows)
    assert (first["weights"], first["n"], second["weights"]) == (2, 2, 1)
    assert first["map20"] == pytest.approx((1 + (0.75 + 0) / 2) / 2)
    assert "mean of 2 weights" in markdown([first])
    (found,) = differences(rows, "n3")
    assert found["against"] == "cn"
    assert found["map20"] == pytest.approx(first["map20"] - 0.5)
    low, high = found["map20_interval"]
    assert (low, high) == (0.375 - 0.5, 0.5)  # one pair or the other


def test_files_of_the_same_name(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "hall.pairs"
    other.parent.mkdir()
    write_pairs(other, [make_pair(5)])
    assert [pairs.name for pairs in pair_sets([data, other])] == ["data/hall", "yard", "other/hall"]
    with pytest.raises(UserError, match="given 2 times"):
        pair_sets([data, data / "hall.pairs"])


def test_wrong_data(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="n3net data"):
        pair_sets([tmp_path / "empty"])
    write_pairs(tmp_path / "none.pairs", [])
    with pytest.raises(UserError, match="no pairs in it"):
        pair_sets([tmp_path / "none.pairs"])
    without = make_pair(0)
    write_pairs(tmp_path / "x.pairs", [Pair(without.x0, without.x1)])
    with pytest.raises(UserError, match="no pose to compare with"):
        evaluate(BASELINES, pair_sets([tmp_path / "x.pairs"])[0], ["ransac"])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Run) -> Run:
    """The program with small weights of its own, and no others."""
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "user"))
    monkeypatch.delenv("N3NET_DATA", raising=False)
    monkeypatch.setattr("n3net.weights.store.SHIPPED", tmp_path / "nowhere")
    for seed, name in enumerate(("s0", "s1")):
        torch.manual_seed(seed)
        net = create("n3net-sets", features=8, depth=2, block_features=8)
        weights.save(tmp_path / "user" / f"{name}.safetensors", net)
    weights.save(tmp_path / "user" / "match-cnnet.safetensors", create("cnnet", features=8, depth=2))
    return lambda *arguments: command(*map(str, arguments))


def test_command(run: Run, data: Path, tmp_path: Path) -> None:
    code, out, _ = run(
        "eval", "correspondence", "--model", "n3=s0", "--model", "n3=s1", "--model", "s0+mutual", "--data", data,
        "--estimator", "ransac",
        "--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md", "--limit", 2,
    )  # fmt: skip
    assert code == 0
    assert "| hall (2) | n3 (mean of 2 weights) | ransac |" in out
    assert "| hall (2) | match-cnnet | ransac |" in out
    assert "| hall (2) | s0+mutual | ransac |" in out
    assert "| yard (1) | s0+mutual |" not in out  # nothing is known about its matches
    assert "| yard (1) | perfect labels | ransac | 1.000 / 1.000 / 1.000 |" in out
    report = json.loads((tmp_path / "out.json").read_text())
    keys = [(r["model"], r["dataset"]) for r in report["results"]]
    assert keys[:2] == [("n3", "hall"), ("s0+mutual", "hall")]
    assert {"map5", "auc20", "precision", "recall", "map20_interval", "seconds_scoring"} <= report["results"][0].keys()
    assert {d["against"] for d in report["differences"]} >= {"match-cnnet", "all matches", "perfect labels"}
    assert len(report["pairs"]) == 2 * 8 + 5
    assert all(m["digest"] for m in report["models"])
    assert "acc(5)" in (tmp_path / "out.md").read_text()
    files = [tmp_path / run_ / "best.safetensors" for run_ in ("r=a", "r=b")]
    for file, name in zip(files, ("s0", "s1"), strict=True):
        file.parent.mkdir()
        file.write_bytes((tmp_path / "user" / f"{name}.safetensors").read_bytes())
    code, out, _ = run(
        "eval", "correspondence", "--model", files[0], "--model", files[1], "--data", data / "yard.pairs",
        "--estimator", "ransac",
    )  # fmt: skip
    assert code == 0
    assert "mean of" not in out  # of what has no common label
    assert all(f"| yard (1) | {file} | ransac |" in out for file in files)
    code, _, err = run("eval", "correspondence", "--data", data)
    assert code == 2
    assert "'match' are not part of this installation" in err
    code, _, err = run("eval", "correspondence", "--model", "s0", "--data", data, "--estimator", "lmeds")
    assert code == 2
    assert "there is no estimator 'lmeds'" in err


def test_table6(run: Run, data: Path, tmp_path: Path) -> None:
    code, out, _ = run("reproduce", "table6", "--data", data, "--limit", 1, "--json", tmp_path / "t.json")
    assert code == 0
    assert "| St. Peter / Reichstag, N3Net | 0.231 | 0.442 | 0.601 |" in out
    assert "the paper's data is not available" in out
    for row in ("No Net", "CNNet: match-cnnet", "N3Net: s0", "N3Net: s1"):
        assert f"| hall (1 pairs), {row} |" in out
    assert json.loads((tmp_path / "t.json").read_text())["paper"]["Brown / Brown"]["CNNet"] == [0.236, 0.333, 0.463]
    code, out, _ = run("reproduce", "table6")
    assert code == 0
    assert "Nothing was measured" in out


def test_poses_are_those_of_the_command(tmp_path: Path) -> None:
    """Matches that are there many times count once, and a camera that only turned has no translation."""
    pair = make_pair(3, n=120, wrong=0)
    many = np.r_[np.arange(120), np.zeros(400, int)]
    turned = np.c_[pair.x0, np.ones(len(pair))] @ np.asarray(pair.rotation).T
    pairs = [
        Pair(pair.x0[many], pair.x1[many], None, None, pair.rotation, pair.translation),
        Pair(pair.x0, turned[:, :2] / turned[:, 2:], None, None, pair.rotation, pair.translation),
    ]
    write_pairs(tmp_path / "odd.pairs", pairs)
    rows = evaluate(BASELINES[:1], pair_sets([tmp_path / "odd.pairs"])[0], ["ransac"])
    for row, stored in zip(rows, PairFile(tmp_path / "odd.pairs"), strict=True):
        pose = filtering.pose_of(stored, filtering.finite(stored))
        assert pose is not None
        assert row.inliers == pose.inliers.sum()
        expected = pose_error(pose.rotation, pose.translation, stored.rotation, stored.translation)
        assert (row.rotation, row.translation) == expected
    assert rows[0].error < 1
    assert rows[1].translation == 90
