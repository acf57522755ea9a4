"""Maps of an image that are computed from top to bottom, and of which only the rows are kept that are still needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from n3net.neighbors.parts import Part

STEP = 4  # tiles end at multiples of this, which suits convolutions


@dataclass(frozen=True)
class TileSize:
    """The most rows and columns of a tile."""

    rows: int
    cols: int


class Source(Protocol):
    """What a step reads a map through."""

    def advance(self, stop: int) -> None:
        """Have all rows before this one ready."""

    def release(self, first: int) -> None:
        """Rows before this one will not be asked for again."""

    def crop(self, rows: slice, cols: slice) -> Tensor:
        """Some of the rows that are ready and not released, (1, C, h, w)."""


class Map(Protocol):
    """A map of an image, (1, C, H, W) if it were computed at once."""

    def source(self) -> Source:
        """For one step to read from."""


class RollingMap(ABC):
    """A map that is computed when its rows are asked for, in tiles, and forgets rows that no step will ask for again.

    Args:
        size: rows and columns.
        tile: the largest one.
        count: is told how many numbers of a channel have been computed.
    """

    def __init__(self, size: tuple[int, int], tile: TileSize, count: Callable[[int], None]) -> None:
        self.size, self.tile, self.count = size, tile, count
        self.readers: list[Reader] = []
        self.buffer: Tensor | None = None  # (rows, W, C)
        self.first = self.stop = 0  # the row of the map that the buffer begins with, and the first not yet computed

    @abstractmethod
    def advance(self, stop: int) -> None:
        """Have ready what rows before this one are computed from."""

    @abstractmethod
    def release(self, first: int) -> None:
        """Let go of what only rows before this one are computed from."""

    @abstractmethod
    def compute(self, rows: slice, cols: slice) -> Tensor:
        """A tile, (1, C, h, w)."""

    def seen(self, rows: slice, cols: slice, margin: int) -> tuple[slice, slice]:
        """A tile with a margin, as far as there is one.

        All tiles of a band get the same size, with more than the margin at the border of the image, so that each finds
        the memory that the one before has freed.
        """
        width = self.size[1]
        longest = next(cut(slice(0, width), self.tile.cols)).stop
        length = min(longest + 2 * margin, width)
        start = min(max(cols.start - margin, 0), width - length)
        return grown(rows, margin, self.size[0]), slice(start, start + length)

    def source(self) -> Reader:
        self.readers.append(Reader(self))
        return self.readers[-1]

    @property
    def kept(self) -> Part:
        """The rows that are there."""
        assert self.buffer is not None, "no row has been asked for"
        rows = self.buffer[: self.stop - self.first]
        return Part(rows.permute(2, 0, 1)[None], self.first)  # (1, C, rows, W), channels last

    def compute_up_to(self, stop: int) -> None:
        """All rows before this one, if they are not there yet."""
        for rows in cut(slice(self.stop, stop), self.tile.rows):
            self.advance(rows.stop)
            for cols in cut(slice(0, self.size[1]), self.tile.cols):
                values = self.compute(rows, cols)[0].permute(1, 2, 0)  # (h, w, C)
                if cols.start == 0:
                    self._make_room(rows.stop, values)
                assert self.buffer is not None
                self.buffer[rows.start - self.first : rows.stop - self.first, cols] = values
                del values  # before the next tile needs its memory
                self.count((rows.stop - rows.start) * (cols.stop - cols.start))
            self.stop = rows.stop
            self.release(rows.stop)

    def _make_room(self, stop: int, like: Tensor) -> None:
        """For rows up to ``stop``, by forgetting rows that nobody needs."""
        needed = min(reader.first for reader in self.readers)
        kept, gone = self.stop - needed, needed - self.first
        if self.buffer is None or stop - needed > len(self.buffer):
            larger = like.new_empty(stop - needed, self.size[1], like.shape[2])
            if self.buffer is not None:
                larger[:kept] = self.buffer[gone : gone + kept]
            self.buffer, self.first = larger, needed
        elif stop - self.first > len(self.buffer):
            for start in range(0, kept, gone):  # so that no copy overlaps what it copies
                end = min(start + gone, kept)
                self.buffer[start:end] = self.buffer[start + gone : end + gone]
            self.first = needed


class Reader:
    """One step's view of a map, and from which row on it may ask for more."""

    def __init__(self, of: RollingMap) -> None:
        self.map, self.first = of, 0

    def advance(self, stop: int) -> None:
        self.map.compute_up_to(stop)

    def release(self, first: int) -> None:
        self.first = first

    def crop(self, rows: slice, cols: slice) -> Tensor:
        return self.map.kept.crop(rows, cols)


def cut(whole: slice, longest: int) -> Iterator[slice]:
    """Parts of nearly equal length, a multiple of STEP where that is not too long."""
    size = whole.stop - whole.start
    if size > 0:
        length = -(-size // -(-size // longest))
        length = min(length + -length % STEP, longest)
        for start in range(whole.start, whole.stop, length):
            yield slice(start, min(start + length, whole.stop))


def grown(part: slice, margin: int, size: int) -> slice:
    """A part of something of some size with a margin, as far as there is one."""
    return slice(max(part.start - margin, 0), min(part.stop + margin, size))
