"""What tests of evaluation share."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where weights have names: none come with the package, and none are there yet."""
    monkeypatch.setattr("n3net.weights.store.SHIPPED", tmp_path / "nowhere")
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "user"))
    monkeypatch.delenv("N3NET_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "bm3d", None)  # as if it were not installed
    return tmp_path / "user"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set of three small pictures, under the name of a real one."""
    directory = tmp_path / "data" / "Set12"
    directory.mkdir(parents=True)
    y, x = np.mgrid[:60, :72]
    for i in range(3):
        pixels = 127 + 80 * np.sin(x / (2 + i)) * np.cos(y / 5) + 20 * (x > 30)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(directory / f"{i}.png")
    (directory / "notes.txt").write_text("not an image")
    return directory
