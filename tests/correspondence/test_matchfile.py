"""Files of matches."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from n3net.correspondence.matchfile import ENTRY, HEADER, MAGIC, Pair, PairFile, write_pairs
from n3net.errors import UserError
from pairs import a_pair, same


def test_pairs_come_back_to_the_last_bit(tmp_path: Path) -> None:
    pairs = [
        a_pair(),
        a_pair(0, names=("", "")),
        a_pair(1, ratio=None),
        a_pair(7, mutual=None, rotation=None, translation=None),
        a_pair(3, x0=np.array([[np.nan, np.inf], [-0.0, 1e-40], [1, 2]], np.float32)),
    ]
    assert write_pairs(tmp_path / "x.pairs", (p for p in pairs)) == 5
    file = PairFile(tmp_path / "x.pairs")
    assert len(file) == len(list(file)) == 5
    for found, expected in zip(file, pairs, strict=True):
        same(found, expected)
    same(file[-1], pairs[-1])
    with pytest.raises(IndexError, match="there are 5 pairs, got 5"):
        file[5]


def test_a_file_of_no_pairs(tmp_path: Path) -> None:
    write_pairs(tmp_path / "x.pairs", [])
    assert len(PairFile(tmp_path / "x.pairs")) == 0


def test_coordinates_of_pixels_are_compressed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grid = (rng.integers(0, 1024, (2000, 4)) - 512).astype(np.float32) / 1024
    ratio, mutual = rng.random(2000), rng.random(2000) < 0.3
    write_pairs(tmp_path / "x.pairs", [a_pair(2000, x0=grid[:, :2], x1=grid[:, 2:], ratio=ratio, mutual=mutual)])
    assert (tmp_path / "x.pairs").stat().st_size < 0.7 * 21 * 2000


def test_a_damaged_pair_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "x.pairs"
    write_pairs(path, [a_pair(seed=i) for i in range(3)])
    begin = int(PairFile(path).table["begin"][1])
    data = bytearray(path.read_bytes())
    data[begin + 40] ^= 0xFF
    path.write_bytes(data)
    file = PairFile(path)  # reads the table, no pair
    same(file[0], a_pair(seed=0))
    same(file[2], a_pair(seed=2))
    with pytest.raises(UserError, match="pair 1 is damaged"):
        file[1]


def hostile(kind: str) -> bytes:
    """Files that nobody wrote in good faith."""
    block = zlib.compress(struct.pack("<HH", 0, 0) + bytes(16 * 5))
    bomb = zlib.compress(bytes(100_000_000))
    table = {
        "many matches": (24, len(block), 2**32 - 1, 0),
        "outside": (2**63, len(block), 5, 0),
        "too long": (24, 2**62, 5, 0),
        "another size": (24, len(block), 6, 0),
        "bomb": (24, len(bomb), 5, 0),
    }
    if kind in table:
        content = bomb if kind == "bomb" else block
        return HEADER.pack(MAGIC, 1, 24 + len(content)) + content + np.array([table[kind]], ENTRY).tobytes()
    return {
        "empty": b"",
        "short": b"N3P",
        "other": b"\x89PNG" + bytes(100),
        "newer": HEADER.pack(b"N3PAIRS\x02", 0, 24),
        "truncated": HEADER.pack(MAGIC, 1, 24) + block,
        "many pairs": HEADER.pack(MAGIC, 2**60, 24) + block,
    }[kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("empty", "an empty file"),
        ("short", "not a file of matches"),
        ("other", "not a file of matches"),
        ("newer", "version 2 of the format"),
        ("truncated", "truncated or damaged"),
        ("many pairs", "truncated or damaged"),
        ("many matches", "lies outside"),
        ("outside", "lies outside"),
        ("too long", "lies outside"),
        ("another size", "pair 0 is damaged"),
        ("bomb", "pair 0 is damaged"),
    ],
)
def test_hostile_files_are_refused(kind: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pairs"
    path.write_bytes(hostile(kind))
    with pytest.raises(UserError, match=words):
        PairFile(path)[0]


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    def failing() -> Iterator[Pair]:
        yield a_pair()
        raise RuntimeError("stop")

    path = tmp_path / "x.pairs"
    with pytest.raises(RuntimeError, match="stop"):
        write_pairs(path, failing())
    assert not list(tmp_path.iterdir())
    write_pairs(path, [a_pair()])
    with pytest.raises(UserError, match="exists"):
        write_pairs(path, [])
    assert len(PairFile(path)) == 1
    with pytest.raises(UserError, match=r"no\.pairs"):
        PairFile(tmp_path / "no.pairs")


def test_shapes_of_a_pair_are_checked() -> None:
    with pytest.raises(ValueError, match=r"x1: expected shape \(100, 2\), got \(99, 2\)"):
        a_pair(x1=np.zeros((99, 2)))
    with pytest.raises(ValueError, match="both or neither"):
        a_pair(translation=None)
    with pytest.raises(UserError, match=r"left\.jpg and .* true pose"):
        _ = a_pair(rotation=None, translation=None).pose
