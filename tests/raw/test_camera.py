"""Demosaicking and the camera that photographs for training are made by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from n3net.imaging.demosaicking import METHODS, PATTERNS, Pattern, bilinear, directed, malvar, mosaic
from n3net.noise.sensor import NoiseLevel
from n3net.raw.camera import (
    Camera,
    compress,
    draw_camera,
    draw_level,
    draw_matrix,
    encode,
    linearize,
    photograph,
)

Array = np.ndarray[Any, Any]


def scene(height: int = 40, width: int = 46) -> Array:
    """Smooth colours, (H, W, 3) in [0, 1]."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    return np.stack([0.2 + 0.6 * x / width, 0.3 + 0.4 * y / height, 0.8 - 0.5 * x / width], -1)


def colour(pattern: str, y: int, x: int) -> str:
    return pattern[2 * (y % 2) + x % 2]


# Demosaicking


@pytest.mark.parametrize("pattern", PATTERNS)
def test_mosaic_keeps_one_colour_of_each_pixel(pattern: Pattern) -> None:
    rgb = np.random.default_rng(0).random((5, 7, 3))
    out = mosaic(rgb, pattern)
    for y in range(5):
        for x in range(7):
            assert out[y, x] == rgb[y, x, "RGB".index(colour(pattern, y, x))]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("size", [(10, 12), (9, 11)])
