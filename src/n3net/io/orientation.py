"""The orientation that cameras write into EXIF data, and pixels turned as it says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from n3net.io.picture import Array
from n3net.io.tiff import exif_tags

ORIENTATION = 274  # tag of EXIF

# Value of the tag -> what brings an array (H, W, ...) upright.
TURNS: dict[int, Callable[[Array], Array]] = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: np.swapaxes(a, 0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.swapaxes(a[::-1, ::-1], 0, 1),
    8: lambda a: np.rot90(a),
}


def upright(pixels: Array, exif: bytes) -> Array:
    """Pixels (H, W, ...) of any type as they are to be looked at."""
    value = exif_tags(exif).get(ORIENTATION, 1) if exif else 1
    turn = TURNS.get(value) if isinstance(value, int) else None
    return pixels if turn is None else np.ascontiguousarray(turn(pixels))
