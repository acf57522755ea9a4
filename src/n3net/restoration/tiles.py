"""Tiles of an image, of which a network makes what it makes of the whole image.

A tile's network sees its core and a halo as wide as the network's reach, so that what it computes for the core does not
know where the halo ends. Two things belong to the whole image and not to the tile: zeros beyond its border, which a
tile has on the sides where it touches the border, and the patch grid of N3 blocks, on which the tile therefore starts
and ends. Their windows are shifted inwards at the border of the image, so that a patch there looks further than one
inside; no core is smaller than that.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from torch import nn

from n3net.models.interface import Composed, Local, Model, Network, Stepwise
from n3net.neighbors.grid import Matching, Pads
from n3net.nn import N3Block2d
from n3net.restoration.streaming import bytes_per_pixel, widest_image

Part = tuple[slice, slice]  # rows and columns

MEMORY = 800 * 2**20  # bytes that the activations of a tile may need


@dataclass(frozen=True)
class Tile:
    """A part of an image.

    Args:
        core: rows and columns that this tile is responsible for.
        crop: rows and columns that the network sees.
        pads: zeros (left, right, top, bottom) that place the crop on the image's patch grid; None without N3 blocks.
    """

    core: Part
    crop: Part
    pads: Pads | None

    @property
    def inner(self) -> Part:
        """The core within the crop."""
        return tuple(  # type: ignore[return-value]
            slice(core.start - crop.start, core.stop - crop.start)
            for core, crop in zip(self.core, self.crop, strict=True)
        )

    @property
    def pixels(self) -> int:
        """What the tile costs."""
        return math.prod(part.stop - part.start for part in self.crop)

    def times(self, fold: int, height: int, width: int) -> Tile:
        """The same tile of an image ``fold`` times as large; its zeros count in pixels of the network still."""
        core, crop = (
            (
                slice(rows.start * fold, min(rows.stop * fold, height)),
                slice(cols.start * fold, min(cols.stop * fold, width)),
            )
            for rows, cols in (self.core, self.crop)
        )
        return Tile(core, crop, self.pads)


def split(model: nn.Module, height: int, width: int, tile: int | None = None, memory: int = MEMORY) -> list[Tile]:
    """Tiles of an image for a model, row by row, or strips from top to bottom for a network that is swept over them.

    Args:
        model: a network whose ``reach`` says how many pixels away from an output pixel an input pixel may influence it
            (and, if it has one, its ``alignment`` where tiles may start), or a module with such a network as its
            ``net``. A network that does not say is given the whole image.
        height, width: of the image.
        tile: largest side of a core in pixels; cores are larger only where the network's windows ask for it. By default
            as large as ``memory`` allows, in the shape that costs least. Strips do not depend on it.
        memory: bytes that the activations of a tile may need.
    """
    fold = fold_of(model)
    if fold > 1:
        size, side = (-(-height // fold), -(-width // fold)), None if tile is None else -(-tile // fold)
        return [part.times(fold, height, width) for part in _split(model, *size, side, memory)]
    return _split(model, height, width, tile, memory)


def _split(model: nn.Module, height: int, width: int, tile: int | None, memory: int) -> list[Tile]:
    """The same where a pixel of the network is one of the image."""
    if tile is not None and tile < 1:
        raise ValueError(f"tile: expected a side of at least 1 pixel, got {tile}")
    net = model.net if isinstance(model, Model) and isinstance(model.net, nn.Module) else model
    swept = isinstance(net, Composed)
    reach = net.reach if isinstance(net, Local) and not isinstance(net, Stepwise) else None
    strips = -(-width // widest_image(net)) if swept else 0
    if reach is None or strips == 1:
        whole = (slice(0, height), slice(0, width))
        return [Tile(whole, whole, None)]
    grid = _matching(model)
    left, right, top, bottom = grid.padding(height, width) if grid is not None else (0, 0, 0, 0)
    rows, cols = (
        _Axis(
            size, reach, before, after, grid.stride, grid.patch_size, (grid.window - 1) * grid.stride + grid.patch_size
        )
        if grid is not None
        else _Axis(size, reach, stride=net.alignment if isinstance(net, Network) else 1)
        for size, before, after in ((height, top, bottom), (width, left, right))
    )
    if swept:
        down, across = rows.parts(1), cols.parts(strips)
    elif tile is not None:
        down, across = rows.parts(-(-height // tile)), cols.parts(-(-width // tile))
    else:
        down, across = _cheapest(rows, cols, memory // bytes_per_pixel(model))
    return [
        Tile(
            (y.core, x.core),
            (y.crop, x.crop),
            None if grid is None else (x.before, x.after, y.before, y.after),
        )
        for y in down
        for x in across
    ]


def smallest_size(model: nn.Module, height: int, width: int) -> tuple[int, int]:
    """The size of an image, or a larger one if its patches are fewer than the neighbours that the model looks for."""
    for block in (m for m in model.modules() if isinstance(m, N3Block2d)):
        grid, fold = block.matching, fold_of(model)
        if grid.grid(-(-height // fold), -(-width // fold)).fewest_candidates() < block.k:
            least = fold * ((grid.window - 1) * grid.stride + grid.patch_size)
            height, width = max(height, least), max(width, least)
    return height, width


@dataclass(frozen=True)
class _Part:
    core: slice
    crop: slice
    before: int
    after: int


@dataclass(frozen=True)
class _Axis:
    """One side of an image, and the rules for cutting it into parts."""

    size: int
    reach: int
    before: int = 0  # zeros of the whole image
    after: int = 0
    stride: int = 1  # of the patch grid, or of where a tile may start
    patch: int = 0
    least: int = 1  # side of a core

    @property
    def most(self) -> int:
        """Parts that are possible."""
        return max(1, self.size // self.least)

    def parts(self, count: int) -> list[_Part]:
        """At most so many parts, of nearly equal size."""
        count = min(count, self.most)
        ends = [i * self.size // count for i in range(count + 1)]
        return [self._part(start, stop) for start, stop in itertools.pairwise(ends)]

    def _part(self, start: int, stop: int) -> _Part:
        first, last = start - self.reach, stop + self.reach
        first -= (first + self.before) % self.stride  # where a patch of the whole image starts
        last += (self.patch - self.before - last) % self.stride  # where one ends
        at_start, at_end = first <= 0, last >= self.size
        return _Part(
            slice(start, stop),
            slice(0 if at_start else first, self.size if at_end else last),
            self.before if at_start else 0,
            self.after if at_end else 0,
        )


def _cheapest(rows: _Axis, cols: _Axis, pixels: int) -> tuple[list[_Part], list[_Part]]:
    """The cut into crops of at most so many pixels that has fewest of them in all, or into the smallest crops."""

    def sides(axis: _Axis) -> list[tuple[int, int, int]]:  # (longest crop, sum of all crops, parts)
        counts = {min(axis.most, round(1.05**i)) for i in range(math.ceil(math.log(axis.most, 1.05)) + 1)}
        longest = ((min(axis.size, -(-axis.size // n) + 2 * (axis.reach + axis.stride)), n) for n in sorted(counts))
        return [(length, length * n, n) for length, n in longest]

    pairs = [(y, x) for y in sides(rows) for x in sides(cols)]
    fitting = [(y, x) for y, x in pairs if y[0] * x[0] <= pixels] or [min(pairs, key=lambda p: p[0][0] * p[1][0])]
    best_rows, best_cols = min(fitting, key=lambda p: p[0][1] * p[1][1])
    return rows.parts(best_rows[2]), cols.parts(best_cols[2])


def fold_of(model: nn.Module) -> int:
    """Pixels a side that are one of the network."""
    return next((module.fold for module in model.modules() if isinstance(module, Composed)), 1)


def _matching(model: nn.Module) -> Matching | None:
    """The patch grid of the model's blocks."""
    grids = {module.matching for module in model.modules() if isinstance(module, N3Block2d)}
    if len(grids) > 1:
        raise ValueError(
            f"the blocks of a network that runs in tiles must share one patch grid, got {sorted(map(str, grids))}"
        )
    return grids.pop() if grids else None
