"""White noise or that of a camera, told from the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

import n3net
from n3net.noise.kind import kind_of_noise
from n3net.noise.sensor import NoiseLevel
from n3net.raw.camera import Camera, compress, photograph
from n3net.restoration.denoising import weights_for

Array = np.ndarray[Any, Any]


def picture(height: int = 160, width: int = 200) -> Array:
    """A sky and hills with texture, (H, W, 3) in [0, 1]."""
    y, x = np.mgrid[:height, :width]
    hills = 0.25 + 0.2 * y / height + 0.05 * np.sin(x / 2) * np.sin(y / 3)
    gray = np.where(y < height * 0.5, 0.35 + 0.4 * x / width, hills)
    return np.stack([gray, 0.9 * gray, 0.7 * gray + 0.1], -1).astype(np.float32)


def eight(values: Array) -> Array:
    return np.clip(np.rint(255 * values), 0, 255).astype(np.uint8)


def white(sigma: float, shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, sigma / 255, shape)


def shot(camera: Camera) -> Array:
    return eight(photograph(picture(), camera, NoiseLevel(2e-3, 1e-5), np.random.default_rng(0))[0])


@pytest.mark.parametrize("sigma", [3, 5, 25, 50])
@pytest.mark.parametrize("gray", [True, False])
@pytest.mark.parametrize("to_file", [True, False])
def test_white_noise(sigma: float, gray: bool, to_file: bool) -> None:
    clean = picture()[..., 1] if gray else picture()
    noisy = clean + white(sigma, clean.shape)
    found = kind_of_noise(eight(noisy) if to_file else noisy.astype(np.float32))
    assert not found.camera
    assert not found.shared
    assert "independently" in found.why
    assert 0.85 < found.ratio < 1.1
    assert weights_for(noisy)[0] == ("gray" if gray else "color")


@pytest.mark.parametrize("method", ["bilinear", "malvar", "directed"])
@pytest.mark.parametrize("quality", [None, 90])
def test_noise_of_cameras(method: str, quality: int | None) -> None:
    noisy = shot(Camera(method=method, quality=quality, smooth_colors=2))
    assert kind_of_noise(noisy).camera
    assert kind_of_noise(noisy[..., 1]).camera  # a black and white photograph
    assert weights_for(noisy)[0] == "photo"
    assert weights_for(np.stack([noisy[..., 1]] * 3, -1))[0] == "photo"


def test_noise_that_depends_on_brightness_may_be_white() -> None:
    clean = picture()
    noisy = clean + np.sqrt(0.01 * clean + 1e-4) * white(255, clean.shape)
    assert not kind_of_noise(noisy).camera


def test_colours_that_err_alike_are_for_the_gray_network() -> None:
    clean = picture()
    for noisy in (
        eight(clean + white(15, clean.shape[:2])[..., None]),
        compress(eight(clean + white(20, clean.shape)), 95, True),
    ):
        found = kind_of_noise(noisy)
        assert found.shared
        assert not found.camera
        assert weights_for(noisy)[0] == "gray"


def test_hardly_any_noise_is_left_alone() -> None:
    """A clean picture is taken for a photograph with hardly any noise, and comes out as it went in, or nearly so."""
    clean = eight(picture())
    found = kind_of_noise(clean)
    assert found.camera
    assert "hardly any" in found.why
    assert np.abs(n3net.denoise(clean).astype(int) - clean).mean() < 0.5


def test_drawings_are_left_as_they_are() -> None:
    sheet = Image.new("RGB", (160, 120), (240, 240, 250))
    pen = ImageDraw.Draw(sheet)
    for line in range(7):
        pen.text((4, 4 + 16 * line), "The quick brown fox jumps over it", fill=(30, 30, 60))
    drawn = np.asarray(sheet)
    assert "drawn" in kind_of_noise(drawn).why
    assert np.array_equal(n3net.denoise(drawn), drawn)
    assert "drawn" not in kind_of_noise(eight(drawn / 255 + white(5, drawn.shape))).why


@pytest.mark.parametrize("shape", [(5, 5), (1, 40), (8, 8), (9, 30, 3)])
def test_small_images(shape: tuple[int, ...]) -> None:
    assert kind_of_noise(0.5 + white(20, shape)).why
    assert kind_of_noise(np.zeros(shape)).why


def test_denoise_uses_what_it_found() -> None:
    clean = picture(96, 128)
    noisy = eight(photograph(clean, Camera(), NoiseLevel(2e-3, 1e-5), np.random.default_rng(0))[0])
    assert np.array_equal(n3net.denoise(noisy), n3net.denoise(noisy, model="photo"))
    noisy = eight(clean + white(25, clean.shape))
    assert np.array_equal(n3net.denoise(noisy), n3net.denoise(noisy, model="color"))
