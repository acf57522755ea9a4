"""Images of any size through a network, with the result of the whole image.

A network that says what it is composed of is swept over the image, see :mod:`n3net.restoration.streaming`; one that
needs whole maps between its steps (``in_steps``: a norm of the image, groups of patches) has each step computed in
parts; others see the image in tiles, see :mod:`n3net.restoration.tiles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.memory import return_freed_memory
from n3net.models.interface import Composed, Network, Stepwise
from n3net.restoration.streaming import stream, tile_for
from n3net.restoration.tiles import Part, Tile, smallest_size, split

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]  # pixels done, pixels in all


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
        tile: longest side of a tile in pixels, but see :func:`~n3net.restoration.tiles.split` and
            :func:`~n3net.restoration.streaming.tile_for` for how small it can be; by default as large as memory allows.
        device: see :func:`prepare`.
        progress: called after each tile; of a network that is swept, after each tile of each of its steps, and of one
            that ``tells_progress`` whenever it is told to.
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
                    if not bool(torch.isfinite(inner).all()):
                        raise UserError(
                            "the network gave values that are no numbers; 'n3net weights verify' tests its weights"
                        )
                    write((rows, cols), inner.permute(1, 2, 0).cpu().numpy())
        before += part.pixels


def share(progress: Progress | None, index: int, count: int) -> Progress | None:
    """The progress of one of several steps that take equally long, as part of all."""
    if progress is None or count == 1:
        return progress
    return lambda done, total: progress(index * total + done, count * total)


def _outputs(
    net: nn.Module, part: Tile, see: Callable[..., Tensor], tile: int | None, progress: Callable[[float], None]
) -> Iterator[tuple[Part, Tensor, Tensor]]:
    """Rows and columns of an image, what the network is given there, and what it makes of it, (1, C, h, w) each."""
    rows, cols = part.crop
    size = rows.stop - rows.start, cols.stop - cols.start
    if isinstance(net, Stepwise):
        given = see(rows, cols)
        yield part.crop, given, _in_steps(net, given, tile, progress)
    elif isinstance(net, Composed):
        fold = net.fold

        def read(y: slice, x: slice) -> Tensor:
            pixels = (slice(s.start * fold, min(s.stop * fold, side)) for s, side in zip((y, x), size, strict=True))
            y, x = pixels
            return net.folded(see(_moved(y, rows.start), _moved(x, cols.start)))

        folded = -(-size[0] // fold), -(-size[1] // fold)
        tile_size = tile_for(net, *folded, None if tile is None else -(-tile // fold))
        for band, given, out in stream(net, folded, read, tile=tile_size, pads=part.pads, progress=progress):
            band = slice(band.start * fold, min(band.stop * fold, size[0]))
            height, width = band.stop - band.start, size[1]
            there = _moved(band, rows.start), cols
            yield there, net.unfolded(given, height, width), net.unfolded(out, height, width)
    else:
        given = see(rows, cols)
        more: dict[str, Any] = {} if part.pads is None else {"pads": part.pads}
        if isinstance(net, Network) and net.tells_progress:
            more["progress"] = progress
        yield part.crop, given, net(given, **more)
        return_freed_memory()
        progress(1)


def _in_steps(net: Stepwise, x: Tensor, tile: int | None, progress: Callable[[float], None]) -> Tensor:
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
