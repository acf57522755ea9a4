"""Convolutions of 3 x 3 on a CPU by the compiled kernel: Winograd's algorithm, forward and backward.

It multiplies a quarter as often as the sum that defines a convolution, and rounds a little more: in float32 the results
agree to about 1e-5 of the largest. Reference: Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR
2016.

Two operators are enough, because each is the other's derivative:

    y = conv(x, w)                 dx = conv(dy, w, turned)      dw = weights(x, dy)
    x = conv(y, w, turned)         dy = conv(dx, w)              dw = weights(dx, y)
    w = weights(x, y)              dx = conv(y, dw, turned)      dy = conv(x, dw)

Letters: B batch, C channels in, K channels out, H and W the image. Images are channels last.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from n3net import kernel
from n3net.kernel.door import packed_size
from n3net.kernel.operators import operator

CACHE = 8 * 2**20  # bytes of a last-level cache that a chain of layers may fill


def _fields(*names: str) -> list[tuple[str, Any]]:
    """Names of 64-bit integers, and of pointers behind a star."""
    return [(n.lstrip("*"), ctypes.c_void_p if n.startswith("*") else ctypes.c_int64) for n in names]


class _Packing(ctypes.Structure):
    _fields_ = _fields("in_channels", "out_channels", "turned")


class _Layer(ctypes.Structure):
    _fields_ = _fields("*packed", "*bias", "in_channels", "out_channels", "relu")


class _Chain(ctypes.Structure):
    _fields_ = _fields(
        *("layers", "batch", "height", "width"),
        *("*x", "x_batch", "x_row", "x_col"),
        *("*y", "out_height", "out_width", "y_batch", "y_row", "y_col"),
        *("*add", "add_channels", "add_batch", "add_row", "add_col"),
        "*dot",
        *("tile_rows", "tile_cols", "step", "top", "left"),
        "threads",
    )


class _WeightGradient(ctypes.Structure):
    _fields_ = _fields(
        *("batch", "height", "width", "in_channels", "out_channels"),
        *("x_batch", "x_row", "x_col", "g_batch", "g_row", "g_col"),
        "threads",
    )


@dataclass(frozen=True)
class Layer:
    """A convolution that is ready to run: packed weights, bias (K,) or None, whether a ReLU follows."""

    packed: Tensor
    bias: Tensor | None
    in_channels: int
    out_channels: int
    relu: bool = False


@dataclass(frozen=True)
class Squares:
    """Squares of 3 x 3 pixels, ``rows`` x ``cols`` of them every ``step`` pixels, the first at (top, left)."""

    rows: int
    cols: int
    step: int
    top: int
    left: int


def conv3x3(images: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.conv2d(images, weight, bias, padding=1)`` by the compiled kernel, in channels_last.

    Args:
        images: (B, C, H, W).
        weight: (K, C, 3, 3).
        bias: (K,).

    Returns:
        (B, K, H, W), differentiable as often as one likes.
    """
    problem = why_not(images, weight)
    if problem:
        raise ValueError(f"conv3x3 cannot run: {problem}; use torch.nn.functional.conv2d")
    result: Tensor = _convolution(images, weight, bias, False)
    return result


def why_not(images: Tensor, weight: Tensor) -> str | None:
    """Why :func:`conv3x3` cannot compute with these, or None."""
    if images.dim() != 4 or images.numel() == 0 or weight.shape[1:] != (images.shape[1], 3, 3):
        shapes = f"got {tuple(images.shape)} and {tuple(weight.shape)}"
        return f"it takes images (B, C, H, W), not empty, and weights (K, C, 3, 3), {shapes}"
    if weight.dtype != images.dtype or weight.device != images.device:
        return f"images are {images.dtype} on {images.device}, weights {weight.dtype} on {weight.device}"
    return kernel.why_not(images)


def pack(weight: Tensor, turned: bool = False) -> Tensor:
    """Weights (K, C, 3, 3) transformed and in the order in which the kernel reads them, for this processor."""
    weight = weight.contiguous()
    k, c = weight.shape[:2]
    problem = _Packing(in_channels=k if turned else c, out_channels=c if turned else k, turned=turned)
    packed = weight.new_empty(packed_size(problem.in_channels, problem.out_channels, weight.dtype))
    kernel.run("conv_pack", problem, weight, packed)
    return packed


