"""Pictures to measure with: smooth shapes, texture and noise, the same in every run."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

NOISE = 25.0  # standard deviation, in gray levels


def picture(height: int, width: int, channels: int) -> npt.NDArray[np.uint8]:
    """(H, W) or (H, W, 3), computed plane by plane and in strips, because the picture may be large."""
    rng = np.random.default_rng(0)
    out = np.empty((height, width, channels), np.uint8)
    columns = np.arange(width, dtype=np.float32)
    for channel in range(channels):
        coarse = Image.fromarray(rng.integers(60, 196, (9, 12), np.uint8))
        shapes = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
        for top in range(0, height, 256):
            rows = np.arange(top, min(top + 256, height), dtype=np.float32)[:, None]
            texture = 12 * np.sin(rows / 3 + columns / 40) * np.sin(columns / 4)
            noise = rng.standard_normal(texture.shape, np.float32) * np.float32(NOISE)
            out[top : top + 256, :, channel] = np.clip(shapes[top : top + 256] + texture + noise, 0, 255)
    return out[..., 0] if channels == 1 else out


def temporary_folder() -> Path:
    """A folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="n3net-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
