"""From one colour in each pixel to three: the Bayer mosaic of a sensor, and three ways to fill in what is missing.

All take arrays (..., H, W) and give (..., H, W, 3); values that the sensor has measured stay as they are. At the border
the mosaic is mirrored about its outermost pixels, which keeps the colours in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Pattern = Literal["RGGB", "BGGR", "GRBG", "GBRG"]
PATTERNS: tuple[Pattern, ...] = ("RGGB", "BGGR", "GRBG", "GBRG")  # of the four pixels of a Bayer cell, row by row

REACH = 2  # pixels that a filter looks at on each side of its own

# What is missing as a weighted sum of the 5 x 5 pixels around: green where there is red or blue ("cross"); red or blue
# at a green pixel of their own row ("row"), or column (the same turned); red where there is blue or the reverse
# ("diagonal").
BILINEAR: dict[str, Floats] = {
    "cross": np.array([[0, 0, 0, 0, 0], [0, 0, 2, 0, 0], [0, 2, 0, 2, 0], [0, 0, 2, 0, 0], [0, 0, 0, 0, 0]]) / 8,
    "row": np.array([[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 4, 0, 4, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]) / 8,
    "diagonal": np.array([[0, 0, 0, 0, 0], [0, 2, 0, 2, 0], [0, 0, 0, 0, 0], [0, 2, 0, 2, 0], [0, 0, 0, 0, 0]]) / 8,
}
# Malvar, He and Cutler, "High-quality linear interpolation for demosaicing of Bayer-patterned color images", ICASSP
# 2004: bilinear, corrected by the second derivative of the colour that was measured.
MALVAR: dict[str, Floats] = {
    "cross": np.array([[0, 0, -1, 0, 0], [0, 0, 2, 0, 0], [-1, 2, 4, 2, -1], [0, 0, 2, 0, 0], [0, 0, -1, 0, 0]]) / 8,
    "row": np.array([[0, 0, 0.5, 0, 0], [0, -1, 0, -1, 0], [-1, 4, 5, 4, -1], [0, -1, 0, -1, 0], [0, 0, 0.5, 0, 0]])
    / 8,
    "diagonal": np.array(
        [[0, 0, -1.5, 0, 0], [0, 2, 0, 2, 0], [-1.5, 0, 6, 0, -1.5], [0, 2, 0, 2, 0], [0, 0, -1.5, 0, 0]]
    )
    / 8,
}


def mosaic(rgb: Floats, pattern: Pattern = "RGGB") -> Floats:
    """One colour of each pixel, (..., H, W, 3) -> (..., H, W)."""
    out = np.empty(rgb.shape[:-1], rgb.dtype)
    for index, colour in enumerate(pattern):
        site = _site(index // 2, index % 2)
        out[site] = rgb[(*site, "RGB".index(colour))]
    return out


def bilinear(values: Floats, pattern: Pattern = "RGGB") -> Floats:
    """Means of the nearest pixels of each colour."""
    return _linear(values, pattern, BILINEAR)


def malvar(values: Floats, pattern: Pattern = "RGGB") -> Floats:
    """Filters of 5 x 5 pixels that let each colour tell of the edges of the others (Malvar et al. 2004)."""
    return _linear(values, pattern, MALVAR)


def directed(values: Floats, pattern: Pattern = "RGGB") -> Floats:
    """Along edges, not across them (Hamilton and Adams, US patent 5629734, 1997, which has expired).

    Green is interpolated in the direction in which the first derivative of green and the second one of red or blue are
    smaller, red and blue by their bilinearly interpolated differences from green.
    """
    green = _directed_green(values, pattern)
    difference = values - green  # 0 where green was measured
    out = _linear(difference, pattern, BILINEAR)
    out[..., 1] = 0
    out += green[..., None]
    return out


METHODS: dict[str, Callable[[Floats, Pattern], Floats]] = {"bilinear": bilinear, "malvar": malvar, "directed": directed}


def _site(row: int, column: int) -> tuple[Any, ...]:
    return ..., slice(row, None, 2), slice(column, None, 2)


def _red(pattern: Pattern) -> tuple[int, int]:
    """Row and column of the red pixel of a cell; the blue one is opposite."""
    return divmod(pattern.index("R"), 2)


class _Around:
    """The pixels at some distance from those of one colour."""

    def __init__(self, values: Floats) -> None:
        self.shape, self.dtype = values.shape, values.dtype
        edges = [(0, 0)] * (values.ndim - 2) + [(REACH, REACH)] * 2
        self.padded = np.pad(values, edges, mode="reflect")

    def __call__(self, row: int, column: int, down: int, right: int) -> Floats:
        """Every second pixel from (row, column) on, moved by (down, right)."""
        top, left = row + REACH + down, column + REACH + right
        return self.padded[..., top : self.shape[-2] + REACH + down : 2, left : self.shape[-1] + REACH + right : 2]

    def sum(self, row: int, column: int, weights: Floats) -> Floats:
        """Weighted sums of the 5 x 5 pixels around every second one from (row, column) on."""
        total: Floats | None = None
        for y, x in zip(*weights.nonzero(), strict=True):
            part = self(row, column, int(y) - REACH, int(x) - REACH) * self.dtype.type(weights[y, x])
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None
        return total


def _linear(values: Floats, pattern: Pattern, weights: dict[str, Floats]) -> Floats:
    out = np.repeat(values[..., None], 3, -1)  # (..., H, W, 3)
    around, (y, x) = _Around(values), _red(pattern)
    for own, other, (row, column) in ((0, 2, (y, x)), (2, 0, (1 - y, 1 - x))):  # red, then blue
        out[(*_site(row, column), 1)] = around.sum(row, column, weights["cross"])
        out[(*_site(row, column), other)] = around.sum(row, column, weights["diagonal"])
        out[(*_site(row, 1 - column), own)] = around.sum(row, 1 - column, weights["row"])
        out[(*_site(1 - row, column), own)] = around.sum(1 - row, column, weights["row"].T)
    return out


def _directed_green(values: Floats, pattern: Pattern) -> Floats:
    out = values.copy()
    around, (y, x) = _Around(values), _red(pattern)
    for row, column in ((y, x), (1 - y, 1 - x)):
        at = around(row, column, 0, 0)
        guesses, changes = [], []
        for down, right in ((0, 1), (1, 0)):
            before, after = around(row, column, -down, -right), around(row, column, down, right)
            bend = 2 * at - around(row, column, -2 * down, -2 * right) - around(row, column, 2 * down, 2 * right)
            guesses.append((before + after) / 2 + bend / 4)
            changes.append(np.abs(before - after) + np.abs(bend))
        across, along = changes  # of rows and of columns
        mean = (guesses[0] + guesses[1]) / 2
        out[_site(row, column)] = np.where(across < along, guesses[0], np.where(along < across, guesses[1], mean))
    return out
