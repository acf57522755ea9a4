"""Luminance and chroma as super-resolution uses them: YCbCr of ITU-R BT.601, Y from 16 to 235 of 255 like MATLAB's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]

LUMA = (0.299, 0.587, 0.114)  # what red, green and blue count in the luminance of ITU-R 601, black 0 and white 1

# Rows are Y, Cb and Cr of red, green and blue, all in [0, 1].
_MATRIX = np.array([[65.481, 128.553, 24.966], [-37.797, -74.203, 112.0], [112.0, -93.786, -18.214]]) / 255
_OFFSET = np.array([16, 128, 128]) / 255
_INVERSE = np.linalg.inv(_MATRIX)


def rgb_to_ycbcr(image: Array) -> Array:
    """Floats (..., 3) in [0, 1]: red, green, blue -> Y, Cb, Cr.

    >>> (255 * rgb_to_ycbcr(np.array([[0.0, 0, 0], [1, 1, 1], [1, 0, 0]]))).round(1)
    array([[ 16. , 128. , 128. ], [235. , 128. , 128. ], [ 81.5,  90.2, 240. ]])
    """
    _check(image)
    return image @ _MATRIX.T.astype(image.dtype) + _OFFSET.astype(image.dtype)


def ycbcr_to_rgb(image: Array) -> Array:
    """Floats (..., 3) in [0, 1]: Y, Cb, Cr -> red, green, blue."""
    _check(image)
    return (image - _OFFSET.astype(image.dtype)) @ _INVERSE.T.astype(image.dtype)


def luminance(image: Array) -> Array:
    """Y of an image in [0, 1], (H, W) or (H, W, 3) -> (H, W). Gray is red, green and blue in equal parts."""
    _check(image)
    if image.ndim == 2:
        return image * image.dtype.type(_MATRIX[0].sum()) + image.dtype.type(_OFFSET[0])
    return image @ _MATRIX[0].astype(image.dtype) + image.dtype.type(_OFFSET[0])


def gray_levels(y: Array) -> Array:
    """The gray image (H, W) in [0, 1] whose luminance this is."""
    _check(y)
    return (y - y.dtype.type(_OFFSET[0])) / y.dtype.type(_MATRIX[0].sum())


def rgb_to_ycbcr_tensor(x: Tensor) -> Tensor:
    """The same for tensors (..., 3, H, W), differentiable."""
    return _mix(x, _MATRIX) + _column(x, _OFFSET)


def ycbcr_to_rgb_tensor(x: Tensor) -> Tensor:
    """The inverse of :func:`rgb_to_ycbcr_tensor`."""
    return _mix(x - _column(x, _OFFSET), _INVERSE)


def _check(image: Array) -> None:
    if image.dtype.kind != "f":
        raise ValueError(f"image: expected floats in [0, 1], got {image.dtype}; divide by 255 or 65535")


def _mix(x: Tensor, matrix: Array) -> Tensor:
    return torch.einsum("ij,...jhw->...ihw", torch.from_numpy(matrix).to(x), x)


def _column(x: Tensor, values: Array) -> Tensor:
    return torch.from_numpy(values).to(x)[:, None, None]