def test_measured_values_and_flat_colours_stay(method: str, pattern: Pattern, size: tuple[int, int]) -> None:
    values = np.random.default_rng(0).random((2, *size), dtype=np.float32)
    out = METHODS[method](values, pattern)
    assert out.shape == (2, *size, 3)
    assert out.dtype == np.float32
    np.testing.assert_allclose(mosaic(out, pattern), values, atol=1e-6)
    np.testing.assert_allclose(METHODS[method](values[1], pattern), out[1])
    flat = np.broadcast_to(np.array([0.2, 0.5, 0.9]), (*size, 3))
    np.testing.assert_allclose(METHODS[method](mosaic(flat, pattern), pattern), flat, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_smooth_colours_are_found(method: str) -> None:
    rgb = scene()
    assert np.abs(METHODS[method](mosaic(rgb), "RGGB") - rgb)[3:-3, 3:-3].max() < 1e-3


@pytest.mark.parametrize("pattern", PATTERNS)
def test_bilinear_is_the_mean_of_the_nearest(pattern: Pattern) -> None:
    values = np.random.default_rng(1).random((10, 12))
    out = bilinear(values, pattern)
    for y in range(1, 9):
        for x in range(1, 11):
            for channel, name in enumerate("RGB"):
                around = {(v, u): colour(pattern, v, u) for v in range(y - 1, y + 2) for u in range(x - 1, x + 2)}
                nearest = [(y, x)] if around[y, x] == name else [at for at, c in around.items() if c == name]
                assert out[y, x, channel] == pytest.approx(np.mean([values[at] for at in nearest]))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_malvar_is_bilinear_and_a_part_of_the_laplacian(pattern: Pattern) -> None:
    """Eqs. 2 to 4 of the paper: alpha = 1/2, beta = 5/8, gamma = 3/4, each times the Laplacian of what was measured."""
    m = np.random.default_rng(2).random((12, 14))
    out, plain = malvar(m, pattern), bilinear(m, pattern)
    for y in range(2, 10):
        for x in range(2, 12):
            here = colour(pattern, y, x)
            far = (m[y - 2, x] + m[y + 2, x] + m[y, x - 2] + m[y, x + 2]) / 4
            if here != "G":
                assert out[y, x, 1] == pytest.approx(plain[y, x, 1] + 1 / 2 * (m[y, x] - far))
                other = "RGB".index("B" if here == "R" else "R")
                assert out[y, x, other] == pytest.approx(plain[y, x, other] + 3 / 4 * (m[y, x] - far))
                continue
            near = m[y - 1, x - 1] + m[y - 1, x + 1] + m[y + 1, x - 1] + m[y + 1, x + 1]
            for name in "RB":
                along = [(y, x - 2), (y, x + 2)] if colour(pattern, y, x + 1) == name else [(y - 2, x), (y + 2, x)]
                across = [(y - 2, x), (y + 2, x)] if along[0][0] == y else [(y, x - 2), (y, x + 2)]
                mean = (near + sum(m[at] for at in along) - sum(m[at] for at in across) / 2) / 5
                channel = "RGB".index(name)
                assert out[y, x, channel] == pytest.approx(plain[y, x, channel] + 5 / 8 * (m[y, x] - mean))


def test_directed_follows_edges() -> None:
    """Green beside a sharp edge comes from along it; a bilinear mean mixes both sides."""
    gray = np.zeros((12, 12))
    gray[:, 6:] = 1
    for values in (gray, gray.T):
        out = directed(values, "RGGB")[..., 1]
        np.testing.assert_allclose(out, values, atol=1e-9)
        assert np.abs(bilinear(values, "RGGB")[..., 1] - values).max() > 0.2


@pytest.mark.parametrize("pattern", PATTERNS)
def test_directed_by_hand(pattern: Pattern) -> None:
    m = np.random.default_rng(3).random((10, 10))
    out = directed(m, pattern)
    for y in range(2, 8):
        for x in range(2, 8):
            if colour(pattern, y, x) == "G":
                continue
            bends = [2 * m[y, x] - m[y, x - 2] - m[y, x + 2], 2 * m[y, x] - m[y - 2, x] - m[y + 2, x]]
            changes = [abs(m[y, x - 1] - m[y, x + 1]), abs(m[y - 1, x] - m[y + 1, x])]
            means = [(m[y, x - 1] + m[y, x + 1]) / 2, (m[y - 1, x] + m[y + 1, x]) / 2]
            best = int(changes[1] + abs(bends[1]) < changes[0] + abs(bends[0]))
            assert out[y, x, 1] == pytest.approx(means[best] + bends[best] / 4)
    at = next((y, x) for y in (4, 5) for x in (4, 5) if colour(pattern, y, x) == "B")  # red there: four corners
    y, x = at
    corners = [(y + v, x + u) for v in (-1, 1) for u in (-1, 1)]
    assert out[y, x, 0] - out[y, x, 1] == pytest.approx(np.mean([m[c] - out[(*c, 1)] for c in corners]))


# The camera


def test_curves_are_undone() -> None:
    values = np.linspace(0, 1, 101, dtype=np.float32)
    for gamma in (1.8, 2.4):
        np.testing.assert_allclose(linearize(encode(values, gamma), gamma), values, atol=1e-5)
        assert (np.diff(encode(values, gamma)) > 0).all()
    srgb = np.where(values <= 0.0031308, 12.92 * values, 1.055 * values ** (1 / 2.4) - 0.055)
    assert np.abs(encode(values, 2.4) - srgb).max() < 0.04


@pytest.mark.parametrize("seed", range(5))
def test_without_noise_a_smooth_picture_comes_back(seed: int) -> None:
    """Undone and done again; what is left are the steps of 8 bits and JPEG."""
    camera = draw_camera(np.random.default_rng(seed))
    noisy, clean = photograph(scene(64, 64), camera, NoiseLevel(0, 0), np.random.default_rng(0))
    assert np.array_equal(noisy, clean)
    error = np.abs(clean - scene(64, 64))[8:-8, 8:-8]
    assert error.mean() < (0.01 if camera.quality is None else 0.03)


def test_sensor_values_are_darker_by_the_gains_and_white_is_white() -> None:
    camera = Camera(gains=(2.0, 1.0, 1.6))
    white = camera.sense(np.ones((1, 3), np.float32))
    np.testing.assert_allclose(white, [[1 / 2, 1, 1 / 1.6]], atol=1e-5)
    assert camera.sense(np.zeros((1, 3), np.float32)).max() < 1e-5
    values = camera.sense(np.array([[0.6, 0.5, 0.4]], np.float32))
    assert values.min() >= 0
    assert values.max() <= 1


def test_noise_of_the_sensor_has_its_variance() -> None:
    """A camera that does nothing but encode: on a flat picture, green has the sensor's noise where it was measured."""
    camera = Camera((1.0, 1.0, 1.0), ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), contrast=1.0)
    level = NoiseLevel(1e-3, 1e-4)
    flat = np.full((200, 200, 3), 0.5, np.float32)
    noisy, clean = photograph(flat, camera, level, np.random.default_rng(0))
    y = float(linearize(np.float32([0.5]), camera.gamma)[0])
    slope = float(np.diff(encode(np.array([y - 1e-4, y + 1e-4]), camera.gamma))[0]) / 2e-4
    measured = (noisy - clean)[::2, 1::2, 1].std()  # green of the first row of a cell
    assert measured == pytest.approx(slope * np.sqrt(level.a * y + level.b), rel=0.05)


