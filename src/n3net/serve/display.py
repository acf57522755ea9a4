"""Pictures as the page shows them: 8 bit RGB at every second scale, in files from which tiles are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.imaging.comparison import for_display
from n3net.io import Picture
from n3net.io.orientation import upright
from n3net.io.picture import to_type

Array = npt.NDArray[np.uint8]

TILE = 512  # pixels along a side of a tile, at most
ROWS = 512  # that are made smaller at a time


def shown(picture: Picture) -> Array:
    """(H, W, 3), upright; what is transparent is white."""
    pixels: Any = for_display(picture)
    pixels = np.repeat(pixels[..., None], 3, 2) if pixels.ndim == 2 else pixels
    if picture.alpha is None:
        return pixels
    alpha = upright(to_type(picture.alpha, np.uint8), picture.metadata.exif)[..., None].astype(np.uint16)
    return ((pixels * alpha + 255 * (255 - alpha)) // 255).astype(np.uint8)


def write_levels(folder: Path, pixels: Array) -> int:
    """The picture and, as long as it is larger than a tile, one of half its size; how many there are."""
    folder.mkdir()
    count = 0
    while True:
        np.save(folder / f"{count}.npy", np.ascontiguousarray(pixels))
        count += 1
        if max(pixels.shape[:2]) <= TILE:
            return count
        pixels = _halved(pixels)


def read_tile(folder: Path, level: int, row: int, column: int) -> Array:
    """A tile of a level, smaller than others at the right and lower border, empty outside."""
    pixels = np.load(folder / f"{level}.npy", mmap_mode="r", allow_pickle=False)
    return np.ascontiguousarray(pixels[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE])  # (h, w, 3)


def _halved(pixels: Array) -> Array:
    """Means of two by two pixels; of a side that is not even, the last row or column counts twice."""
    height, width = pixels.shape[:2]
    out = np.empty(((height + 1) // 2, (width + 1) // 2, 3), np.uint8)
    for start in range(0, height, ROWS):
        part = pixels[start : start + ROWS]
        part = np.pad(part, ((0, part.shape[0] % 2), (0, width % 2), (0, 0)), mode="edge").astype(np.uint16)
        total = part[::2, ::2] + part[1::2, ::2] + part[::2, 1::2] + part[1::2, 1::2]
        out[start // 2 : start // 2 + total.shape[0]] = (total + 2) // 4
    return out
