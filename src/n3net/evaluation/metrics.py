"""How far a picture is from the truth: PSNR, SSIM, and intervals of their means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

WINDOW = 11  # pixels along a side of SSIM's window
DRAWN_AT_ONCE = 1_000_000  # values of the bootstrap


def psnr(image: Tensor, truth: Tensor, peak: float = 1.0) -> float:
    """Peak signal-to-noise ratio in dB over all pixels and channels; infinite where nothing differs."""
    error = float((image.double() - truth.double()).square().mean())
    return math.inf if error == 0 else 10 * math.log10(peak**2 / error)


def ssim(image: Tensor, truth: Tensor, peak: float = 1.0) -> float:
    """Structural similarity (Wang et al. 2004): Gaussian window of 11 x 11 pixels with σ = 1.5.

    The mean over all windows that lie inside the image, and over channels: (C, H, W) or (H, W). As scikit-image with
    ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False``.
    """
    if min(image.shape[-2:]) < WINDOW:
        raise ValueError(f"image: expected at least 11 x 11 pixels, got {tuple(image.shape[-2:])}")
    x, y = (t.double().reshape(-1, 1, *t.shape[-2:]) for t in (image, truth))  # (C, 1, H, W)
    along = torch.arange(-5, 6, dtype=torch.float64)
    window = torch.exp(-(along**2) / (2 * 1.5**2))
    window = window / window.sum()

    def blur(t: Tensor) -> Tensor:
        return F.conv2d(F.conv2d(t, window.view(1, 1, -1, 1)), window.view(1, 1, 1, -1))

    mx, my = blur(x), blur(y)
    vx, vy, cov = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    values = (2 * mx * my + c1) * (2 * cov + c2) / ((mx * mx + my * my + c1) * (vx + vy + c2))
    return float(values.mean())


def bootstrap(values: Sequence[float], level: float = 0.95, draws: int = 10_000, seed: int = 0) -> tuple[float, float]:
    """Percentile interval of the mean, if other images of the same kind had been drawn."""
    data = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    rows = max(1, DRAWN_AT_ONCE // len(data))
    parts = [min(rows, draws - done) for done in range(0, draws, rows)]
    means = np.concatenate([data[rng.integers(0, len(data), (part, len(data)))].mean(1) for part in parts])
    with np.errstate(invalid="ignore"):  # of values that are infinite
        low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
