"""Batch norm and the ReLU behind it by the compiled kernel, for training on a CPU: few passes over the pixels."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from n3net import kernel
from n3net.kernel.operators import operator

MULTIPLE = 8  # of channels: whole registers


class _Norm(ctypes.Structure):
    """Mirrors ``Norm`` in kernel.cpp."""

    _fields_ = [
        *((n, ctypes.c_int64) for n in ("rows", "channels", "relu", "batch", "threads")),
        ("eps", ctypes.c_double),
    ]


def why_not(x: Tensor, weight: Tensor) -> str | None:
    """Why the kernel cannot normalise this, or None."""
    if x.dim() != 4 or x.numel() == 0 or x.shape[1] % MULTIPLE:
        return f"it takes images (B, C, H, W), not empty, C a multiple of {MULTIPLE}, got {tuple(x.shape)}"
    if weight.dtype != x.dtype or weight.device != x.device:
        return f"images are {x.dtype} on {x.device}, weights {weight.dtype} on {weight.device}"
    return kernel.why_not(x)


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (that of all pixels, not an estimate for more) of each channel, (B, C, H, W) -> (C,), (C,)."""
    mean, var = _statistics(x.detach())
    return mean, var


def normalize(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float, *, relu: bool, batch: bool
) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias``, and its ReLU.

    Args:
        x: (B, C, H, W).
        weight, bias, mean, var: (C,).
        eps: is added to the variance.
        relu: whether there is one.
        batch: whether mean and variance are the :func:`statistics` of x, so that x has a gradient through them, too.
            They themselves have none.

    Returns:
        (B, C, H, W), channels_last, differentiable once.
    """
    result: Tensor = _normalize(x, weight, bias, mean, var, eps, relu, batch)
    return result


def _problem(x: Tensor, eps: float = 0.0, relu: bool = False, batch: bool = False) -> _Norm:
    rows = x.numel() // x.shape[1]
    return _Norm(rows, x.shape[1], relu, batch, torch.get_num_threads(), eps)


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@operator("n3net::norm_statistics", mapped="each")
def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    x = _last(x)
    mean, var = x.new_empty(x.shape[1]), x.new_empty(x.shape[1])
    kernel.run("norm_statistics", _problem(x), x, mean, var)
    return mean, var


@_statistics.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[1]), x.new_empty(x.shape[1])


@operator("n3net::norm_relu", mapped="each")
def _normalize(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float, relu: bool, batch: bool
) -> Tensor:
    x = _last(x)
    out = torch.empty_like(x)
    kernel.run("norm_apply", _problem(x, eps, relu), x, mean, var, weight, bias, out)
    return out


@_normalize.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float, relu: bool, batch: bool
) -> Tensor:
    return torch.empty_like(x, memory_format=torch.channels_last)


@operator("n3net::norm_relu_backward", mapped="each")
def _backward(
    g: Tensor, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float, relu: bool, batch: bool
) -> tuple[Tensor, Tensor, Tensor]:
    g, x = _last(g), _last(x)
    grads = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
    kernel.run("norm_backward", _problem(x, eps, relu, batch), g, x, mean, var, weight, bias, *grads)
    return grads


@_backward.register_fake
def _(
    g: Tensor, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float, relu: bool, batch: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x, memory_format=torch.channels_last), torch.empty_like(weight), torch.empty_like(bias)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.rest = inputs[5:]


def _grad(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    return *_backward(g, *ctx.saved_tensors, *ctx.rest), None, None, None, None, None


def _no_gradient(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError("n3net: norm_statistics has no gradient; norm_relu has that of x through them, too")


def _no_second_gradient(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "n3net: batch norm by the compiled kernel has no second derivative; train with winograd: false, or do without "
        "n3net.nn.convolutions.accelerate"
    )


_statistics.register_autograd(_no_gradient)
_normalize.register_autograd(_grad, setup_context=_setup)
_backward.register_autograd(_no_second_gradient)
