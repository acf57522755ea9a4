"""Photographs of a plane to match, networks that keep all or nothing, and the program with both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from n3net import weights
from n3net.models import create

Array = npt.NDArray[Any]
Run = Callable[..., tuple[int, str, str]]


def constant(value: float) -> Any:
    """A network that gives every match the same score."""
    net: Any = create("n3net-sets", features=8, depth=2, block_features=8, ratio=True, mutual=True)
    torch.nn.init.zeros_(net.last.weight)
    torch.nn.init.constant_(net.last.bias, value)
    return net.eval()


def with_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Run) -> Run:
    """The program in a directory of its own, with two sets of weights."""
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    for name, value in (("keep", 1.0), ("reject", -1.0)):
        weights.save(tmp_path / "user" / f"{name}.safetensors", constant(value))

    def call(*arguments: object) -> tuple[int, str, str]:
        code, out, err = command(*map(str, arguments))
        assert "Traceback" not in err
        return code, out, err

    return call


def texture(height: int = 240, width: int = 320, seed: int = 0) -> Array:
    """A colourful picture with corners of all sizes, uint8."""
    import cv2

    rng = np.random.default_rng(seed)
    image = np.zeros((height, width, 3), np.float32)
    for cell in (4, 8, 16, 32):
        small = rng.uniform(0, 60, (height // cell + 1, width // cell + 1, 3)).astype(np.float32)
        image += cv2.resize(small, None, fx=cell, fy=cell, interpolation=cv2.INTER_NEAREST)[:height, :width]
    return np.clip(image, 0, 255).astype(np.uint8)


def two_photos(folder: Path) -> tuple[Path, Path]:
    """A plane seen twice, in images of unequal size."""
    import cv2

    first = texture()
    h = np.array([[0.95, 0.06, 10.0], [-0.05, 0.97, 12.0], [1e-4, -5e-5, 1.0]])
    second = cv2.warpPerspective(first, h, (340, 250))
    for name, image in (("a.png", first), ("b.png", second)):
        Image.fromarray(image).save(folder / name)
    return folder / "a.png", folder / "b.png"
