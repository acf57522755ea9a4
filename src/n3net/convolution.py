"""Convolutions of 3 x 3 for training on a CPU: Winograd's algorithm, forward and backward.

It multiplies a quarter as often as the sum that defines a convolution, and rounds more: in float32 the results agree to
about 1e-5 of the largest. Reference: Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.

Letters: B batch, C channels in, K channels out, H and W the image, T = ceil(H/4) ceil(W/4) tiles of 4 x 4 pixels,
36 = 6 x 6 numbers of a transformed tile.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from n3net import kernel

LEAST_CHANNELS = 32  # narrower layers are left to PyTorch

_ROWS = [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]
_G = torch.tensor(_ROWS, dtype=torch.float64, device="cpu") / 24
_GG = torch.kron(_G, _G)  # (36, 9)


class _Tiles(ctypes.Structure):
    """Mirrors ``Tiles`` in kernel.cpp."""

    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "height", "width", "channels", "threads")]


def conv3x3(images: Tensor, weight: Tensor) -> Tensor:
    """``F.conv2d(images, weight, padding=1)`` by the compiled kernel, in channels_last.

    Args:
        images: (B, C, H, W).
        weight: (K, C, 3, 3).

    Returns:
        (B, K, H, W), differentiable once.
    """
    problem = why_not(images, weight)
    if problem:
        raise ValueError(f"conv3x3 cannot run: {problem}; use torch.nn.functional.conv2d")
    result: Tensor = _Convolution.apply(images, weight)
    return result


def why_not(images: Tensor, weight: Tensor) -> str | None:
    """Why :func:`conv3x3` cannot compute with these, or None."""
    if images.dim() != 4 or images.numel() == 0 or weight.shape[1:] != (images.shape[1], 3, 3):
        shapes = f"got {tuple(images.shape)} and {tuple(weight.shape)}"
        return f"it takes images (B, C, H, W), not empty, and weights (K, C, 3, 3), {shapes}"
    if weight.dtype != images.dtype or weight.device != images.device:
        return f"images are {images.dtype} on {images.device}, weights {weight.dtype} on {weight.device}"
    return kernel.why_not(images)


class Conv3x3(nn.Conv2d):
    """An ``nn.Conv2d`` of 3 x 3 that computes through :func:`conv3x3` while it learns, where the kernel can."""

    def forward(self, input: Tensor) -> Tensor:
        plain = not torch.is_grad_enabled() or torch.is_autocast_enabled(input.device.type)
        if plain or why_not(input, self.weight):
            return super().forward(input)
        result = conv3x3(input, self.weight)
        return result if self.bias is None else result + self.bias.view(-1, 1, 1)


def accelerate(model: nn.Module) -> int:
    """Let the convolutions of a model that :func:`conv3x3` suits use it; how many there are."""
    count = 0
    for module in model.modules():
        if type(module) is nn.Conv2d and _suits(module):
            module.__class__ = Conv3x3
            count += 1
    return count


def _suits(layer: nn.Conv2d) -> bool:
    shape = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, layer.padding_mode)
    plain = ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros")
    return shape == plain and min(layer.in_channels, layer.out_channels) >= LEAST_CHANNELS


class _Convolution(torch.autograd.Function):
    """Image by image: what lies between the transforms is larger than an image, and should stay in cache."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(images, weight)
        return _convolve(images, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        images, weight = ctx.saved_tensors
        g = g.contiguous(memory_format=torch.channels_last)
        g_images = g_weight = None
        if ctx.needs_input_grad[0]:
            g_images = _convolve(g, weight.flip(2, 3).transpose(0, 1))
        if ctx.needs_input_grad[1]:
            k, c = weight.shape[:2]
            products = g.new_zeros(36, k, c)
            for image, g_image in zip(images.split(1), g.split(1), strict=True):
                products.baddbmm_(_to_tiles("gradient", g_image).transpose(1, 2), _to_tiles("input", image))
            g_weight = _GG.to(g.dtype).T @ products.view(36, k * c)  # (9, K C)
            g_weight = g_weight.view(3, 3, k, c).permute(2, 3, 0, 1)  # (K, C, 3, 3)
        return g_images, g_weight


def _convolve(images: Tensor, weight: Tensor) -> Tensor:
    """(B, C, H, W), (K, C, 3, 3) -> (B, K, H, W)."""
    k, c = weight.shape[:2]
    weights = _GG.to(weight.dtype) @ weight.permute(2, 3, 1, 0).reshape(9, c * k)  # (36, C K)
    weights = weights.view(36, c, k)
    b, _, h, w = images.shape
    out = torch.empty(b, k, h, w, dtype=images.dtype, device=images.device, memory_format=torch.channels_last)
    for image, result in zip(images.split(1), out.split(1), strict=True):
        products = _to_tiles("input", image) @ weights  # (36, T, K)
        kernel.run("winograd_output", _problem(result), products, result)
    return out


def _to_tiles(transform: str, image: Tensor) -> Tensor:
    """(1, C, H, W) -> (36, T, C), by the transform of the ``input`` or of the ``gradient`` of the output."""
    _, c, h, w = image.shape
    tiles = image.new_empty(36, -(-h // 4) * -(-w // 4), c)
    kernel.run(f"winograd_{transform}", _problem(image), image, tiles)
    return tiles


def _problem(image: Tensor) -> _Tiles:
    _, c, h, w = image.shape
    return _Tiles(1, h, w, c, torch.get_num_threads())
