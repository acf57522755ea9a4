"""One file format for matches, for training and evaluation: ``.pairs``.

A file holds the matches of many image pairs. Each pair is a block of its own, compressed on its own; a table says where
the blocks are. The file is mapped into memory, so opening one of any size costs nothing, a pair reads its own bytes
only, and processes share them. All numbers are little-endian.

| part   | bytes | content                                                                                       |
|--------|-------|-----------------------------------------------------------------------------------------------|
| header | 24    | ``N3PAIRS`` and the version 1; number of pairs P (u64); where the table begins (u64)           |
| blocks |       | one zlib stream (RFC 1950, so with a checksum) for each pair                                   |
| table  | 24 P  | of each block: where it begins (u64), its bytes (u64), matches N (u32), flags (u32)            |

Flags: 1 a ratio, 2 mutual, 4 a pose. A block, decompressed:

| part   | type       | content                                                                                     |
|--------|------------|---------------------------------------------------------------------------------------------|
| names  | u16, UTF-8 | twice: a length in bytes, the name of an image                                              |
| pose   | 12 f64     | R row by row, then t; if there is one                                                       |
| x      | (4, N) f32 | x0, y0, x1, y1, calibrated, as four rows; all first bytes of the numbers, all second ...    |
| ratio  | (N) f32    | in the same order of bytes; if there is one                                                 |
| mutual | (N) u8     | 0 or 1; if there is one                                                                     |
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3net.errors import UserError
from n3net.io.files import opened, writing

SUFFIX = ".pairs"
MAGIC = b"N3PAIRS\x01"
HEADER = struct.Struct("<8sQQ")
ENTRY = np.dtype([("begin", "<u8"), ("bytes", "<u8"), ("matches", "<u4"), ("flags", "<u4")])
RATIO, MUTUAL, POSE = 1, 2, 4
LIMIT = 10_000_000  # matches of a pair, so that a damaged file cannot ask for all memory


@dataclass
class Pair:
    """Matches of two images: point n of image 0 with its candidate in image 1.

    Args:
        x0, x1: calibrated coordinates ``(u - c) / f``, (N, 2) float32.
        ratio: distance to the nearest descriptor over that to the second nearest (Lowe), (N,) float32; 1 says nothing.
        mutual: whether each is the other's nearest, (N,) bool.
        rotation, translation: the true pose, ``X1 = R X0 + t``, (3, 3) and, of length 1, (3,) float64. Which matches
            are correct follows from it, see :func:`n3net.correspondence.geometry.labels`.
        names: of the images.
    """

    x0: NDArray[np.float32]
    x1: NDArray[np.float32]
    ratio: NDArray[np.float32] | None = None
    mutual: NDArray[np.bool_] | None = None
    rotation: NDArray[np.float64] | None = None
    translation: NDArray[np.float64] | None = None
    names: tuple[str, str] = ("", "")

    def __len__(self) -> int:
        return len(self.x0)

    def __post_init__(self) -> None:
        self.x0, self.x1 = (np.ascontiguousarray(x, np.float32) for x in (self.x0, self.x1))
        n = len(self.x0)
        if self.ratio is not None:
            self.ratio = np.ascontiguousarray(self.ratio, np.float32)
        if self.mutual is not None:
            self.mutual = np.ascontiguousarray(self.mutual, np.bool_)
        for name, shape in (("x0", (n, 2)), ("x1", (n, 2)), ("ratio", (n,)), ("mutual", (n,))):
            value = getattr(self, name)
            if value is not None and value.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, got {value.shape}")
        if (self.rotation is None) != (self.translation is None):
            raise ValueError("rotation and translation: expected both or neither")
        if self.rotation is not None:
            self.rotation = np.asarray(self.rotation, np.float64).reshape(3, 3)
            self.translation = np.asarray(self.translation, np.float64).reshape(3)

    @property
    def pose(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The true rotation and translation, where they are known."""
        if self.rotation is None or self.translation is None:
            raise UserError(
                f"{' and '.join(self.names)}: this needs the true pose of the pair, which is not in the file"
            )
        return self.rotation, self.translation


