"""The examples, in a shorter form: they run, draw their pictures, and say what they say in their docstrings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from scripts import script

FOLDER = Path(__file__).parents[1] / "examples"
DATA = Path(os.environ.get("N3NET_DATA", FOLDER.parents[1] / "shared" / "data"))


def example(name: str) -> ModuleType:
    return script(FOLDER / f"{name}.py")


def test_recall(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    errors = list(example("recall").compare(120, str(tmp_path / "x.png")).values())
    assert (tmp_path / "x.png").stat().st_size > 10_000
    convolution, _, neighbours = errors
    assert neighbours < 0.8 < convolution


def test_few_shot(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    right = example("few_shot").compare(60, 20, str(tmp_path / "x.png"))
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert min(share for share, _ in right.values()) > 0.7


def test_video(tmp_path: Path) -> None:
    scores = example("video").compare(12, str(tmp_path / "x.png"))
    assert (tmp_path / "x.png").stat().st_size > 1_000
    assert min(scores["each frame alone"], scores["with neighbouring frames"]) > scores["noisy"]


def test_point_clouds(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shares = example("point_clouds").compare(60, 1, str(tmp_path / "x.png"))
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert min(min(of_seeds) for of_seeds in shares.values()) > 0.35  # of four parts


def test_deblur(tmp_path: Path) -> None:
    chelsea = pytest.importorskip("skimage.data", reason="scikit-image has the photograph").chelsea()
    scores = example("deblur").compare(chelsea[60:156, 110:206] / 255, str(tmp_path / "x.png"), rounds=4)
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert scores["seen"] < scores["Wiener"] < scores["N3Net"]


def test_reconstruct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight of the photographs of sceaux_castle; all eleven, in the same way, with the example itself."""
    pytest.importorskip("pycolmap")
    pytest.importorskip("cv2")
    scene = DATA / "correspondence" / "sceaux_castle"
    if not scene.is_dir():
        pytest.skip("the data sets are not beside this project")
    database = str(tmp_path / "x.db")
    arguments = [str(scene / "images"), "--intrinsics", str(scene / "K.txt"), "--first", "8", "--database", database]
    monkeypatch.setattr(sys, "argv", ["reconstruct.py", *arguments])
    example("reconstruct").main()
    out = capsys.readouterr().out
    assert "8 photographs placed" in out
    assert out.count("SIMPLE_RADIAL") == 1
    assert float(out.split("rotations: ")[1].split()[0]) < 0.5
