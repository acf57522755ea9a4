"""PSNR, SSIM, and intervals by bootstrap."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from n3net.evaluation import bootstrap, psnr, ssim


def pair(channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    truth = torch.rand(channels, 40, 53, generator=g)
    return (truth + 0.1 * torch.randn(truth.shape, generator=g)).clamp(0, 1), truth


def test_psnr() -> None:
    assert psnr(torch.full((1, 4, 4), 0.1), torch.zeros(1, 4, 4)) == pytest.approx(20, abs=1e-5)
    assert psnr(torch.zeros(1, 4, 4), torch.zeros(1, 4, 4)) == math.inf


@pytest.mark.parametrize("channels", [1, 3])
def test_ssim_equals_scikit_image(channels: int) -> None:
    metrics = pytest.importorskip("skimage.metrics")
    image, truth = pair(channels)
    expected = metrics.structural_similarity(
        image.double().numpy(),
        truth.double().numpy(),
        data_range=1.0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        channel_axis=0,
    )
    assert ssim(image, truth) == pytest.approx(expected, abs=1e-7)


def test_ssim_of_the_same_is_1_and_needs_a_window() -> None:
    _, truth = pair(1)
    assert ssim(truth, truth) == pytest.approx(1)
    with pytest.raises(ValueError, match="11 x 11"):
        ssim(torch.rand(1, 10, 40), torch.rand(1, 10, 40))


def test_bootstrap_covers_the_mean() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for i in range(100):
        low, high = bootstrap(rng.normal(30, 1, 40).tolist(), draws=500, seed=i)
        hits += low <= 30 <= high
    assert hits >= 88
    assert bootstrap([30.0]) == (30.0, 30.0)


@pytest.mark.parametrize("n", [1, 7, 64, 1000])
def test_bootstrap_in_parts(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draws as all at once, in memory that does not grow with their number."""
    data = np.random.default_rng(1).normal(30, 1, n)
    means = data[np.random.default_rng(0).integers(0, n, (501, n))].mean(1)
    monkeypatch.setattr("n3net.evaluation.metrics.DRAWN_AT_ONCE", 640)
    largest = 0

    class Counting:
        def __init__(self, seed: int) -> None:
            self.rng = rng(seed)

        def integers(self, low: int, high: int, shape: tuple[int, int]) -> Any:
            nonlocal largest
            largest = max(largest, shape[0] * shape[1])
            return self.rng.integers(low, high, shape)

    rng = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", Counting)
    assert bootstrap(data.tolist(), draws=501) == tuple(np.quantile(means, [(1 - 0.95) / 2, (1 + 0.95) / 2]))
    assert largest <= max(n, 640)
