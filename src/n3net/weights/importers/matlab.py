"""MATLAB's files: version 5 read here, version 7.3, which is HDF5, by h5py.

Structs become dictionaries, cells lists, text strings, and numbers arrays with MATLAB's axes. What else a file may
hold, such as handles of functions, is passed over as None. Nothing is allocated on a file's word: sizes are compared
with the bytes that are there, and what compressed parts unfold to is limited.
"""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from n3net.errors import UserError
from n3net.weights.importers.content import check_size

LARGEST = 2**29  # bytes of a file, and of all that is unfolded from it
DEEPEST, MOST = 32, 200_000  # cells within cells, and things in a file

HDF5 = b"\x89HDF\r\n\x1a\n"
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}  # as stored
TYPES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}  # as meant
MATRIX, COMPRESSED = 14, 15  # types of elements
CELL, STRUCT, TEXT = 1, 2, 4  # classes of matrices beside those of numbers
ENCODINGS = {2: "latin-1", 1: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}


class MalformedError(ValueError):
    """A file that is not what it says."""


def is_matlab(start: bytes) -> bool:
    """Whether a file that begins so is one of MATLAB."""
    return start.startswith((b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file", HDF5))


def read(path: Path) -> dict[str, Any]:
    """The variables of a file by name."""
    check_size(path, LARGEST)
    with path.open("rb") as file:
        start = file.read(520)
    try:
        if start.startswith(HDF5) or start[512:520] == HDF5:
            return _read_hdf5(path)
        return _Reader(path.read_bytes()).variables()
    except (MalformedError, struct.error, zlib.error, UnicodeError, RecursionError) as error:
        raise UserError(f"{path}: broken or truncated, not a file as MATLAB writes it ({error})") from error


class _Reader:
    """Version 5: elements of a type, a size and that many bytes, within each other."""

    def __init__(self, content: bytes) -> None:
        if len(content) < 128 or content[126:128] not in (b"IM", b"MI"):
            raise MalformedError("its header is incomplete")
        self.content = memoryview(content)[128:]
        self.order: Literal["<", ">"] = "<" if content[126:128] == b"IM" else ">"
        self.left, self.things = LARGEST, MOST

    def variables(self) -> dict[str, Any]:
        found, rest = {}, self.content
        while len(rest) >= 8:
            kind, data, rest = self._element(rest)
            if kind == COMPRESSED:
                kind, data, _ = self._element(self._unfolded(data))
            if kind == MATRIX:
                name, value = self._matrix(data, 0)
                found[name] = value
        found.pop("", None)  # what MATLAB keeps of functions
        return found

    def _unfolded(self, data: memoryview) -> memoryview:
        unfolding = zlib.decompressobj()
        out = unfolding.decompress(data, self.left)
        if unfolding.unconsumed_tail:
            raise MalformedError(f"it unfolds to more than {LARGEST} bytes")
        self.left -= len(out)
        return memoryview(out)

    def _element(self, data: memoryview) -> tuple[int, memoryview, memoryview]:
        """Type and bytes of the first element, and what follows it."""
        kind, size = struct.unpack_from(f"{self.order}II", data)
        if kind >> 16:  # a small one: type and size in four bytes, and four more of content
            size, kind = kind >> 16, kind & 0xFFFF
            if size > 4:
                raise MalformedError(f"an element of {size} bytes in four")
            return kind, data[4 : 4 + size], data[8:]
        if size > len(data) - 8:
            raise MalformedError(f"an element of {size} bytes where {len(data) - 8} are left")
        end = 8 + size if kind == COMPRESSED else 8 + -(-size // 8) * 8
        return kind, data[8 : 8 + size], data[end:]

    def _numbers(self, data: memoryview) -> tuple[Any, memoryview]:
        kind, content, rest = self._element(data)
        if kind not in NUMBERS:
            raise MalformedError(f"numbers of type {kind}")
        stored = np.dtype(NUMBERS[kind]).newbyteorder(self.order)
        if len(content) % stored.itemsize:
            raise MalformedError(f"numbers of {stored.itemsize} bytes in {len(content)}")
        return np.frombuffer(content, stored), rest

    def _matrix(self, data: memoryview, depth: int) -> tuple[str, Any]:
        """Name and value."""
        self.things -= 1
        if depth > DEEPEST or self.things < 0:
            raise MalformedError(f"cells within cells, over {DEEPEST} deep, or over {MOST} things")
        if not len(data):
            return "", np.empty((0, 0))
        flags, data = self._numbers(data)
        if not len(flags):
            raise MalformedError("a matrix without a class")
        kind = int(flags[0]) & 0xFF
        if kind not in (CELL, STRUCT, TEXT, *TYPES):
            return "", None  # handles of functions, objects, sparse matrices
        shape_, data = self._numbers(data)
        shape = tuple(int(n) for n in shape_)
        if not shape or min(shape) < 0:
            raise MalformedError(f"a matrix of shape {shape}")
        _, name, data = self._element(data)
        return bytes(name).decode("latin-1"), self._value(kind, shape, data, depth)

    def _value(self, kind: int, shape: tuple[int, ...], data: memoryview, depth: int) -> Any:
        count = math.prod(shape)
        if kind in TYPES:
            values, _ = self._numbers(data)
            if len(values) != count:
                raise MalformedError(f"a matrix of shape {shape} with {len(values)} numbers")
            return values.astype(TYPES[kind]).reshape(shape, order="F")
        if kind == TEXT:
            stored, content, _ = self._element(data)
            return bytes(content).decode(ENCODINGS.get(stored, "latin-1"), "replace").lstrip("\ufeff")
        if kind == CELL:
            return self._members(count, data, depth)[0]
        length, data = self._numbers(data)
        _, names, data = self._element(data)
        width = int(length[0]) if len(length) else 0
        if width < 1 or len(names) % width:
            raise MalformedError(f"names of {width} letters in {len(names)} bytes")
        fields = [bytes(names[i : i + width]).split(b"\0")[0].decode("latin-1") for i in range(0, len(names), width)]
        members, _ = self._members(count * len(fields), data, depth)
        step = max(len(fields), 1)
        structs = [dict(zip(fields, members[i : i + step], strict=True)) for i in range(0, len(members), step)]
        return structs[0] if len(structs) == 1 else structs

    def _members(self, count: int, data: memoryview, depth: int) -> tuple[list[Any], memoryview]:
        """So many matrices."""
        if count > len(data) // 8:
            raise MalformedError(f"{count} things in {len(data)} bytes")
        out = []
        for _ in range(count):
            kind, content, data = self._element(data)
            if kind != MATRIX:
                raise MalformedError(f"an element of type {kind} within a cell or a struct")
            out.append(self._matrix(content, depth + 1)[1])
        return out, data


def _read_hdf5(path: Path) -> dict[str, Any]:
    """Version 7.3."""
    try:
        import h5py
    except ImportError as error:
        raise UserError(f"{path}: a file of MATLAB 7.3, which needs h5py: pip install 'n3net[matlab]'") from error
    left, things = LARGEST, MOST

    def value(thing: Any, depth: int) -> Any:
        nonlocal left, things
        things -= 1
        if depth > DEEPEST or things < 0:
            raise MalformedError(f"cells within cells, over {DEEPEST} deep, or over {MOST} things")
        if isinstance(thing, h5py.Group):
            return {name: value(member(thing, name), depth + 1) for name in thing}
        if not isinstance(thing, h5py.Dataset):
            return None
        if thing.external or thing.is_virtual:
            raise MalformedError("it keeps its numbers in other files")
        references = h5py.check_ref_dtype(thing.dtype) is h5py.Reference
        if not references and thing.dtype.kind not in "fiub":
            return None
        chunk = math.prod(thing.chunks) if thing.chunks else 0
        needed = max(thing.size, chunk) * thing.dtype.itemsize
        if needed > left:
            raise MalformedError(f"{thing.name} needs {needed} bytes, with all else more than {LARGEST}")
        left -= needed
        array = thing[()]
        if references:
            return [value(file[r], depth + 1) if r else None for r in np.ravel(array)]
        if thing.attrs.get("MATLAB_empty", 0):
            return np.empty((0, 0))
        if thing.attrs.get("MATLAB_class") == b"char":
            return np.ravel(array).astype("<u2").tobytes().decode("utf-16-le", "replace")
        return np.transpose(array)  # HDF5 has the axes the other way round

    def member(group: Any, name: str) -> Any:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise MalformedError(f"{name} is a link to something else")
        return group[name]

    try:
        with h5py.File(path, "r") as file:
            return {name: value(member(file, name), 0) for name in file if not name.startswith("#")}
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise MalformedError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def layers(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The layers of a network of MatConvNet; none if it is something else."""
    net = content.get("net")
    found = net.get("layers") if isinstance(net, dict) else None
    if not isinstance(found, list) or not all(isinstance(layer, dict) and "type" in layer for layer in found):
        return []
    return found
