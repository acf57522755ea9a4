"""What may reach the kernel: for each of its functions, the arguments that it reads and writes.

Compiled code takes a pointer and believes that enough numbers of its type lie there. Here is the one place where that
is made sure of: :func:`n3net.kernel.run` gives nothing to a function that is not declared in ``ARGUMENTS``, and nothing
that does not fit its declaration. The numbers of the problem itself are checked once more in C++, by ``checks.inc``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor


def memory(tensor: Tensor, dtype: torch.dtype) -> int:
    """Where the numbers of a tensor lie, of which the kernel may use all that its shape and strides tell of.

    Raises:
        ValueError: it is of another type, not in the memory of this process, or is not all there.
    """
    if not isinstance(tensor, Tensor):
        raise ValueError(f"expected a tensor, got {type(tensor).__name__}")
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.dtype != dtype or tensor.is_neg():
        kind = f"{tensor.dtype} on {tensor.device}, {tensor.layout}{', negated' if tensor.is_neg() else ''}"
        raise ValueError(f"expected a tensor of {dtype} in the memory of the CPU, got {kind}")
    place, size = tensor.data_ptr(), tensor.element_size()
    if tensor.numel() == 0:
        return place
    if tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last):
        last = tensor.numel() - 1
    else:
        last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    there = tensor.untyped_storage().nbytes()
    if place == 0 or (tensor.storage_offset() + last + 1) * size > there:
        raise ValueError(f"expected memory for shape {tuple(tensor.shape)}, got {there} bytes, fewer than that")
    if place % size:
        raise ValueError(f"expected memory that begins at a multiple of {size} bytes, got address {place}")
    return place


@dataclass(slots=True)
class Numbers:
    """So many numbers in a row: a tensor of any shape, contiguous."""

    count: int
    dtype: torch.dtype | None = None  # by default that of the function

    def pointer(self, given: Any, dtype: torch.dtype) -> Any:
        place = memory(given, self.dtype or dtype)
        if given.numel() != self.count or not given.is_contiguous():
            layout = "" if given.is_contiguous() else f", with strides {given.stride()}"
            raise ValueError(f"expected {self.count} numbers in a row, got shape {tuple(given.shape)}{layout}")
        return ctypes.c_void_p(place)


@dataclass(slots=True)
class Images:
    """Images (B, C, H, W) in any layout that lie on a grid of ``room`` pixels, as ``native.Image`` describes them."""

    batch: int
    channels: int
    room: tuple[int, int]
    written: bool = False

    def pointer(self, given: Any, dtype: torch.dtype) -> Any:
        images: Tensor = given.tensor
        place = memory(images, dtype)
        shape, steps = tuple(images.shape), images.stride()
        if len(shape) != 4 or shape[:2] != (self.batch, self.channels):
            raise ValueError(f"expected shape ({self.batch}, {self.channels}, H, W), got {shape}")
        described = (given.data or 0, given.batch, given.channel, given.row, given.col, given.height, given.width)
        if described != (place, *steps, *shape[2:]):
            raise ValueError(f"expected a description of the tensor, got {described} for {(place, *steps, *shape[2:])}")
        low, high = (given.top, given.left), (given.top + shape[2], given.left + shape[3])
        if min(low) < 0 or high[0] > self.room[0] or high[1] > self.room[1]:
            raise ValueError(f"expected to lie on a grid of {self.room} pixels, got {shape[2:]} from {low} on")
        if self.written and any(n > 1 and step == 0 for n, step in zip(shape, steps, strict=True)):
            raise ValueError(f"expected a place of its own for each number, got strides {steps} for shape {shape}")
        return ctypes.byref(given)


@dataclass(slots=True)
class Pixels:
    """Images of this shape and with these steps, of which the kernel is told in the problem."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]

    def pointer(self, given: Any, dtype: torch.dtype) -> Any:
        place = memory(given, dtype)
        same = tuple(given.shape) == self.shape and all(
            n == 1 or step == told for n, step, told in zip(given.shape, given.stride(), self.steps, strict=True)
        )
        if not same:
            raise ValueError(
                f"expected shape {self.shape} with strides {self.steps}, got {tuple(given.shape)} with {given.stride()}"
            )
        return ctypes.c_void_p(place)


@dataclass(slots=True)
class Last:
    """Images in channels_last, so many pixels in all."""

    pixels: int
    channels: int

    def pointer(self, given: Any, dtype: torch.dtype) -> Any:
        place = memory(given, dtype)
        whole = given.dim() == 4 and given.is_contiguous(memory_format=torch.channels_last)
        if not whole or given.shape[1] != self.channels or given.numel() != self.pixels * self.channels:
            layout = f"got {tuple(given.shape)} with strides {given.stride()}"
            raise ValueError(f"expected {self.pixels} pixels of {self.channels} channels, channels last, {layout}")
        return ctypes.c_void_p(place)


