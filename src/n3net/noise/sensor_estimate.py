"""The noise level (a, b) of raw data from the data alone.

Noise is measured at all intensities (:mod:`n3net.noise.curve`), and the line a·y + b is laid through its variances.
What was cut off at black and white is part of the model that is fitted: for each (a, b), the mean and the standard
deviation that clipped noise has are computed for all clean values y, and compared with what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from n3net.io.arrays import as_plain, numbers
from n3net.noise.curve import Bin, measure
from n3net.noise.sensor import NoiseLevel

Array = npt.NDArray[Any]

LOG_A = (-6.0, 0.0)  # where a and b / a are searched, log10
LOG_RATIO = (-5.0, 1.0)
ABOVE = 0.6  # what a bin counts that lies above the line, against one that lies below it
TRUSTED = 0.5  # confidence from which on an estimate is good to 20 % on simulated data


@dataclass(frozen=True)
class Estimate:
    """A noise level and how far to trust it.

    Args:
        level: the estimate.
        confidence: 0 to 1. It falls where few patches are calm, where what was measured does not lie on a line, where
            most values are cut off, and where the picture has hardly more than one intensity. From 0.5 on, the
            standard deviation at the picture's intensities can be trusted to about 20 %.
    """

    level: NoiseLevel
    confidence: float


def estimate_level(planes: Sequence[Array]) -> Estimate:
    """Of planes of one colour each, linear, black 0 and white 1, that all have the same noise.

    Example:
        >>> import numpy as np
        >>> clean = np.linspace(0.05, 0.6, 200 * 300).reshape(200, 300)
        >>> noise = np.random.default_rng(0).standard_normal(clean.shape)
        >>> found = estimate_level([clean + np.sqrt(0.004 * clean + 0.0001) * noise])
        >>> 0.0035 < found.level.a < 0.0045, found.confidence > TRUSTED
        (True, True)
    """
    planes = [numbers(as_plain(plane, "plane"), "plane") for plane in planes]
    bins = measure(planes)
    cut = (min(float(p.min()) for p in planes) >= 0, max(float(p.max()) for p in planes) <= 1)  # where values end
    bins = [b for b in bins if b.sigma > 0]
    if len(bins) < 3:
        return Estimate(NoiseLevel(0.0, 0.0), 0.0)
    weights = torch.tensor([_weight(b) for b in bins], dtype=torch.float64)
    levels = torch.tensor([b.level for b in bins], dtype=torch.float64)
    measured = torch.tensor([b.sigma for b in bins], dtype=torch.float64).log()
    a, b, error = _fit(levels, measured, weights, cut)
    return Estimate(NoiseLevel(a, b), _confidence(bins, weights, error))


def _weight(b: Bin) -> float:
    """Many calm patches count more; where even the calmest have texture, or half of the values are cut off, little."""
    return math.sqrt(b.patches) * max(1e-3, 1 - 2 * b.clipped) / (1 + 4 * max(0.0, b.texture - 1) ** 2)


def _fit(levels: Tensor, measured: Tensor, weights: Tensor, cut: tuple[bool, bool]) -> tuple[float, float, float]:
    """(a, b) with the least mean deviation of log sigma, and that: a grid, three times refined."""
    centre, width = (sum(LOG_A) / 2, sum(LOG_RATIO) / 2), ((LOG_A[1] - LOG_A[0]) / 2, (LOG_RATIO[1] - LOG_RATIO[0]) / 2)
    error = math.inf
    for points in (31, 9, 9, 9):
        log_a = torch.linspace(centre[0] - width[0], centre[0] + width[0], points, dtype=torch.float64)
        log_ratio = torch.linspace(centre[1] - width[1], centre[1] + width[1], points, dtype=torch.float64)
        grid = torch.cartesian_prod(log_a, log_ratio)  # (N, 2)
        a = 10 ** grid[:, 0]
        predicted = _predict(levels, a, a * 10 ** grid[:, 1], cut)  # (N, levels)
        more = measured - predicted  # (N, levels); texture makes noise look stronger, never weaker
        distance = torch.where(more > 0, ABOVE * more, -more).clamp(max=1)
        errors = (distance * weights).sum(1) / weights.sum()  # (N,)
        best = int(errors.argmin())
        error = float(errors[best])
        centre = (float(grid[best, 0]), float(grid[best, 1]))
        width = (width[0] * 2.5 / points, width[1] * 2.5 / points)
    return 10 ** centre[0], 10 ** (centre[0] + centre[1]), error


def _predict(levels: Tensor, a: Tensor, b: Tensor, cut: tuple[bool, bool]) -> Tensor:
    """Log of the standard deviation of clipped noise (N, levels) where its mean is ``levels``."""
    y = torch.linspace(0, 1, 161, dtype=torch.float64) ** 2  # (Y,), denser in the dark
    sigma = (a[:, None] * y + b[:, None]).sqrt()  # (N, Y)
    mean, variance = _clipped_moments(y.expand_as(sigma), sigma, cut)
    where = torch.searchsorted(mean.contiguous(), levels.expand(len(a), -1).contiguous()).clamp(1, len(y) - 1)
    left, right = mean.gather(1, where - 1), mean.gather(1, where)
    part = ((levels - left) / (right - left).clamp(min=1e-12)).clamp(0, 1)
    found = variance.gather(1, where - 1) * (1 - part) + variance.gather(1, where) * part
    return 0.5 * found.clamp(min=1e-16).log()


def _clipped_moments(y: Tensor, sigma: Tensor, cut: tuple[bool, bool]) -> tuple[Tensor, Tensor]:
    """Mean and variance of Gaussian noise after clipping to [0, 1]."""
    low = (0 - y) / sigma if cut[0] else torch.full_like(y, -40)
    high = (1 - y) / sigma if cut[1] else torch.full_like(y, 40)
    below, above = torch.special.ndtr(low), torch.special.ndtr(-high)
    density_low, density_high = (torch.exp(-0.5 * x.square()) / math.sqrt(2 * math.pi) for x in (low, high))
    inside = 1 - below - above
    z = density_low - density_high  # mean of the standard Gaussian between the bounds, and of its square
    z_square = inside + low * density_low - high * density_high
    mean = y * inside + sigma * z + above
    square = y.square() * inside + 2 * y * sigma * z + sigma.square() * z_square + above
    return mean, (square - mean.square()).clamp(min=0)


def _confidence(bins: Sequence[Bin], weights: Tensor, error: float) -> float:
    calm = float(weights.sum()) / sum(math.sqrt(b.patches) for b in bins)  # share without texture and clipping
    line = math.exp(-error / 0.15)
    spread = min(1.0, (bins[-1].level - bins[0].level) / (0.1 * max(bins[-1].level, 1e-6) + 1e-4))
    return calm * line * spread
