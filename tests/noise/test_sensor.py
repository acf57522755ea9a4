"""Noise of sensors: its levels, and the stabiliser."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from n3net.noise.sensor import NoiseLevel, Stabilizer, heteroscedastic, poisson_gaussian, variance


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("sample", [heteroscedastic, poisson_gaussian])
def test_noise_has_the_mean_and_the_variance_of_its_level(sample: Any) -> None:
    y = torch.tensor([0.1, 0.5, 0.9]).repeat(200_000, 1).T[None]  # (1, 3, N)
    a, b = 0.02, 0.003
    x = sample(y, a, b, seeded())
    assert torch.allclose(x.mean(-1), y.mean(-1), atol=2e-3)
    assert torch.allclose(x.var(-1), variance(y, a, b)[..., 0], rtol=0.02)


@pytest.mark.parametrize("sample", [heteroscedastic, poisson_gaussian])
def test_noise_is_seeded_and_batched(sample: Any) -> None:
    y = torch.full((2, 1, 200, 200), 0.4)
    a, b = torch.tensor([1e-3, 4e-2]), torch.tensor([1e-5, 1e-3])
    x = sample(y, a, b, seeded(3))
    assert torch.equal(x, sample(y, a, b, seeded(3)))
    assert not torch.equal(x, sample(y, a, b, seeded(4)))
    expected = a * 0.4 + b
    assert torch.allclose(x.var((1, 2, 3)), expected, rtol=0.05)


def test_poisson_noise_without_electrons_is_gaussian() -> None:
    x = poisson_gaussian(torch.full((1, 100_000), 0.5), 0.0, 1e-4, seeded())
    assert float(x.mean()) == pytest.approx(0.5, abs=1e-3)
    assert float(x.var()) == pytest.approx(1e-4, rel=0.02)


def test_poisson_noise_is_made_of_whole_electrons() -> None:
    x = poisson_gaussian(torch.full((1, 1000), 0.03), 0.01, 0.0, seeded())
    assert torch.allclose(x / 0.01, (x / 0.01).round(), atol=1e-4)
    assert x.min() >= 0


@pytest.mark.parametrize("level", [NoiseLevel(1e-3, 1e-6), NoiseLevel(1e-2, 1e-3), NoiseLevel(0.0, 1e-3)])
def test_stabilised_noise_is_equally_strong_everywhere(level: NoiseLevel) -> None:
    y = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64).repeat(100_000, 1).T[None]
    x = heteroscedastic(y, level.a, level.b, seeded())
    scale = Stabilizer.of(x, level.a, level.b)
    assert torch.allclose(scale.forward(x).std(-1) / scale.sigma, torch.ones(1, 3, dtype=torch.float64), atol=0.03)


def test_stabiliser_keeps_black_and_white_and_is_undone() -> None:
    x = torch.linspace(-0.001, 1.2, 50, dtype=torch.float64)[None]
    for a, b in ((1e-4, 1e-7), (1e-2, 1e-3), (0.1, 1e-2), (0.0, 1e-4)):
        scale = Stabilizer.of(x, a, b)
        assert torch.allclose(scale.inverse(scale.forward(x)), x, atol=1e-9)
        ends = scale.forward(torch.tensor([[0.0, 1.0]], dtype=torch.float64))
        assert torch.allclose(ends, torch.tensor([[0.0, 1.0]], dtype=torch.float64), atol=1e-12)
    nearly = Stabilizer.of(x, 0.0, 1e-4)
    assert torch.allclose(nearly.forward(x), x, atol=1e-4)  # no Poisson noise: nothing to do
    assert float(nearly.sigma) == pytest.approx(0.01, rel=1e-3)
