"""A network of several steps on an image that is swept from top to bottom: little is computed twice, little is kept.

Between the steps of an N3Net lie maps of a few channels: what a local network makes, what patches are matched on, a
temperature for each patch. A step asks the maps that it reads for the rows it needs, whereupon these are computed, in
tiles with a margin as wide as that one step looks, not as wide as the whole network does. N3 blocks find all candidates
in the maps. What they give has many channels, and is computed where the next local network needs it, not kept.

A network takes part if it is :class:`~n3net.models.interface.Composed`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from n3net.memory import return_freed_memory
from n3net.models.interface import Local
from n3net.neighbors.grid import Pads
from n3net.neighbors.parts import Layout
from n3net.nn import N3Block2d
from n3net.restoration.rolling import STEP, Map, Reader, RollingMap, TileSize, cut

TILE_MEMORY = 140 * 2**20  # bytes that the activations of a tile may need
MAP_MEMORY = 400 * 2**20  # bytes that the maps may need
LEAST = 32  # side of a tile: a smaller one would be mostly margin


def stream(
    net: Any,
    size: tuple[int, int],
    read: Callable[[slice, slice], Tensor],
    *,
    tile: TileSize,
    pads: Pads | None = None,
    progress: Callable[[float], None] | None = None,
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Run a network that has a method ``compose``, without gradients.

    Args:
        net: in evaluation.
        size: height and width of the image.
        read: rows and columns -> the network's input there, (1, C, h, w).
        tile: the largest one, see :func:`tile_for`.
        pads: zeros (left, right, top, bottom) that complete the image's patches, by default those of the blocks.
        progress: called after each tile of each step, with the part of the work that is done.

    Yields:
        A band of rows, and the network's input and output there, (1, C, h, W), only until the next are asked for.
    """
    sweep = Sweep(size, tile, pads, progress)
    image = _Image(sweep, read)
    result: Map = net.compose(sweep.apply, image)
    inputs, outputs = image.source(), result.source()
    for rows in cut(slice(0, size[0]), tile.rows):
        outputs.advance(rows.stop)
        inputs.advance(rows.stop)
        yield rows, inputs.crop(rows, slice(0, size[1])), outputs.crop(rows, slice(0, size[1]))
        for source in (inputs, outputs):
            source.release(rows.stop)
        return_freed_memory()


