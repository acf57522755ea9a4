"""Caffe's files of weights (.caffemodel), a message of protocol buffers of which only layers and blobs are read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3net.errors import UserError
from n3net.weights.importers.content import check_size

LARGEST = 2**30  # bytes of a file
MOST = 10_000  # layers
OLD_TYPES = {4: "Convolution", 39: "Deconvolution", 18: "ReLU"}  # numbers that files before 2015 have for these


class MalformedError(ValueError):
    """A file that is not what it says."""


@dataclass(frozen=True)
class Layer:
    """A layer and its arrays, weights first."""

    name: str
    type: str
    blobs: list[NDArray[np.float32]]


def read(path: Path) -> list[Layer]:
    """The layers of a file, in its order."""
    check_size(path, LARGEST)
    try:
        return list(_layers(memoryview(path.read_bytes())))
    except MalformedError as error:
        raise UserError(f"{path}: neither a file of PyTorch or MATLAB nor a whole .caffemodel ({error})") from error


def _layers(data: memoryview) -> Iterator[Layer]:
    count = 0
    for number, value in fields(data):
        if number not in (100, 2) or not isinstance(value, memoryview):  # layers of today, and of before 2015
            continue
        count += 1
        if count > MOST:
            raise MalformedError(f"more than {MOST} layers")
        keys = (1, 2, 7) if number == 100 else (4, 5, 6)
        name, kind, blobs = "", "", []
        for key, part in fields(value):
            if key == keys[0] and isinstance(part, memoryview):
                name = bytes(part).decode("utf-8", "replace")
            elif key == keys[1]:
                kind = (
                    bytes(part).decode("utf-8", "replace") if isinstance(part, memoryview) else OLD_TYPES.get(part, "")
                )
            elif key == keys[2] and isinstance(part, memoryview):
                blobs.append(_blob(part))
        yield Layer(name, kind, blobs)


def _blob(data: memoryview) -> NDArray[np.float32]:
    """An array: its shape, or four sizes in old files, and its numbers, packed or one by one."""
    shape: list[int] = []
    sizes: dict[int, int] = {}
    parts: list[bytes] = []
    for number, value in fields(data):
        if number == 7 and isinstance(value, memoryview):
            shape = _shape(value)
        elif number == 5:
            parts.append(bytes(value) if isinstance(value, memoryview) else int(value).to_bytes(4, "little"))
        elif number in (1, 2, 3, 4) and isinstance(value, int):
            sizes[number] = value
        elif number == 8:
            raise MalformedError("numbers of double precision, which no known file has")
    numbers = np.frombuffer(b"".join(parts), "<f4")
    shape = shape or [sizes.get(i, 1) for i in (1, 2, 3, 4)]
    if math.prod(shape) != len(numbers):
        raise MalformedError(f"an array of shape {tuple(shape)} with {len(numbers)} numbers")
    return numbers.reshape(shape)


def _shape(data: memoryview) -> list[int]:
    out: list[int] = []
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            out.append(value)
        elif number == 1:
            while len(value):
                size, value = _varint(value)
                out.append(size)
    if len(out) > 8:
        raise MalformedError(f"an array of {len(out)} axes")
    return out


def fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a message's fields: integers, or bytes of what has a length."""
    while len(data):
        tag, data = _varint(data)
        kind = tag & 7
        if kind == 0:
            value, data = _varint(data)
            yield tag >> 3, value
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            if len(data) < size:
                raise MalformedError("it ends within a number")
            yield tag >> 3, int.from_bytes(data[:size], "little")
            data = data[size:]
        elif kind == 2:
            size, data = _varint(data)
            if size > len(data):
                raise MalformedError(f"{size} bytes are announced and {len(data)} are left")
            yield tag >> 3, data[:size]
            data = data[size:]
        else:
            raise MalformedError(f"a field of type {kind}")


def _varint(data: memoryview) -> tuple[int, memoryview]:
    value = 0
    for i in range(min(len(data), 10)):
        value |= (data[i] & 0x7F) << (7 * i)
        if data[i] < 0x80:
            return value, data[i + 1 :]
    raise MalformedError("it ends within a number")
