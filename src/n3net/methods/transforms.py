"""Transforms of patches and groups, as matrices that are multiplied from the left."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Biorthogonal spline wavelets 1.5 (Cohen, Daubechies and Feauveau 1992): differences of pairs, and means of pairs that
# are corrected by the differences of those beside them.
_LOW = (3 / 128, -3 / 128, -22 / 128, 22 / 128, 1.0, 1.0, 22 / 128, -22 / 128, -3 / 128, 3 / 128)
_HIGH = (-1.0, 1.0)


def dct(size: int) -> Tensor:
    """The orthonormal cosine transform, (size, size)."""
    n = torch.arange(size, dtype=torch.float64)
    matrix = torch.cos(math.pi / size * (n + 0.5) * n[:, None]) * math.sqrt(2 / size)
    matrix[0] /= math.sqrt(2)
    return matrix


def haar(size: int) -> Tensor:
    """The orthonormal Haar transform, first row the mean: (size, size), size a power of 2."""
    if size == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    half = haar(size // 2)
    means = torch.kron(half, torch.tensor([[1.0, 1.0]], dtype=torch.float64))
    differences = torch.kron(torch.eye(size // 2, dtype=torch.float64), torch.tensor([[1.0, -1.0]]))
    return torch.cat([means, differences]) / math.sqrt(2)


def spline_wavelet(size: int) -> Tensor:
    """Biorthogonal wavelets 1.5 down to one mean, periodic, rows of unit length: (size, size), size a power of 2."""
    matrix = torch.eye(size, dtype=torch.float64)
    length = size
    while length > 1:
        step = torch.eye(size, dtype=torch.float64)
        step[:length, :length] = _level(length)
        matrix = step @ matrix
        length //= 2
    return matrix / matrix.norm(dim=1, keepdim=True)


def _level(length: int) -> Tensor:
    """One level: means of pairs in the first half of the rows, differences in the second."""
    rows = torch.zeros(length, length, dtype=torch.float64)
    for i in range(length // 2):
        for taps, row in ((_LOW, i), (_HIGH, length // 2 + i)):
            first = 2 * i + 1 - len(taps) // 2
            for k, tap in enumerate(taps):
                rows[row, (first + k) % length] += tap
    return rows / math.sqrt(2)


def kaiser(size: int, beta: float) -> Tensor:
    """A window that is largest in the middle, (size, size)."""
    side = torch.kaiser_window(size, periodic=False, beta=beta, dtype=torch.float64)
    return side[:, None] * side
