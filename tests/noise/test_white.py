"""Noise estimation on images with known noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from n3net.noise.white import estimate_sigma

SHARED = Path(__file__).parents[3] / "shared" / "data"
SIGMAS = [3, 5, 10, 25, 50, 75]


def noisy(clean: np.ndarray, sigma: float, clip: bool, seed: int = 0) -> np.ndarray:
    values = clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)
    return np.clip(np.rint(values), 0, 255).astype(np.uint8) if clip else (values / 255).astype(np.float32)


def scene(size: int = 192) -> np.ndarray:
    """Smooth shades, edges, and texture in one corner."""
    y, x = np.mgrid[:size, :size] / size
    picture = 40 + 150 * x * y + 60 * (np.hypot(x - 0.4, y - 0.6) < 0.25)
    texture = 30 * np.sin(90 * x) * np.sin(70 * y) * ((x > 0.6) & (y < 0.4))
    return picture + texture


def within(estimate: float, sigma: float) -> bool:
    return abs(estimate - sigma) <= max(1.0, 0.1 * sigma)


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_known_noise(sigma: float, clip: bool) -> None:
    (estimate,) = estimate_sigma(noisy(scene(), sigma, clip))
    assert within(estimate, sigma)


@pytest.mark.parametrize("sigma", [3, 25, 75])
@pytest.mark.parametrize("name", ["camera", "astronaut", "coffee"])
def test_photographs(name: str, sigma: float) -> None:
    data = pytest.importorskip("skimage.data", reason="scikit-image has the photographs")
    estimates = estimate_sigma(noisy(getattr(data, name)().astype(float), sigma, True))
    assert all(within(estimate, sigma) for estimate in estimates)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the data sets are not beside this project")
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_data_sets(sigma: float, clip: bool) -> None:
    """All but the images that are nothing but fine texture, or noisy themselves."""
    from PIL import Image

    paths = sorted((SHARED / "Set12").glob("*.png"))[::2] + sorted((SHARED / "BSD68").glob("*.png"))[::4]
    estimates = [
        estimate_sigma(noisy(np.asarray(Image.open(p).convert("L")).astype(float), sigma, clip))[0] for p in paths
    ]
    assert np.mean([within(e, sigma) for e in estimates]) >= 0.9
    assert within(float(np.median(estimates)), sigma)


def test_types_and_channels_agree() -> None:
    image = noisy(np.stack([scene()] * 3, -1), 20, True)
    eight = estimate_sigma(image)
    assert len(eight) == 3
    assert estimate_sigma(image.astype(np.uint16) * 257) == pytest.approx(eight, rel=1e-4)
    assert estimate_sigma(image / 255) == pytest.approx(eight, rel=1e-4)
    assert estimate_sigma(image.astype(float), peak=255) == pytest.approx(eight, rel=1e-4)


@pytest.mark.parametrize("level", [0, 90, 255])
@pytest.mark.parametrize("shape", [(64, 64), (8, 8), (5, 40), (3, 3), (1, 1), (1, 200)])
def test_flat_and_tiny_images_have_no_noise(shape: tuple[int, int], level: int) -> None:
    assert estimate_sigma(np.full(shape, level, np.uint8))[0] == pytest.approx(0, abs=1e-3)


def test_saturated_areas_are_left_out() -> None:
    """A noisy picture between black bars and blown out sky."""
    image = noisy(scene(), 15, True)
    image[:60], image[-60:] = 0, 255
    assert within(estimate_sigma(image)[0], 15)


def test_small_images() -> None:
    estimates = [estimate_sigma(noisy(np.full((16, 16), 120.0), 20, True, seed))[0] for seed in range(20)]
    assert 17 < np.median(estimates) < 23


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected shape \(H, W\)"):
        estimate_sigma(np.zeros((2, 3, 4, 5)))