class Sweep:
    """The steps of a network on one image; for the arguments see :func:`stream`."""

    def __init__(
        self,
        size: tuple[int, int],
        tile: TileSize,
        pads: Pads | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self.size, self.tile, self.pads, self.progress = size, tile, pads, progress
        self.done = self.work = 0  # in weights that numbers are multiplied with

    def apply(self, module: nn.Module, x: Map, match_on: Map | None = None) -> Map:
        """What a module makes of maps: an N3 block, or a network that tells its ``reach``."""
        if not isinstance(module, N3Block2d):
            return _Local(self, module, x)
        x = self._kept(x)
        if match_on is None and module.embedding is not None:
            match_on = _Local(self, module.embedding, x)
        if match_on is None:
            raise ValueError("match_on: this block has no embedding net of its own, pass what it shall match on")
        layout = Layout.of(module.matching, *self.size, self.pads)
        return _Block(module, layout, x, self._kept(match_on), _Scales(self, module, layout, x))

    def _kept(self, x: Map) -> RollingMap:
        return x if isinstance(x, RollingMap) else _Local(self, _Same(), x)

    def counter(self, work: int, size: tuple[int, int]) -> Callable[[int], None]:
        """For a map of some size, each number of which is ``work``: to be called with how many were computed."""
        self.work += work * math.prod(size)

        def count(numbers: int) -> None:
            self.done += work * numbers
            if self.progress is not None:
                self.progress(self.done / max(self.work, 1))

        return count


class _Image(RollingMap):
    """The network's input."""

    def __init__(self, sweep: Sweep, read: Callable[[slice, slice], Tensor]) -> None:
        super().__init__(sweep.size, sweep.tile, sweep.counter(0, sweep.size))
        self.read = read

    def advance(self, stop: int) -> None:
        pass

    def release(self, first: int) -> None:
        pass

    def compute(self, rows: slice, cols: slice) -> Tensor:
        return self.read(rows, cols)


class _Local(RollingMap):
    """The output of a network that looks at the pixels around each pixel."""

    def __init__(self, sweep: Sweep, net: nn.Module, x: Map) -> None:
        super().__init__(sweep.size, sweep.tile, sweep.counter(_weights(net), sweep.size))
        reach = net.reach if isinstance(net, Local) else None
        if reach is None:
            raise ValueError(f"{type(net).__name__}: has no reach, which says how many pixels away it looks")
        self.net, self.reach, self.x = net, reach, x.source()

    def advance(self, stop: int) -> None:
        self.x.advance(min(stop + self.reach, self.size[0]))

    def release(self, first: int) -> None:
        self.x.release(max(first - self.reach, 0))

    def compute(self, rows: slice, cols: slice) -> Tensor:
        seen_rows, seen_cols = self.seen(rows, cols, self.reach)
        out: Tensor = self.net(_channels_last(self.x.crop(seen_rows, seen_cols)))
        return out[..., _within(rows, seen_rows), _within(cols, seen_cols)]


class _Scales(RollingMap):
    """What a block is told of each patch, (1, 2 or 3, Qh, Qw)."""

    def __init__(self, sweep: Sweep, block: N3Block2d, layout: Layout, x: Map) -> None:
        stride, size = block.matching.stride, (layout.rows.patches, layout.cols.patches)
        nets = [net for net in (block.temperature, block.annealing) if net is not None]
        tile = TileSize(-(-sweep.tile.rows // stride), -(-sweep.tile.cols // stride))
        super().__init__(size, tile, sweep.counter(sum(map(_weights, nets)) * stride**2, size))
        margin = -(-max(map(_reach, nets), default=0) // stride)
        self.block, self.layout, self.margin, self.x = block, layout, margin, x.source()

    def advance(self, stop: int) -> None:
        self.x.advance(self.layout.rows.pixels(slice(0, min(stop + self.margin, self.size[0]))).stop)

    def release(self, first: int) -> None:
        self.x.release(self.layout.rows.pixels(slice(max(first - self.margin, 0), self.size[0])).start)

    def compute(self, rows: slice, cols: slice) -> Tensor:
        seen_rows, seen_cols = self.seen(rows, cols, self.margin)
        x = self.x.crop(self.layout.rows.pixels(seen_rows), self.layout.cols.pixels(seen_cols))
        out = self.block.scales(_channels_last(x), self.layout.pads(seen_rows, seen_cols))
        return out[..., _within(rows, seen_rows), _within(cols, seen_cols)]


class _Block:
    """The output of an N3 block, its input and neighbours, computed where they are asked for."""

    def __init__(self, block: N3Block2d, layout: Layout, x: RollingMap, match_on: RollingMap, scales: _Scales) -> None:
        self.block, self.layout, self.maps = block, layout, (x, match_on, scales)

    def source(self) -> _Neighbors:
        return _Neighbors(self.block, self.layout, *(m.source() for m in self.maps))


class _Neighbors:
    """One step's view of a block's output."""

    def __init__(self, block: N3Block2d, layout: Layout, x: Reader, match_on: Reader, scales: Reader) -> None:
        self.block, self.layout = block, layout
        self.x, self.match_on, self.scales = x, match_on, scales

    def advance(self, stop: int) -> None:
        side = self.layout.rows
        patches = side.seen(side.touching(slice(0, stop)))
        self.scales.advance(patches.stop)
        for reader in (self.match_on, self.x):
            reader.advance(side.pixels(patches).stop)

    def release(self, first: int) -> None:
        side = self.layout.rows
        patches = side.seen(side.touching(slice(min(first, side.size - 1), side.size)))
        self.scales.release(patches.start)
        for reader in (self.match_on, self.x):
            reader.release(side.pixels(patches).start)

    def crop(self, rows: slice, cols: slice) -> Tensor:
        x, match_on, scales = (reader.map.kept for reader in (self.x, self.match_on, self.scales))
        return self.block.part(x, match_on, scales, self.layout, rows, cols)


class _Same(nn.Identity):
    """Of a map that is not kept, one that is."""

    reach = 0


def tile_for(net: nn.Module, height: int, width: int, side: int | None = None) -> TileSize:
    """The tile that costs least among those for which the memory suffices, or one of a side of some pixels."""
    if side is not None:
        side = max(side, LEAST)
        return TileSize(side, side)
    margin, pixels = 2 * _longest_reach(net), TILE_MEMORY // bytes_per_pixel(net)
    rows_of_maps = max(MAP_MEMORY // (_bytes_of_maps(net) * width) - _rows_around(net), LEAST)
    choices = []
    for count in range(1, -(-width // LEAST) + 1):
        cols = -(-width // count)
        rows = min(height, rows_of_maps, max(pixels // (cols + margin) - margin, LEAST))
        cost = (1 + margin / rows if rows < height else 1) * (1 + margin / cols if count > 1 else 1)
        too_large = (rows + margin) * (cols + margin) > pixels
        choices.append((too_large, cost, rows, cols + -cols % STEP))
    _, _, rows, cols = min(choices)
    return TileSize(rows, cols)


def widest_image(net: nn.Module) -> int:
    """Columns of an image whose maps fit into their memory, with tiles that are not too low."""
    return MAP_MEMORY // (_bytes_of_maps(net) * (_rows_around(net) + 6 * LEAST))


def bytes_per_pixel(net: nn.Module) -> int:
    """Of the activations, an estimate: a block's output, and the input and output of a convolution."""
    layers = (m for m in net.modules() if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d, N3Block2d)))
    widest = max((layer.out_channels for layer in layers), default=1)
    return 4 * (3 * widest + 16)


def _bytes_of_maps(net: nn.Module) -> int:
    """For each pixel of a row that is kept, an estimate: each block's input and what it matches on."""
    return sum(2 * 4 * block.channels for block in _blocks(net)) or 4


def _rows_around(net: nn.Module) -> int:
    """Rows of a map that are kept beside those of a tile: of windows above and below, and margins of the next step."""
    sizes = (block.matching for block in _blocks(net))
    return max((m.window * m.stride + 2 * m.patch_size for m in sizes), default=0) + 2 * _longest_reach(net)


def _blocks(net: nn.Module) -> list[N3Block2d]:
    return [m for m in net.modules() if isinstance(m, N3Block2d)]


def _longest_reach(net: nn.Module) -> int:
    """Of the steps of a network."""
    return max((_reach(m) for m in net.modules() if m is not net), default=0)


def _reach(module: nn.Module) -> int:
    return (module.reach or 0) if isinstance(module, Local) else 0


def _weights(net: nn.Module) -> int:
    return sum(t.numel() for t in itertools.chain(net.parameters(), net.buffers()))


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _within(part: slice, around: slice) -> slice:
    return slice(part.start - around.start, part.stop - around.start)
