"""The demo: its pictures, with the weights that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("skimage")
pytest.importorskip("matplotlib")

from n3net.evaluation import demo


def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> None:
    photo = demo._photo()
    monkeypatch.setattr(demo, "_photo", lambda: photo[:96, :128])
    code, out, err = command("demo", "-o", str(tmp_path))
    assert code == 0, err
    assert "selection.png" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["denoised.png", "selection.png"]
    with Image.open(tmp_path / "denoised.png") as picture:
        assert picture.width > 3 * 128