def convolve(images: Tensor, layers: Sequence[Layer], add: Tensor | None = None) -> Tensor:
    """Convolutions that follow on each other, ``relu(conv(x) + bias)`` each, in one sweep and without gradients.

    What lies between them exists for a few rows at a time.

    Args:
        images: (B, C, H, W).
        layers: one or more.
        add: (B, A, H, W), is added to the first A <= K channels of the result.

    Returns:
        (B, K, H, W), channels_last.
    """
    at_once = _layers_at_once(images, layers)
    for first in range(0, len(layers), at_once):
        part = layers[first : first + at_once]
        last = first + at_once >= len(layers)
        images = _readable(images)
        out = _empty(images, part[-1].out_channels, *images.shape[2:])
        (_, _, height, width), (batch, _, row, col) = out.shape, out.stride()
        place = {"out_height": height, "out_width": width, "y_batch": batch, "y_row": row, "y_col": col}
        _run(images, part, out, add if last else None, None, place)
        images = out
    return images


def _layers_at_once(images: Tensor, layers: Sequence[Layer]) -> int:
    """How many layers keep what lies between them in a cache: 16 rows each, see ``chain`` in kernel/convolution.inc."""
    widest = max(layer.out_channels for layer in layers)
    rows = 16 * images.shape[0] * images.shape[3] * widest * images.element_size()
    return max(2, 1 + CACHE // rows)


def at_squares(
    images: Tensor, layers: Sequence[Layer], squares: Squares, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """What a further convolution to one channel gives in the middle of some squares, without gradients.

    Args:
        images: (B, C, H, W).
        layers: as in :func:`convolve`; the last is computed on the squares only.
        squares: that lie inside the image.
        weight: (1, K, 3, 3) of the further convolution.
        bias: (1,) or None.

    Returns:
        (B, rows, cols).
    """
    places = [squares.rows, squares.cols, squares.step, squares.top, squares.left]
    result: Tensor = _squares(images, *_parts(layers), places, weight, bias)
    return result


def _run(
    images: Tensor,
    layers: Sequence[Layer],
    out: Tensor,
    add: Tensor | None,
    dot: Tensor | None,
    sizes: dict[str, int],
) -> None:
    b, _, h, w = images.shape
    chain: Any = (_Layer * len(layers))()
    for place, layer in zip(chain, layers, strict=True):
        bias = None if layer.bias is None else layer.bias.data_ptr()
        place.packed, place.bias = layer.packed.data_ptr(), bias
        place.in_channels, place.out_channels, place.relu = layer.in_channels, layer.out_channels, layer.relu
    problem = _Chain(layers=len(layers), batch=b, height=h, width=w, x=images.data_ptr(), y=out.data_ptr())
    problem.x_batch, _, problem.x_row, problem.x_col = images.stride()
    problem.tile_rows, problem.tile_cols, problem.step = -(-h // 4), -(-w // 4), 4
    problem.threads = torch.get_num_threads()
    for name, value in sizes.items():
        setattr(problem, name, value)
    if dot is not None:
        problem.dot = dot.data_ptr()
    if add is not None:
        add = _readable(add)
        problem.add, problem.add_channels = add.data_ptr(), add.shape[1]
        problem.add_batch, _, problem.add_row, problem.add_col = add.stride()
    packed, biases = [layer.packed for layer in layers], [layer.bias for layer in layers]
    chain.tensors = {"x": images, "y": out, "add": add, "dot": dot, "packed": packed, "biases": biases}
    kernel.run("conv_chain", problem, chain, dtype=images.dtype)


def _readable(images: Tensor) -> Tensor:
    """As the kernel reads them: the channels of a pixel beside each other."""
    return (
        images
        if images.stride(1) == 1 or images.shape[1] == 1
        else images.contiguous(memory_format=torch.channels_last)
    )


def _empty(like: Tensor, channels: int, height: int, width: int) -> Tensor:
    shape = (like.shape[0], channels, height, width)
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


@operator("n3net::conv3x3", mapped="each")
def _convolution(images: Tensor, weight: Tensor, bias: Tensor | None, turned: bool) -> Tensor:
    k, c = weight.shape[:2]
    bias = None if bias is None else bias.contiguous()
    return convolve(images, [Layer(pack(weight, turned), bias, *((k, c) if turned else (c, k)))])


@_convolution.register_fake
def _(images: Tensor, weight: Tensor, bias: Tensor | None, turned: bool) -> Tensor:
    return _empty(images, weight.shape[1 if turned else 0], images.shape[2], images.shape[3])


@operator("n3net::conv3x3_weights", mapped="each")
def _weights(images: Tensor, g: Tensor) -> Tensor:
    images, g = _readable(images), _readable(g)
    out = images.new_empty(g.shape[1], images.shape[1], 3, 3)
    b, c, h, w = images.shape
    problem = _WeightGradient(b, h, w, c, g.shape[1], threads=torch.get_num_threads())
    problem.x_batch, _, problem.x_row, problem.x_col = images.stride()
    problem.g_batch, _, problem.g_row, problem.g_col = g.stride()
    kernel.run("conv_weight_gradient", problem, images, g, out)
    return out


@_weights.register_fake
def _(images: Tensor, g: Tensor) -> Tensor:
    return images.new_empty(g.shape[1], images.shape[1], 3, 3)


def _convolution_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    images, weight, bias, ctx.turned = inputs
    ctx.save_for_backward(images, weight)
    ctx.biased = bias is not None


def _convolution_grad(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    images, weight = ctx.saved_tensors
    need = ctx.needs_input_grad
    g_images = _convolution(g, weight, None, not ctx.turned) if need[0] else None
    g_weight = None
    if need[1]:
        g_weight = _weights(g, images) if ctx.turned else _weights(images, g)
    return g_images, g_weight, g.sum((0, 2, 3)) if ctx.biased and need[2] else None, None


def _weights_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _weights_grad(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    images, other = ctx.saved_tensors
    need = ctx.needs_input_grad
    return (
        _convolution(other, g, None, True) if need[0] else None,
        _convolution(images, g, None, False) if need[1] else None,
    )


def fused(images: Tensor, layers: Sequence[Layer], add: Tensor | None = None) -> Tensor:
    """:func:`convolve` as an operator."""
    result: Tensor = _chain(images, *_parts(layers), add)
    return result


def _parts(layers: Sequence[Layer]) -> tuple[list[Tensor], list[Tensor | None], list[int], list[bool]]:
    """Layers as operators take them: packed weights, biases, numbers of channels and whether there is a ReLU."""
    sizes = [layers[0].in_channels, *(layer.out_channels for layer in layers)]
    return [layer.packed for layer in layers], [layer.bias for layer in layers], sizes, [layer.relu for layer in layers]


def _layers(packed: list[Tensor], biases: list[Tensor | None], channels: list[int], relu: list[bool]) -> list[Layer]:
    return [Layer(*layer) for layer in zip(packed, biases, channels[:-1], channels[1:], relu, strict=True)]


@operator("n3net::conv3x3_chain", mapped="each")
def _chain(
    images: Tensor,
    packed: list[Tensor],
    biases: list[Tensor | None],
    channels: list[int],
    relu: list[bool],
    add: Tensor | None,
) -> Tensor:
    return convolve(images, _layers(packed, biases, channels, relu), add)


@_chain.register_fake
def _(
    images: Tensor,
    packed: list[Tensor],
    biases: list[Tensor | None],
    channels: list[int],
    relu: list[bool],
    add: Tensor | None,
) -> Tensor:
    return _empty(images, channels[-1], images.shape[2], images.shape[3])


@operator("n3net::conv3x3_squares", mapped="each")
def _squares(
    images: Tensor,
    packed: list[Tensor],
    biases: list[Tensor | None],
    channels: list[int],
    relu: list[bool],
    places: list[int],
    weight: Tensor,
    bias: Tensor | None,
) -> Tensor:
    images = _readable(images)
    rows, cols, step, top, left = places
    out = images.new_empty(images.shape[0], rows, cols)
    bias = weight.new_zeros(1) if bias is None else bias
    dot = torch.cat([weight[0].permute(1, 2, 0).flatten(), bias])  # (9 K + 1)
    sizes = dict(zip(("y_batch", "y_row", "y_col"), out.stride(), strict=True))
    sizes |= {"tile_rows": rows, "tile_cols": cols, "step": step, "top": top, "left": left}
    _run(images, _layers(packed, biases, channels, relu), out, None, dot, sizes)
    return out


@_squares.register_fake
def _(
    images: Tensor,
    packed: list[Tensor],
    biases: list[Tensor | None],
    channels: list[int],
    relu: list[bool],
    places: list[int],
    weight: Tensor,
    bias: Tensor | None,
) -> Tensor:
    return images.new_empty(images.shape[0], *places[:2])


def _no_gradient(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "n3net: convolutions that were prepared for inference have no gradient; use the network as it was before "
        "n3net.models.preparing.prepare"
    )


_convolution.register_autograd(_convolution_grad, setup_context=_convolution_setup)
_weights.register_autograd(_weights_grad, setup_context=_weights_setup)
_chain.register_autograd(_no_gradient)
_squares.register_autograd(_no_gradient)