@dataclass(slots=True)
class Packed:
    """Weights as the kernel orders them for this processor."""

    in_channels: int
    out_channels: int

    def pointer(self, given: Any, dtype: torch.dtype) -> Any:
        return Numbers(packed_size(self.in_channels, self.out_channels, dtype)).pointer(given, dtype)


class _Packing(ctypes.Structure):
    """Mirrors ``Packing`` in kernel.cpp."""

    _fields_ = [(name, ctypes.c_int64) for name in ("in_channels", "out_channels", "turned")]


@cache
def packed_size(in_channels: int, out_channels: int, dtype: torch.dtype) -> int:
    """How many numbers the packed weights of a convolution are."""
    from n3net.kernel import run

    count = torch.zeros(1, dtype=torch.int64)
    run("conv_packed_size", _Packing(in_channels, out_channels), count, dtype=dtype)
    return int(count)


@dataclass(slots=True)
class Layers:
    """The layers of a chain of convolutions, an array of structures with the ``tensors`` that they point to.

    These are ``x``, ``y``, ``add`` and ``dot`` of the problem, and ``packed`` and ``biases``, one of each layer.
    """

    problem: Any

    def pointer(self, given: Any, dtype: torch.dtype) -> Any:
        p, tensors = self.problem, given.tensors
        if not len(given) == p.layers == len(tensors["packed"]) == len(tensors["biases"]) > 0:
            raise ValueError(f"expected {p.layers} layers with their tensors, got {len(given)}")
        first, last = given[0], given[p.layers - 1]
        x = Pixels((p.batch, first.in_channels, p.height, p.width), (p.x_batch, 1, p.x_row, p.x_col))
        size = (p.out_height, p.out_width)
        y: Argument = Pixels((p.batch, last.out_channels, *size), (p.y_batch, 1, p.y_row, p.y_col))
        if p.dot:
            y = Numbers(p.batch * p.tile_rows * p.tile_cols)
        add = Pixels((p.batch, p.add_channels, *size), (p.add_batch, 1, p.add_row, p.add_col))
        dot = Numbers(9 * last.out_channels + 1)
        places: list[tuple[int | None, Tensor | None, Argument]] = [
            (p.x, tensors["x"], x),
            (p.y, tensors["y"], y),
            (p.add, tensors["add"], add),
            (p.dot, tensors["dot"], dot),
        ]
        for layer, packed, bias in zip(given, tensors["packed"], tensors["biases"], strict=True):
            places.append((layer.packed, packed, Packed(layer.in_channels, layer.out_channels)))
            places.append((layer.bias, bias, Numbers(layer.out_channels)))
        for place, tensor, argument in places:
            if place != (None if tensor is None else argument.pointer(tensor, dtype).value):
                raise ValueError(f"expected a pointer to the tensor that is given beside it, got {place}")
        return ctypes.byref(given)


Argument = Numbers | Images | Pixels | Last | Packed | Layers


def _windows(p: Any) -> tuple[int, int, tuple[int, int]]:
    """Queries of all images, slots of all their windows, and pixels of the grid."""
    queries = p.batch * (p.rows - p.patch + 1) * (p.cols - p.patch + 1)
    return queries, queries * p.window**2, (p.rows * p.cell, p.cols * p.cell)


def _distances(p: Any) -> list[Argument]:
    _, slots, room = _windows(p)
    return [Images(p.batch, p.embedding, room), Numbers(slots)]


def _distances_backward(p: Any) -> list[Argument]:
    return [*_distances(p), Images(p.batch, p.embedding, _windows(p)[2], written=True)]


def _aggregate(p: Any) -> list[Argument]:
    queries, slots, room = _windows(p)
    out = Images(p.batch, p.k * p.channels, room, written=True)
    return [Numbers(slots), Numbers(queries), Images(p.batch, p.channels, room), out]


def _aggregate_backward(p: Any) -> list[Argument]:
    queries, slots, room = _windows(p)
    g, values, g_values = (
        Images(p.batch, p.k * p.channels, room),
        Images(p.batch, p.channels, room),
        Images(p.batch, p.channels, room, written=True),
    )
    return [g, Numbers(slots), Numbers(queries), values, Numbers(slots), Numbers(queries), g_values]


