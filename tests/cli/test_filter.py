"""n3net filter: matches of other programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from photos import Run, with_weights

cv2 = pytest.importorskip("cv2", reason="matching needs OpenCV")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Run) -> Run:
    return with_weights(tmp_path, monkeypatch, command)


def test_filter(run: Run, tmp_path: Path) -> None:
    points = np.random.default_rng(0).uniform(0, 600, (2, 40, 2))
    k = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
    np.savez("points.npz", points0=points[0], points1=points[1], K0=k, K1=k, extra=np.arange(3))
    code, out, _ = run("filter", "points.npz", "--model", "keep", "--json", "pose.json")
    assert code == 0
    assert "40 matches, 40 kept" in out
    arrays = np.load("points-filtered.npz")
    assert arrays["kept"].all()
    assert arrays["scores"].tolist() == [1.0] * 40
    assert arrays["extra"].tolist() == [0, 1, 2]
    assert json.loads(Path("pose.json").read_text())["matches"] == 40
    assert run("filter", "points.npz", "--model", "keep")[0] == 2  # exists
    calibrated = (points - [320, 240]) / 500
    np.savez("x.npz", x0=calibrated[0], x1=calibrated[1], ratio=np.ones(40), mutual=np.ones(40))
    matches0 = np.where(np.arange(40) < 30, np.arange(40), -1)
    np.savez(
        "glue.npz", keypoints0=points[0], keypoints1=points[1], matches=matches0, size0=[640, 480], size1=[640, 480]
    )
    np.savez("index.npz", keypoints0=points[0], keypoints1=points[1], matches=np.stack([np.arange(9)] * 2, 1), K=k)
    np.savez("bare.npz", mkpts0=points[0], mkpts1=points[1])
    for name, options, count, words in (
        ("x", (), 40, ""),
        ("glue", (), 30, "camera 0: not known"),
        ("glue", ("--focal", 500, "-f"), 30, "focal length given"),
        ("index", (), 9, "K in the file"),
        ("bare", ("--size", "640x480", "--fov", 60), 40, "field of view"),
    ):
        code, out, err = run("filter", f"{name}.npz", "--model", "keep", *options)
        assert code == 0, err
        assert f"{count} matches, {count} kept" in out
        assert words in out
    np.testing.assert_array_equal(np.load("x-filtered.npz")["essential"].shape, (3, 3))


@pytest.mark.parametrize("n", [0, 4, 7, 8])
def test_filter_few(run: Run, n: int) -> None:
    points = np.random.default_rng(0).uniform(0, 600, (2, n, 2))
    np.savez("few.npz", points0=points[0], points1=points[1], size0=[640, 480], size1=[640, 480])
    code, out, _ = run("filter", "few.npz", "--model", "keep")
    assert code == 0
    assert f"{n} matches, {n} kept" in out


def test_filter_refuses(run: Run, tmp_path: Path) -> None:
    points = np.zeros((9, 2))
    np.savez("bare.npz", points0=points, points1=points)
    np.savez("unequal.npz", points0=points, points1=points[:3], K=np.eye(3))
    np.savez("flat.npz", points0=points.ravel(), points1=points, K=np.eye(3))
    np.savez("words.npz", points0=np.array([["a", "b"]]), points1=points, K=np.eye(3))
    np.savez("other.npz", pixels=points)
    np.savez("wild.npz", keypoints0=points, keypoints1=points, matches=np.full((4, 2), 99), K=np.eye(3))
    np.savez("ratio.npz", x0=points, x1=points, ratio=np.ones(4))
    np.savez("k.npz", points0=points, points1=points, K=np.zeros((3, 3)))
    np.savez("objects.npz", points0=np.array([{}, []], object), points1=points)
    Path("noise.npz").write_bytes(bytes(range(256)))
    Path("noise.db").write_bytes(bytes(range(256)))
    for name, message in (
        ("bare.npz", "--size"),
        ("unequal.npz", "9 points in the first image, 3"),
        ("flat.npz", "shape (N, 2)"),
        ("words.npz", "expected numbers"),
        ("other.npz", "it has pixels"),
        ("wild.npz", "out of bounds"),
        ("ratio.npz", "ratio"),
        ("k.npz", "positive focal lengths"),
        ("objects.npz", "numpy arrays"),
        ("noise.npz", "numpy arrays"),
        ("absent.npz", "absent.npz"),
        ("noise.db", "not a COLMAP database"),
    ):
        code, _, err = run("filter", name, "--model", "keep")
        assert code == 2
        assert message in err
    assert not list(tmp_path.glob("*-filtered*"))
    code, _, err = run("filter", "bare.npz", "--model", "keep", "--focal", 500)
    assert code == 2
    assert "need: give --size" in err
    assert run("filter", "bare.npz", "--model", "keep", "--size", "640")[0] == 2
    np.savez("x.npz", x0=points, x1=points)
    for options in (("--focal", 500, "--size", "640x480"), ("--fov", 60), ("--size", "640x480")):
        code, _, err = run("filter", "x.npz", "--model", "keep", *options)
        assert code == 2
        assert "x.npz: it has calibrated coordinates (x0, x1), which need no camera: leave out" in err
    code, _, err = run("filter", "x.npz", "--model", "keep", "-o", "y.npz", "--json", "./y.npz", "--force")
    assert code == 2
    assert "--output and --json are the same file, y.npz" in err
    assert not Path("y.npz").exists()


def test_bomb_is_not_decompressed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed("bomb.npz", points0=np.zeros((100_000, 2)), points1=np.zeros((100_000, 2)))
    monkeypatch.setattr("n3net.correspondence.foreign.read_arrays.__defaults__", (1_000_000,))
    code, _, err = run("filter", "bomb.npz", "--model", "keep", "--size", "10x10")
    assert code == 2
    assert "when decompressed" in err
