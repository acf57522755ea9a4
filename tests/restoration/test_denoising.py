"""n3net.denoise: types, channels, noise levels, tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import n3net
from n3net.models import Denoiser, create


class Add(nn.Module):
    """Adds the noise level to the image."""

    reach = 0

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, told: Tensor) -> Tensor:
        x, level = told[:, : self.channels], told[:, self.channels :]
        return x + level if level.shape[1] else x


class Brighter(Denoiser):
    """Adds the noise level that it is given, so that a test can see it."""

    def __init__(self, channels: int = 1, noise_map: bool = True) -> None:
        super().__init__(Add(channels), channels, noise_map)


def small(channels: int = 1, noise_map: bool = True) -> nn.Module:
    torch.manual_seed(0)
    model = create(
        "n3net", channels=channels, noise_map=noise_map, stages=2, depth=2, features=8, block_channels=3, k=2, window=3
    )
    return model.eval()


def random_image(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    values = np.random.default_rng(0).random(shape)
    return values.astype(dtype) if np.dtype(dtype).kind == "f" else (values * np.iinfo(dtype).max).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(50, 43), (50, 43, 3), (1, 1), (7, 3, 3)])
@pytest.mark.parametrize("channels", [1, 3])
def test_same_type_and_shape(dtype: Any, shape: tuple[int, ...], channels: int) -> None:
    image = random_image(*shape, dtype=dtype)
    before = image.copy()
    out = n3net.denoise(image, 0, Brighter(channels))
    assert out.dtype == image.dtype
    assert out.shape == image.shape
    np.testing.assert_allclose(out.astype(float), image.astype(float), rtol=1e-3)
    np.testing.assert_array_equal(image, before)


def test_sigma_is_in_gray_levels_for_all_types() -> None:
    assert n3net.denoise(np.full((9, 9), 100, np.uint8), 25, Brighter())[0, 0] == 125
    assert n3net.denoise(np.full((9, 9), 10000, np.uint16), 25, Brighter())[0, 0] == 10000 + 25 * 257
    assert n3net.denoise(np.full((9, 9), 0.5), 25, Brighter())[0, 0] == pytest.approx(0.5 + 25 / 255)
    assert n3net.denoise(np.full((9, 9), 500.0), 25, Brighter(), peak=1000)[0, 0] == pytest.approx(500 + 25000 / 255)


def test_integers_are_clipped_and_floats_are_not() -> None:
    assert n3net.denoise(np.full((9, 9), 250, np.uint8), 25, Brighter())[0, 0] == 255
    assert n3net.denoise(np.full((9, 9), 1.0, np.float32), 25, Brighter())[0, 0] > 1


def test_gray_model_takes_channels_one_by_one_with_their_levels() -> None:
    image = np.random.default_rng(0).normal([90, 120, 150], [5, 15, 30], (128, 128, 3)) / 255
    added = (n3net.denoise(image, None, Brighter(1)) - image).mean((0, 1)) * 255
    assert added == pytest.approx([5, 15, 30], rel=0.15)
    given = (n3net.denoise(image, [1, 2, 3], Brighter(1)) - image).mean((0, 1)) * 255
    assert given == pytest.approx([1, 2, 3], rel=1e-3)


def test_colour_model_gets_one_level() -> None:
    image = np.random.default_rng(0).normal([90, 120, 150], 20, (128, 128, 3)) / 255
    added = (n3net.denoise(image, None, Brighter(3)) - image).mean((0, 1)) * 255
    assert added == pytest.approx([20, 20, 20], rel=0.1)


def test_colour_model_on_gray_image_averages() -> None:
    class Tint(Add):
        def forward(self, told: Tensor) -> Tensor:
            assert (told[:, :1] == told).all()
            return told + torch.tensor([0.0, 0.1, 0.2])[:, None, None]

    out = n3net.denoise(np.full((20, 20), 0.5), 10, Denoiser(Tint(3), 3))
    np.testing.assert_allclose(out, 0.6, rtol=1e-5)


def test_colour_image_without_colour_is_gray() -> None:
    gray = random_image(40, 50)
    out = n3net.denoise(np.dstack([gray] * 3), 10, small())
    np.testing.assert_array_equal(out, np.dstack([n3net.denoise(gray, 10, small())] * 3))


def test_noise_map() -> None:
    image = np.full((30, 40), 100, np.uint8)
    levels = np.arange(30 * 40).reshape(30, 40) % 50
    np.testing.assert_array_equal(n3net.denoise(image, levels, Brighter(), tile=11), 100 + levels)


def test_model_with_one_level_ignores_sigma() -> None:
    image = random_image(30, 30)
    model = small(noise_map=False)
    np.testing.assert_array_equal(n3net.denoise(image, 25, model), n3net.denoise(image, None, model))


@pytest.mark.parametrize("channels", [1, 3])
def test_tiles_do_not_change_the_result(channels: int) -> None:
    image = (
        random_image(131, 97, channels, dtype=np.float32) if channels == 3 else random_image(131, 97, dtype=np.float32)
    )
    model = small(channels)
    with torch.inference_mode():
        x = torch.from_numpy(image).reshape(131, 97, channels).permute(2, 0, 1)[None]
        whole = model(x, sigma=25)[0].permute(1, 2, 0).reshape(image.shape).numpy()
    for tile in (None, 20, 47, 64, 1000):
        np.testing.assert_allclose(n3net.denoise(image, 25, model, tile=tile), whole, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (8, 3), (9, 200), (4, 5, 3)])
def test_images_smaller_than_the_networks_patches(shape: tuple[int, ...]) -> None:
    image = random_image(*shape)
    assert n3net.denoise(image, 25, small()).shape == shape
    assert n3net.denoise(image, np.full(shape[:2], 25), small()).shape == shape


def test_progress_ends_at_the_end() -> None:
    seen: list[tuple[int, int]] = []
    n3net.denoise(random_image(90, 80), 25, small(), tile=30, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def test_views_and_foreign_byte_order() -> None:
    image = random_image(60, 50, 3)
    view = image[::-1, ::2]
    np.testing.assert_array_equal(
        n3net.denoise(view, 10, small(3)), n3net.denoise(np.ascontiguousarray(view), 10, small(3))
    )
    swapped = random_image(20, 20, dtype=np.uint16).astype(">u2")
    np.testing.assert_array_equal(n3net.denoise(swapped, 0, Brighter()), swapped)


@pytest.mark.parametrize(
    ("image", "sigma", "match"),
    [
        (np.zeros((4, 4, 2)), 1, "expected shape"),
        (np.zeros((0, 4)), 1, "expected shape"),
        (np.zeros((4, 4), np.int32), 1, "expected uint8"),
        (np.zeros((4, 4)), -1, "sigma"),
        (np.zeros((4, 4)), np.nan, "sigma"),
        (np.zeros((4, 4)), np.zeros((3, 4)), "sigma"),
    ],
)
def test_wrong_arguments(image: np.ndarray, sigma: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        n3net.denoise(image, sigma, Brighter())


def test_a_bare_network_is_no_denoiser() -> None:
    with pytest.raises(TypeError, match="Denoiser"):
        n3net.denoise(np.zeros((8, 8)), 1, nn.Conv2d(1, 1, 3))


@pytest.mark.parametrize("shape", [(40, 31), (40, 31, 3)])
def test_strength_is_how_much_of_the_correction_is_made(shape: tuple[int, ...]) -> None:
    noisy = np.random.default_rng(0).random(shape, np.float32)
    net = small(channels=1)
    full, half, none = (n3net.denoise(noisy, 25, net, strength=s) for s in (1, 0.5, 0))
    assert np.abs(full - noisy).max() > 1e-3
    np.testing.assert_allclose(half, (noisy + full) / 2, atol=1e-6)
    np.testing.assert_array_equal(none, noisy)
    with pytest.raises(ValueError, match="strength"):
        n3net.denoise(noisy, 25, net, strength=1.5)


@pytest.mark.parametrize("shape", [(40, 31), (30, 41, 3)])
def test_best_is_the_mean_of_eight_orientations(shape: tuple[int, ...]) -> None:
    noisy = np.random.default_rng(0).random(shape, np.float32)
    sigma = np.random.default_rng(1).uniform(0, 50, shape[:2]).astype(np.float32)
    net = small(channels=3 if len(shape) == 3 else 1)
    total = np.zeros(shape)
    for turns in range(4):
        for mirrored in (False, True):
            there = [np.rot90(a, turns)[:, :: -1 if mirrored else 1] for a in (noisy, sigma)]
            out = n3net.denoise(np.ascontiguousarray(there[0]), np.ascontiguousarray(there[1]), net)
            total += np.rot90(out[:, :: -1 if mirrored else 1], -turns)
    seen: list[tuple[int, int]] = []
    best = n3net.denoise(noisy, sigma, net, best=True, progress=lambda done, of: seen.append((done, of)))
    np.testing.assert_allclose(best, total / 8, atol=1e-5)
    assert seen[-1][0] == seen[-1][1]
    assert n3net.denoise((255 * noisy).astype(np.uint8), 25, net, best=True).dtype == np.uint8