def _neighbors(p: Any) -> list[Argument]:
    _, _, room = _windows(p)
    values, out = Images(p.batch, p.channels, room), Images(p.batch, p.k * p.channels, room, written=True)
    of_queries = Images(p.batch, 1, (p.rows - p.patch + 1, p.cols - p.patch + 1))
    return [Images(p.batch, p.embedding, room), of_queries, of_queries, values, out]


def _select(p: Any) -> list[Argument]:
    return [Numbers(p.rows * p.slots), Numbers(p.rows), Numbers(p.rows * p.k * p.slots)]


def _select_backward(p: Any) -> list[Argument]:
    z, c, w = _select(p)
    return [w, z, c, z, c]


def _choose(p: Any) -> list[Argument]:
    queries, items = p.batch * p.queries, p.batch * p.items
    index = Numbers(queries * p.slots, torch.int64)
    compared = [Numbers(queries * p.embedding), Numbers(items * p.embedding)]
    return [
        *compared,
        index,
        Numbers(queries),
        Numbers(queries),
        Numbers(items * p.channels),
        Numbers(queries * p.k * p.channels),
    ]


def _choose_backward(p: Any) -> list[Argument]:
    q, e, index, s, c, v, out = _choose(p)
    return [out, q, e, index, s, c, v, q, e, s, c, v]


def _weight_gradient(p: Any) -> list[Argument]:
    size = (p.height, p.width)
    x = Pixels((p.batch, p.in_channels, *size), (p.x_batch, 1, p.x_row, p.x_col))
    g = Pixels((p.batch, p.out_channels, *size), (p.g_batch, 1, p.g_row, p.g_col))
    return [x, g, Numbers(9 * p.in_channels * p.out_channels)]


def _norm(p: Any, pixels: int, channels: int) -> list[Argument]:
    """So many arguments with all pixels, then so many with one number for each channel."""
    return [*([Last(p.rows, p.channels)] * pixels), *([Numbers(p.channels)] * channels)]


def _references(p: Any) -> int:
    """Patches on the grid, each with its group."""
    rows, cols = (-(-(size - p.patch) // p.step) + 1 for size in (p.height, p.width))
    return int(rows * cols)


def _similar(p: Any) -> list[Argument]:
    members = _references(p) * p.count
    return [Numbers(p.channels * p.height * p.width), Numbers(members, torch.int32), Numbers(members)]


def _collaborate(p: Any) -> list[Argument]:
    pixels, groups, matrix = p.channels * p.height * p.width, _references(p), Numbers(p.patch**2)
    index, levels = Numbers(groups * p.count, torch.int32), Numbers(p.channels * groups)
    return [Numbers(pixels), Numbers(pixels), index, levels, matrix, matrix, matrix, Numbers(pixels)]


# Name of a function -> from its problem to its further arguments.
ARGUMENTS: dict[str, Callable[[Any], Sequence[Argument]]] = {
    "distances": _distances,
    "distances_backward": _distances_backward,
    "aggregate": _aggregate,
    "aggregate_backward": _aggregate_backward,
    "neighbors": _neighbors,
    "select": _select,
    "select_backward": _select_backward,
    "choose": _choose,
    "choose_backward": _choose_backward,
    "conv_packed_size": lambda p: [Numbers(1, torch.int64)],
    "conv_pack": lambda p: [Numbers(9 * p.in_channels * p.out_channels), Packed(p.in_channels, p.out_channels)],
    "conv_chain": lambda p: [Layers(p)],
    "conv_weight_gradient": _weight_gradient,
    "similar": _similar,
    "collaborate": _collaborate,
    "norm_statistics": lambda p: _norm(p, 1, 2),
    "norm_apply": lambda p: [*_norm(p, 1, 4), *_norm(p, 1, 0)],
    "norm_backward": lambda p: [*_norm(p, 2, 4), *_norm(p, 1, 2)],
}


def pointers(name: str, problem: ctypes.Structure, given: Sequence[Any], dtype: torch.dtype) -> list[Any]:
    """The arguments as ctypes takes them.

    Raises:
        ValueError: one of them does not fit.
    """
    if name not in ARGUMENTS:
        raise ValueError(f"n3net: kernel function {name!r} is not declared in kernel/door.py")
    arguments = ARGUMENTS[name](problem)
    if len(arguments) != len(given):
        raise ValueError(f"n3net: {name} of the kernel takes {len(arguments)} arguments, got {len(given)}")
    places = []
    for i, (argument, value) in enumerate(zip(arguments, given, strict=True)):
        try:
            places.append(argument.pointer(value, dtype))
        except ValueError as error:
            raise ValueError(f"n3net: argument {i + 1} of {name} of the kernel: {error}") from None
    return places
