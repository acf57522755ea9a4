"""Images of any size through a network, with the result of the whole image.

A network that says what it is composed of is swept over the image, see :mod:`n3net.streaming`; one that needs whole
maps between its steps (``in_steps``: a norm of the image, groups of patches) has each step computed in parts; others
see the image in tiles.
A tile's network sees its core and a halo as wide as the network's reach, so that what it computes for the core does not
know where the halo ends. Two things belong to the whole image and not to the tile: zeros beyond its border, which a
tile has on the sides where it touches the border, and the patch grid of N3 blocks, on which the tile therefore starts
and ends. Their windows are shifted inwards at the border of the image, so that a patch there looks further than one
inside; no core is smaller than that.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.matching.images import Matching, Pads
from n3net.memory import return_freed_memory
from n3net.models.folding import fold_batch_norm
from n3net.nn import N3Block2d
from n3net.nn.convolutions import fuse
from n3net.streaming import bytes_per_pixel, stream, tile_for, widest_image

Array = npt.NDArray[Any]
Part = tuple[slice, slice]  # rows and columns
Progress = Callable[[int, int], None]  # pixels done, pixels in all

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


def load_for(task: str, model: str | Path | nn.Module, *kinds: type) -> Any:
    """A model of some kind: the module itself, or what :func:`n3net.load` takes."""
    if isinstance(model, nn.Module):
        if not isinstance(model, kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"model: expected n3net.models.{expected}, a name or a file, got {type(model).__name__}")
        return model
    from n3net.weights import load

    loaded: Any = load(model)
    if not isinstance(loaded, kinds):
        raise UserError(f"{model}: a {loaded.recipe.name}, which is not for {task}")
    return loaded


def prepare(model: nn.Module, device: str | torch.device = "cpu", fast: bool | None = None) -> nn.Module:
    """A copy of the model for inference: in eval mode, batch norm folded, channels last.

    With ``fast``, its 3 x 3 convolutions are the compiled kernel's where that can run, otherwise PyTorch's. By default
    they are, unless the environment has ``N3NET_CONVOLUTIONS=torch``.
    """
    fast = os.environ.get("N3NET_CONVOLUTIONS") != "torch" if fast is None else fast
    folded = fold_batch_norm(model).to(device).requires_grad_(False)
    folded.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return fuse(folded) if fast else folded


def run(
    net: nn.Module,
    size: tuple[int, int],
    read: Callable[[Part], Sequence[Array]],
    write: Callable[[Part, Array], None],
    *,
    told: Callable[..., Tensor] | None = None,
    finish: Callable[[Tensor, Tensor], Tensor] | None = None,
    tile: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> None:
    """Run a network on an image, part by part.

    Args:
        net: as it is within what :func:`prepare` makes. It is given parts that are those of :func:`split`, and swept
            over them if it has a method ``compose``.
        size: height and width of the image.
        read: rows and columns -> inputs there, (h, w, C) each, float32. An image with fewer patches than the network
            looks for is read as a whole and mirrored at its lower and right border.
        write: is given rows and columns and the result there, (h, w, C).
        told: inputs (1, C, h, w) each -> what the network is given; by default the only input.
        finish: the network's output, and what it was given -> the result; by default the output. Both work pixel by
            pixel.
        tile: longest side of a tile in pixels, but see :func:`split` and :func:`n3net.streaming.tile_for` for how small
            it can be; by default as large as memory allows.
        device: see :func:`prepare`.
        progress: called after each tile; of a network that is swept, after each tile of each of its steps.
    """
    needed = smallest_size(net, *size)
    if needed != size:
        enlarged = [_mirrored(pixels, needed) for pixels in read((slice(0, size[0]), slice(0, size[1])))]
        read = lambda part: [pixels[part] for pixels in enlarged]  # noqa: E731
    parts = split(net, *needed, tile)
    total, before = sum(part.pixels for part in parts), 0

    def see(rows: slice, cols: slice) -> Tensor:
        inputs = [torch.from_numpy(np.ascontiguousarray(a, np.float32)) for a in read((rows, cols))]  # (h, w, C)
        planes = [
            x.permute(2, 0, 1)[None].to(device).contiguous(memory_format=torch.channels_last) for x in inputs
        ]  # (1, C, h, w)
        return planes[0] if told is None else told(*planes)

    for part in parts:

        def advance(done: float, before: int = before, pixels: int = part.pixels) -> None:
            if progress is not None:
                progress(before + round(done * pixels), total)

        with torch.inference_mode():
            for there, given, out in _outputs(net, part, see, tile, advance):
                rows, cols = (
                    slice(max(a.start, b.start), min(a.stop, b.stop, side))
                    for a, b, side in zip(there, part.core, size, strict=True)
                )
                if rows.start < rows.stop and cols.start < cols.stop:
                    result = out if finish is None else finish(out, given)
                    inner = result[0, :, _moved(rows, -there[0].start), _moved(cols, -there[1].start)]
                    write((rows, cols), inner.permute(1, 2, 0).cpu().numpy())
        before += part.pixels


def _outputs(
    net: nn.Module, part: Tile, see: Callable[..., Tensor], tile: int | None, progress: Callable[[float], None]
) -> Iterator[tuple[Part, Tensor, Tensor]]:
    """Rows and columns of an image, what the network is given there, and what it makes of it, (1, C, h, w) each."""
    rows, cols = part.crop
    size = rows.stop - rows.start, cols.stop - cols.start
    if hasattr(net, "in_steps"):
        given = see(rows, cols)
        yield part.crop, given, _in_steps(net, given, tile, progress)
    elif hasattr(net, "compose"):

        def read(y: slice, x: slice) -> Tensor:
            return see(_moved(y, rows.start), _moved(x, cols.start))

        tile_size = tile_for(net, *size, tile)
        for band, given, out in stream(net, size, read, tile=tile_size, pads=part.pads, progress=progress):
            yield (_moved(band, rows.start), cols), given, out
    else:
        given = see(rows, cols)
        yield part.crop, given, net(given) if part.pads is None else net(given, pads=part.pads)
        return_freed_memory()
        progress(1)


def _in_steps(net: Any, x: Tensor, tile: int | None, progress: Callable[[float], None]) -> Tensor:
    """A network that has a method ``in_steps`` on a whole image (1, C, H, W): each step part by part."""
    done = 0

    def apply(module: nn.Module, *maps: Tensor) -> Tensor:
        nonlocal done
        size = maps[0].shape[-2], maps[0].shape[-1]
        out: Tensor | None = None
        parts = split(module, *size, tile)
        for i, part in enumerate(parts):
            before = done + i / len(parts)

            def advance(fraction: float, before: float = before) -> None:
                progress((before + fraction / len(parts)) / net.step_count)

            for there, result in _results(module, part, maps, tile, advance):
                rows, cols = (
                    slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(there, part.core, strict=True)
                )
                if out is None:
                    out = result.new_empty(*result.shape[:2], *size)
                if rows.start < rows.stop:
                    out[..., rows, cols] = result[..., _moved(rows, -there[0].start), _moved(cols, -there[1].start)]
        done += 1
        assert out is not None
        return out

    result: Tensor = net.in_steps(apply, x)
    return result


def _results(
    module: nn.Module, part: Tile, maps: Sequence[Tensor], tile: int | None, progress: Callable[[float], None]
) -> Iterator[tuple[Part, Tensor]]:
    """What a step makes of maps (1, C, H, W), where it is and what it is."""
    if len(maps) == 1:
        for there, _, out in _outputs(module, part, lambda y, x: maps[0][..., y, x], tile, progress):
            yield there, out
    else:
        yield part.crop, module(*(m[..., part.crop[0], part.crop[1]] for m in maps))
        progress(1)


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def place(target: Array, part: Part, values: Array, peak: float) -> None:
    """Put values of [0, 1] into an image of any type, rounded and clipped where it is one of integers."""
    scaled = values * np.float32(peak)
    if np.issubdtype(target.dtype, np.integer):
        np.clip(np.rint(scaled, out=scaled), 0, peak, out=scaled)
    target[part] = scaled


def _mirrored(image: Array, size: tuple[int, int]) -> Array:
    """Continued at the lower and right border."""
    more = [(0, wanted - side) for wanted, side in zip(size, image.shape, strict=False)]
    return np.pad(image, [*more, (0, 0)], mode="symmetric")


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
    if tile is not None and tile < 1:
        raise ValueError(f"tile: expected a side of at least 1 pixel, got {tile}")
    net = getattr(model, "net", model)
    reach, swept = getattr(net, "reach", None), hasattr(net, "compose")
    reach = None if hasattr(net, "in_steps") else reach
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
        else _Axis(size, reach, stride=getattr(net, "alignment", 1))
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
        grid = block.matching
        if grid.grid(height, width).fewest_candidates() < block.k:
            least = (grid.window - 1) * grid.stride + grid.patch_size
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


def _matching(model: nn.Module) -> Matching | None:
    """The patch grid of the model's blocks."""
    candidates = [getattr(module, "matching", None) for module in model.modules()]
    grids = {grid for grid in candidates if isinstance(grid, Matching)}
    if len(grids) > 1:
        raise ValueError(
            f"the blocks of a network that runs in tiles must share one patch grid, got {sorted(map(str, grids))}"
        )
    return grids.pop() if grids else None
