"""The noise level of raw data, found in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from n3net.noise.sensor import NoiseLevel, heteroscedastic
from n3net.noise.sensor_estimate import TRUSTED, estimate_level
from n3net.raw.simulation import Scene, draw_level, draw_scene

SHARED = Path(__file__).parents[3] / "shared" / "data"


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def landscape(rng: np.random.Generator, size: int = 256) -> np.ndarray[Any, Any]:
    """Half of it calm, at many intensities; the rest texture, (H, W, 3) in [0, 1]."""
    y, x = np.mgrid[:size, :size] / size
    calm = 0.15 + 0.8 * x * (1 - 0.5 * y)
    texture = np.kron(rng.random((size // 8, size // 8)), np.ones((8, 8))) * 0.6 + 0.2
    gray = np.where(y < 0.5, calm, texture)
    return gray[..., None] * np.array([1.0, 0.9, 0.8])


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_level_is_found_over_the_training_range(seed: int, clip: bool) -> None:
    rng = np.random.default_rng(seed)
    level = NoiseLevel(a := 10 ** (-4 + 3 * (seed + 0.5) / 6), a * 10 ** rng.uniform(-3.6, -1.0))
    clean = Scene(0.8, 2.0, (1.6, 1.4)).bayer(landscape(rng))
    noisy = heteroscedastic(torch.from_numpy(clean)[None], level.a, level.b, seeded(seed))[0].numpy()
    noisy = noisy.clip(0 if clip else -1, 1)
    found = estimate_level([noisy[r::2, c::2] for r in (0, 1) for c in (0, 1)])
    at = np.quantile(clean, [0.2, 0.5, 0.8, 0.95])
    sigma, truth = (np.sqrt(m.a * at + m.b) for m in (found.level, level))
    assert np.abs(sigma / truth - 1).max() < 0.2
    assert found.level.a == pytest.approx(level.a, rel=0.35)
    assert found.confidence > TRUSTED


def test_estimates_on_photographs() -> None:
    """Small ones, with fine texture and grain of their own, over the whole training range."""
    root = SHARED / "BSDS500" / "val"
    if not root.is_dir():
        pytest.skip("no BSDS500 beside the repository")
    rng, errors, trusted = np.random.default_rng(0), [], []
    for path in sorted(root.glob("*.jpg"))[::3]:
        rgb = np.asarray(Image.open(path), np.float32)[:320, :320] / 255
        clean = draw_scene(rng, exponent=(1.25, 4.0)).bayer(rgb)
        level = draw_level(rng)
        noisy = heteroscedastic(torch.from_numpy(clean)[None], level.a, level.b, seeded(len(errors)))[0].numpy()
        noisy = noisy.clip(0 if len(errors) % 2 else -1, 1)
        found = estimate_level([noisy[r::2, c::2] for r in (0, 1) for c in (0, 1)])
        at = np.quantile(clean, [0.1, 0.3, 0.5, 0.7, 0.9])
        sigma, truth = (np.sqrt(m.a * at + m.b) for m in (found.level, level))
        errors.append(np.abs(sigma / truth - 1).mean())
        trusted.append(found.confidence >= TRUSTED)
    good = np.array(errors) < 0.2
    assert good.mean() >= 0.7
    assert good[np.array(trusted)].mean() >= 0.9
    assert np.mean(trusted) > 0.4


def test_confidence_says_when_not_to_trust() -> None:
    rng = np.random.default_rng(0)
    calm = heteroscedastic(torch.from_numpy(landscape(rng)[:128, :, 0].copy())[None], 2e-3, 1e-5, seeded())[0].numpy()
    assert estimate_level([calm]).confidence > TRUSTED
    y, x = np.mgrid[:200, :200]
    texture = 0.5 + 0.4 * np.sin(x / 2) * np.sin(y / 3) + 0.002 * rng.standard_normal(x.shape)
    assert estimate_level([texture]).confidence < TRUSTED
    black = np.maximum(0, 0.001 + 0.05 * rng.standard_normal((200, 200)))  # half of it is cut off, one intensity
    assert estimate_level([black]).confidence < TRUSTED
    for nothing in (np.zeros((50, 50)), np.ones((3, 3))):
        assert estimate_level([nothing]).confidence == 0
