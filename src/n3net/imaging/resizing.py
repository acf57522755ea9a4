"""Bicubic resizing that equals MATLAB's ``imresize``, by which super-resolution is trained and measured.

Each side is resized by itself: an output pixel is a weighted sum of a few input pixels (Keys' cubic kernel with
a = -1/2), and when an image shrinks the kernel grows by the same factor, so that nothing aliases. Beyond its border an
image goes on with its outermost pixels, as in the MATLAB that the field's test images were made with; later releases
mirror it there. Pillow, OpenCV and PyTorch differ in the kernel, in antialiasing, at the border or in rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]
Size = tuple[int, int]

WIDTH = 4  # of the cubic kernel
WHOLE = (slice(None), slice(None))


def scaled_size(size: Size, factor: float) -> Size:
    """Height and width of an image that is resized by a factor: rounded up, as MATLAB does.

    >>> scaled_size((100, 33), 1 / 3)
    (34, 11)
    """
    check_factor(factor)
    # A factor such as 1 / 3 is not exact: what is a whole number but for rounding is one.
    height, width = (math.ceil(round(side * factor, 9)) for side in size)
    return height, width


def check_factor(factor: float) -> None:
    """Say what is wrong with a factor."""
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"factor: expected a number greater than 0, got {factor}")


def resize(image: Array, factor: float | None = None, size: Size | None = None, part: Any = WHOLE) -> Array:
    """Resize an image, bicubically, with antialiasing where it shrinks.

    Args:
        image: (H, W) or (H, W, C); integers are rounded and clipped after each side, as MATLAB does.
        factor: of both sides; the size is rounded up.
        size: height and width, instead of a factor.
        part: rows and columns of the result that are wanted, two slices that are not empty.

    Example:
        >>> resize(np.array([[10, 20, 30, 40]], np.uint8), 0.5)
        array([[15, 35]], dtype=uint8)
    """
    if image.ndim not in (2, 3) or 0 in image.shape:
        raise ValueError(f"image: expected shape (H, W) or (H, W, C), got {image.shape}")
    sides = _sides(image.shape[:2], factor, size, part)
    integer = image.dtype.kind in "iu"
    exact = np.float64 if integer else np.float32 if image.dtype == np.float16 else image.dtype.newbyteorder("=")
    pixels = torch.from_numpy(image[sides[0].window, sides[1].window].astype(exact))
    out = _apply(pixels, sides, (0, 1), np.iinfo(image.dtype) if integer else None)
    return out.numpy().astype(image.dtype)


def resize_tensor(x: Tensor, factor: float | None = None, size: Size | None = None, part: Any = WHOLE) -> Tensor:
    """The same for tensors of floats (..., H, W), differentiable."""
    if x.dim() < 2 or 0 in x.shape or not x.is_floating_point():
        raise ValueError(f"x: expected floats of shape (..., H, W), got {x.dtype} of {tuple(x.shape)}")
    sides = _sides((x.shape[-2], x.shape[-1]), factor, size, part)
    return _apply(x[..., sides[0].window, sides[1].window], sides, (x.dim() - 2, x.dim() - 1))


@dataclass(frozen=True)
class _Side:
    """How height or width is resized.

    Args:
        factor: that it is resized by.
        window: pixels of the input that are needed.
        indices: within the window, of the input pixels that output pixels are made of, (out, taps).
        weights: of these pixels, (out, taps).
    """

    factor: float
    window: slice
    indices: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]

    def apply(self, x: Tensor, dim: int) -> Tensor:
        shape = [-1 if d == dim else 1 for d in range(x.dim())]
        terms = (
            x.index_select(dim, torch.from_numpy(index).to(x.device))
            * torch.from_numpy(weight).to(x.device, x.dtype).reshape(shape)
            for index, weight in zip(self.indices.T, self.weights.T, strict=True)
        )
        return reduce(torch.add, terms)  # one by one: nothing is larger than the result


def _sides(before: tuple[int, ...], factor: float | None, size: Size | None, part: Any) -> tuple[_Side, _Side]:
    if (factor is None) == (size is None):
        raise ValueError("expected either a factor or a size")
    if size is None:
        assert factor is not None
        size, factors = scaled_size((before[0], before[1]), factor), (factor, factor)
    else:
        factors = size[0] / before[0], size[1] / before[1]
    return _side(before[0], size[0], factors[0], part[0]), _side(before[1], size[1], factors[1], part[1])


def _side(before: int, after: int, factor: float, part: slice) -> _Side:
    shrink = min(factor, 1.0)
    width = WIDTH / shrink
    centers = (np.arange(after)[part] + 0.5) / factor - 0.5  # of output pixels, in input pixels
    first = np.floor(centers - width / 2).astype(np.int64)
    indices = first[:, None] + np.arange(math.ceil(width) + 2)  # (out, taps)
    weights = _cubic(shrink * (centers[:, None] - indices))
    weights /= weights.sum(1, keepdims=True)
    used = (weights != 0).any(0)
    inside = np.clip(indices, 0, before - 1)[:, used]
    window = slice(int(inside.min()), int(inside.max()) + 1)
    return _Side(factor, window, inside - window.start, weights[:, used])


def _apply(x: Tensor, sides: tuple[_Side, _Side], dims: Size, limits: np.iinfo[Any] | None = None) -> Tensor:
    for i in sorted((0, 1), key=lambda i: sides[i].factor):  # the side that shrinks most comes first
        x = sides[i].apply(x, dims[i])
        if limits is not None:
            x = (x + 0.5).floor().clamp(limits.min, limits.max)
    return x


def _cubic(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Keys' kernel."""
    x = np.abs(x)
    inner = (1.5 * x - 2.5) * x * x + 1
    outer = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x <= 1, inner, np.where(x <= 2, outer, 0.0))
