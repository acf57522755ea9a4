"""The noise of linear sensor values y in [0, 1]: its variance is a·y + b (Foi et al. 2008).

Photons arrive one by one, which gives Poisson noise of variance a·y where a is the value of one electron; reading the
sensor adds b. Where ``a`` and ``b`` are tensors they have one entry for each item of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

Level = float | Tensor


@dataclass(frozen=True)
class NoiseLevel:
    """Variance of the noise as a function of the clean value, a·y + b, for y in [0, 1]."""

    a: float
    b: float

    def __str__(self) -> str:
        return f"a {self.a:.2e}, b {self.b:.2e}"


def variance(y: Tensor, a: Level, b: Level) -> Tensor:
    """Of the noise of clean values (B, ...)."""
    return _like(a, y) * y + _like(b, y)


def heteroscedastic(y: Tensor, a: Level, b: Level, generator: torch.Generator | None = None) -> Tensor:
    """Clean values with Gaussian noise whose variance follows them; not clipped.

    Example:
        >>> y = torch.full((1, 100_000), 0.5)
        >>> round(float(heteroscedastic(y, 0.02, 0.001, torch.Generator().manual_seed(0)).var()), 3)
        0.011
    """
    normal = torch.randn(y.shape, generator=generator, dtype=y.dtype, device=y.device)
    return y + variance(y, a, b).clamp(min=0).sqrt() * normal


def poisson_gaussian(y: Tensor, a: Level, b: Level, generator: torch.Generator | None = None) -> Tensor:
    """What :func:`heteroscedastic` approximates: a Poisson number of electrons, and Gaussian noise of reading them."""
    electron = _like(a, y).clamp(min=1e-12)  # below that there are too many electrons to draw
    electrons = torch.poisson(y.clamp(min=0) / electron, generator)
    normal = torch.randn(y.shape, generator=generator, dtype=y.dtype, device=y.device)
    return electrons * electron + _like(b, y).sqrt() * normal


@dataclass(frozen=True)
class Stabilizer:
    """A change of scale after which the noise is equally strong everywhere: Anscombe's, for Poisson-Gaussian noise.

    The square root of u(x) = a x + 3/8 a² + b, scaled so that black stays 0 and white 1. The noise then has standard
    deviation ``sigma`` wherever the signal is more than a few electrons. With a → 0 this is the identity.

    Args:
        black, white: square roots of u(0) and u(1).
        a: of the noise.
    """

    black: Tensor
    white: Tensor
    a: Tensor

    @staticmethod
    def of(x: Tensor, a: Level, b: Level) -> Stabilizer:
        """For the noise of values (B, ...)."""
        b = _like(b, x).clamp(min=0)
        a = _like(a, x).clamp(min=1e-7).maximum(1e-4 * b)  # smaller does not matter and costs digits
        dark = 3 / 8 * a * a + b
        return Stabilizer(dark.sqrt(), (a + dark).sqrt(), a)

    @property
    def sigma(self) -> Tensor:
        """Standard deviation of the noise after the change."""
        return self.a / (2 * (self.white - self.black))

    @property
    def offset(self) -> Tensor:
        """Where the square root has its zero is at ``-offset / (1 - offset)``; 0 for a pure square root."""
        return self.black / self.white

    def forward(self, x: Tensor) -> Tensor:
        root = (self.a * x + self.black.square()).clamp(min=0).sqrt()
        return (root - self.black) / (self.white - self.black)

    def inverse(self, v: Tensor) -> Tensor:
        """The algebraic inverse. Of a mean of stabilised values it is biased, which networks learn to make up for."""
        root = (self.black + v * (self.white - self.black)).clamp(min=0)
        return (root.square() - self.black.square()) / self.a


def _like(level: Level, x: Tensor) -> Tensor:
    """A level for each item of a batch (B, ...), or one for all."""
    tensor = torch.as_tensor(level, dtype=x.dtype, device=x.device)
    return tensor.reshape(tensor.shape + (1,) * (x.dim() - 1)) if tensor.dim() == 1 else tensor