def test_all_is_seeded_and_in_range() -> None:
    for seed in range(8):
        shots = []
        for _ in range(2):
            rng = np.random.default_rng(seed)
            shots.append(photograph(scene(), draw_camera(rng), draw_level(rng), rng))
        for image, again in zip(*shots, strict=True):
            assert np.array_equal(image, again)
            assert image.shape == (40, 46, 3)
            assert image.dtype == np.float32
            assert image.min() >= 0
            assert image.max() <= 1
            np.testing.assert_allclose(255 * image, np.rint(255 * image), atol=1e-4)
    assert not np.array_equal(shots[0][0], shots[0][1])


def test_draws_stay_within_their_ranges() -> None:
    rng = np.random.default_rng(0)
    cameras, levels = [draw_camera(rng) for _ in range(300)], [draw_level(rng, (-4, -3)) for _ in range(300)]
    assert {c.pattern for c in cameras} == set(PATTERNS)
    assert {c.method for c in cameras} == set(METHODS)
    assert 0.4 < np.mean([c.quality is None for c in cameras]) < 0.6
    qualities = [c.quality for c in cameras if c.quality is not None]
    assert 60 <= min(qualities) < 65 < 95 < max(qualities) <= 98
    assert all(1e-4 <= level.a <= 1e-3 and 1 <= np.sqrt(level.b) / level.a <= 6.001 for level in levels)
    for _ in range(50):
        matrix = np.array(draw_matrix(rng))
        np.testing.assert_allclose(matrix.sum(1), 1)
        assert (np.linalg.inv(matrix) > -0.1).all()  # sensors see no less than nothing of a colour
        assert (np.diag(matrix) >= 1).all()


def test_smoothing_and_sharpening() -> None:
    noise = np.random.default_rng(0).normal(0.15, 0.01, (60, 60)).astype(np.float32)
    spreads = [replace(Camera(), smooth=w).develop(noise).std() for w in (-0.04, 0.0, 0.1, 0.25)]
    assert spreads == sorted(spreads, reverse=True)
    luma = np.array([0.299, 0.587, 0.114])
    for times in (1, 2, 3):
        plain, smooth = (replace(Camera(), smooth_colors=n).develop(noise) for n in (0, times))
        np.testing.assert_allclose(smooth @ luma, plain @ luma, atol=1e-5)
        assert (smooth[..., 0] - smooth[..., 1]).std() < 0.8 * (plain[..., 0] - plain[..., 1]).std()


def test_compression_loses_more_at_lower_quality() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    errors = [np.abs(compress(picture, q, False).astype(float) - picture).mean() for q in (60, 80, 98)]
    assert errors == sorted(errors, reverse=True)
    assert np.abs(compress(picture, 98, True).astype(float) - picture).mean() > errors[2]


def test_noise_looks_like_that_of_photographs() -> None:
    """Strengths of colours and correlations of neighbours reach what was measured on those of real cameras."""
    rng = np.random.default_rng(0)
    figures = []
    for _ in range(40):
        flat = np.broadcast_to(rng.uniform(0.2, 0.7, 3).astype(np.float32), (96, 96, 3))
        noisy, clean = photograph(flat, draw_camera(rng), draw_level(rng), rng)
        d = (noisy - clean)[8:-8, 8:-8] * 255
        red, green = d[..., 0] - d[..., 0].mean(), d[..., 1] - d[..., 1].mean()
        one, two = ((green[:, step:] * green[:, :-step]).mean() / green.var() for step in (1, 2))
        shared = (red * green).mean() / (red.std() * green.std())
        figures.append((green.std(), red.std() / green.std(), one, two, shared))
    low, high = np.quantile(figures, [0.1, 0.9], axis=0)
    assert (low < [2.4, 1.4, 0.61, 0.21, 0.41]).all()
    assert (high > [6.5, 1.4, 0.61, 0.21, 0.41]).all()