def write_pairs(path: str | Path, pairs: Iterable[Pair], force: bool = False) -> int:
    """Write a file, whole or not at all; pairs may come from a generator. Returns how many there were."""
    entries: list[tuple[int, int, int, int]] = []
    with writing(Path(path), force) as file:
        file.write(HEADER.pack(MAGIC, 0, 0))
        for pair in pairs:
            block, flags = _pack(pair)
            entries.append((file.tell(), len(block), len(pair), flags))
            file.write(block)
        table = file.tell()
        file.write(np.array(entries, ENTRY).tobytes())
        file.seek(0)
        file.write(HEADER.pack(MAGIC, len(entries), table))
    return len(entries)


class PairFile(Sequence[Pair]):
    """The pairs of a file, mapped into memory; each is read when it is asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with opened(self.path) as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise UserError(f"{path}: an empty file, not one of matches") from None
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from error
        size = len(self._map)
        if size < HEADER.size or self._map[:7] != MAGIC[:7]:
            raise UserError(f"{path}: not a file of matches ({SUFFIX}), which 'n3net data' writes")
        magic, count, begin = HEADER.unpack_from(self._map)
        if magic != MAGIC:
            raise UserError(f"{path}: version {magic[7]} of the format, this n3net reads version {MAGIC[7]}")
        if begin < HEADER.size or count > size or begin + count * ENTRY.itemsize != size:
            raise UserError(f"{path}: truncated or damaged, its table is not where its header says; make it again")
        self.table: NDArray[np.void] = np.frombuffer(self._map, ENTRY, count, begin)
        if count and (
            int(self.table["matches"].max()) > LIMIT
            or bool((self.table["begin"] > begin).any())
            or bool((self.table["bytes"] > begin - self.table["begin"]).any())
        ):
            raise UserError(f"{path}: damaged, a block lies outside the file; make it again")

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Pair:  # type: ignore[override]
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.path}: there are {len(self)} pairs, got {index}")
        begin, size, matches, flags = (int(v) for v in self.table[index])
        longest = 2 * (2 + 65535) + 96 + 21 * matches
        try:
            stream = zlib.decompressobj()
            data = stream.decompress(self._map[begin : begin + size], longest + 1)
            if not stream.eof:
                raise ValueError("its block does not end where it should")
            return _unpack(data, matches, flags)
        except (zlib.error, ValueError, struct.error, UnicodeDecodeError) as error:
            raise UserError(f"{self.path}: pair {index} is damaged ({error}); make the file again") from error

    def __iter__(self) -> Iterator[Pair]:
        return (self[i] for i in range(len(self)))


def _pack(pair: Pair) -> tuple[bytes, int]:
    parts = []
    for name in pair.names:
        text = name.encode()[:65535]
        parts += [struct.pack("<H", len(text)), text]
    flags = 0
    if pair.rotation is not None and pair.translation is not None:
        flags |= POSE
        parts.append(np.concatenate([pair.rotation.ravel(), pair.translation]).astype("<f8").tobytes())
    parts.append(_split(np.hstack([pair.x0, pair.x1]).T))
    if pair.ratio is not None:
        flags |= RATIO
        parts.append(_split(pair.ratio))
    if pair.mutual is not None:
        flags |= MUTUAL
        parts.append(pair.mutual.astype(np.uint8).tobytes())
    return zlib.compress(b"".join(parts), 6), flags


def _unpack(data: bytes, n: int, flags: int) -> Pair:
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        if at + size > len(data):
            raise ValueError("its block is too short")
        at += size
        return data[at - size : at]

    first, second = (take(struct.unpack("<H", take(2))[0]).decode() for _ in range(2))
    pose = np.frombuffer(take(96), "<f8") if flags & POSE else None
    x = _join(take(16 * n)).reshape(4, n).T
    ratio = _join(take(4 * n)) if flags & RATIO else None
    mutual = np.frombuffer(take(n), np.uint8) != 0 if flags & MUTUAL else None
    if at != len(data):
        raise ValueError("its block is too long")
    rotation, translation = (None, None) if pose is None else (pose[:9].reshape(3, 3), pose[9:])
    return Pair(x[:, :2], x[:, 2:], ratio, mutual, rotation, translation, (first, second))


def _split(values: NDArray[np.float32]) -> bytes:
    """All first bytes of the numbers, then all second ...: alike ones stand together, which compresses better."""
    return np.ascontiguousarray(values, "<f4").reshape(-1, 1).view(np.uint8).T.tobytes()


def _join(data: bytes) -> NDArray[np.float32]:
    split = np.frombuffer(data, np.uint8).reshape(4, -1)
    return np.ascontiguousarray(split.T).view("<f4").ravel().astype(np.float32, copy=False)
