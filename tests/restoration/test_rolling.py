"""Rolling maps compute each row once and keep as few of them as their readers need."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from n3net.restoration.rolling import RollingMap, TileSize, cut


class Numbers(RollingMap):
    """Each pixel is its row times 100 plus its column."""

    def __init__(self, size: tuple[int, int], tile: TileSize) -> None:
        super().__init__(size, tile, lambda numbers: self.counted.append(numbers))
        self.counted: list[int] = []
        self.advanced, self.released = [0], [0]

    def advance(self, stop: int) -> None:
        self.advanced.append(stop)

    def release(self, first: int) -> None:
        self.released.append(first)

    def compute(self, rows: slice, cols: slice) -> Tensor:
        assert rows == slice(self.released[-1], self.advanced[-1])
        return whole(self.size)[..., rows, cols].clone()


def whole(size: tuple[int, int]) -> Tensor:
    return (100 * torch.arange(size[0])[:, None] + torch.arange(size[1]))[None, None]


@pytest.mark.parametrize("tile", [TileSize(1, 3), TileSize(4, 8), TileSize(7, 100)])
def test_readers_see_the_map_whatever_its_tiles(tile: TileSize) -> None:
    size = (61, 13)
    numbers = Numbers(size, tile)
    near, far = numbers.source(), numbers.source()
    for start in range(0, 61, 5):
        for reader, around in ((near, 2), (far, 9)):
            rows = slice(max(start - around, 0), min(start + 5 + around, 61))
            reader.release(rows.start)
            reader.advance(rows.stop)
            assert torch.equal(reader.crop(rows, slice(3, 13)), whole(size)[..., rows, 3:])
    assert sum(numbers.counted) == 61 * 13
    assert max(b - a for a, b in itertools.pairwise(numbers.advanced)) <= tile.rows


def test_rows_are_forgotten_when_nobody_needs_them() -> None:
    numbers = Numbers((1000, 3), TileSize(8, 8))
    first, second = numbers.source(), numbers.source()
    for start in range(0, 1000, 8):
        first.release(start)
        second.release(max(start - 20, 0))
        first.advance(start + 8)
        assert numbers.buffer is not None
        assert len(numbers.buffer) <= 20 + 8
    with pytest.raises(ValueError, match="not in the part that is there"):
        second.crop(slice(100, 104), slice(0, 3))


def test_a_reader_that_waits_keeps_its_rows() -> None:
    numbers = Numbers((100, 3), TileSize(8, 8))
    slow, fast = numbers.source(), numbers.source()
    for start in range(0, 100, 10):
        fast.release(start)
        fast.advance(start + 10)
    assert torch.equal(slow.crop(slice(0, 100), slice(0, 3)), whole((100, 3)))


def test_cuts_are_even_and_end_at_multiples_of_four() -> None:
    assert list(cut(slice(0, 100), 40)) == [slice(0, 36), slice(36, 72), slice(72, 100)]
    assert list(cut(slice(10, 51), 41)) == [slice(10, 51)]
    assert list(cut(slice(3, 3), 8)) == []
    for size in range(1, 60):
        for longest in range(1, 20):
            parts = list(cut(slice(5, 5 + size), longest))
            assert [i for p in parts for i in range(p.start, p.stop)] == list(range(5, 5 + size))
            assert max(p.stop - p.start for p in parts) <= longest
            assert len(parts) == -(-size // longest)
