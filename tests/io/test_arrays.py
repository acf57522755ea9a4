"""Arrays that people give as images: what is made plain, and what is refused in which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import n3net
from n3net.io.arrays import as_image, white_of
from n3net.models import create
from n3net.noise.curve import noise_map
from n3net.noise.sensor import NoiseLevel
from n3net.noise.sensor_estimate import estimate_level
from n3net.noise.white import estimate_sigma
from n3net.restoration.photographs import denoise_photograph
from n3net.restoration.raw import denoise_plane

EIGHT = np.random.default_rng(0).integers(0, 256, (24, 30), np.uint8)
FLOATS = (EIGHT / 255).astype(np.float32)


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(0)
    return create("dncnn", depth=2, features=2, noise_map=True)


@pytest.mark.parametrize(
    "given",
    [
        EIGHT.view(np.matrix),
        np.ma.array(EIGHT),
        np.rec.array(EIGHT),
        Image.fromarray(EIGHT),
        torch.from_numpy(EIGHT),
        np.asfortranarray(EIGHT),
        EIGHT[::-1][::-1],
        EIGHT.view(np.memmap),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_numpy_makes_an_array_of(given: Any, net: Any) -> None:
    out = n3net.denoise(given, 25.0, net)
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, n3net.denoise(EIGHT, 25.0, net))


def test_lists_and_other_orders_of_bytes(net: Any) -> None:
    expected = n3net.denoise(FLOATS, 25.0, net)
    np.testing.assert_allclose(n3net.denoise(FLOATS.tolist(), 25.0, net), expected, rtol=1e-5)
    swapped = n3net.denoise(FLOATS.astype(">f4"), 25.0, net)
    assert swapped.dtype == ">f4"
    np.testing.assert_array_equal(swapped, expected)
    turned = torch.from_numpy(FLOATS).requires_grad_()
    np.testing.assert_array_equal(n3net.denoise(turned, 25.0, net), expected)


def spoiled(value: float) -> Any:
    image = np.stack([FLOATS] * 3, -1)
    image[3, 4, 1] = image[5, 6, 2] = value
    return image


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "image: expected an array, got None"),
        ("a.png", "image: expected an array, got str; open the file first"),
        (Path("a.png"), "got pathlib"),
        (b"123", "got bytes"),
        ({"a": 1}, "got dict"),
        ([[1, 2], [3]], "image: expected an array, got list"),
        (object(), "image: expected shape (H, W) or (H, W, 3), got ()"),
        (EIGHT[0], "image: expected shape (H, W) or (H, W, 3), got (30,)"),
        (EIGHT[:0], "got (0, 30)"),
        (np.stack([EIGHT] * 3), "got (3, 24, 30); put the channels last"),
        (EIGHT.astype(int), "image: expected uint8, uint16 or floats, got int64; convert it with astype"),
        (EIGHT > 3, "got bool"),
        (FLOATS.astype(complex), "got complex128"),
        (np.ma.array(EIGHT, mask=EIGHT > 254), "values are masked; fill them first"),
        (torch.rand(8, 8, dtype=torch.bfloat16), "image: expected an array, got torch.Tensor"),
        (
            spoiled(np.nan),
            "2 of its 2160 values are not numbers (NaN or infinity), the first at row 3, column 4, channel 1",
        ),
        (spoiled(-np.inf), "2 of its 2160 values are not numbers"),
        (FLOATS * 4, "image: values from 0 to 4, expected black 0 to white 1, give or take the noise; pass peak="),
        (np.where(FLOATS < 0.1, -9999, FLOATS), "image: values from -9999 to 1, expected black 0 to white 1"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_refused_in_words(given: Any, message: str, net: Any) -> None:
    for door in (
        lambda: n3net.denoise(given, 25.0, net),
        lambda: n3net.upscale(given, 2, create("vdsr", depth=3, features=2)),
        lambda: denoise_photograph(given, net),
    ):
        with pytest.raises(ValueError, match=r".+") as error:
            door()
        assert message in str(error.value)


@pytest.mark.parametrize("peak", [0, -1, np.nan, np.inf, "1", True])
@pytest.mark.parametrize("image", [EIGHT, FLOATS])
def test_peaks_that_are_none(peak: Any, image: Any) -> None:
    with pytest.raises(ValueError, match="peak: expected a finite number above 0, the value of white, got"):
        white_of(image, peak)


def test_peaks_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="peak: expected at most 255 for uint8, got 1000"):
        white_of(EIGHT, 1000)
    with pytest.raises(ValueError, match="values from 0 to 255, expected black 0 to white 10"):
        white_of(EIGHT, 10)
    assert white_of(EIGHT) == 255
    assert white_of(FLOATS * 900, 900) == 900
    assert white_of(FLOATS.astype(np.float16) * 2, np.float32(1)) == 1


def test_strong_noise_around_black_and_white_is_no_mistake() -> None:
    noise = np.random.default_rng(0).normal(0, 75 / 255, (2, 1000, 1000))
    noisy = noise + np.array([0.0, 1.0])[:, None, None]
    assert noisy.min() < -1.2
    assert noisy.max() > 2.2
    assert white_of(noisy) == 1


DOORS: list[Callable[[Any], Any]] = [
    lambda image: n3net.match(FLOATS, image),
    lambda image: denoise_plane(image, NoiseLevel(0.01, 0.001)),
    lambda image: estimate_level([image]),
    estimate_sigma,
    noise_map,
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "expected an array, got None"),
        (np.ma.array(FLOATS, mask=FLOATS > 0.9), "values are masked"),
        (np.where(FLOATS > 0.99, np.nan, FLOATS), "values are not numbers (NaN or infinity), the first at row"),
    ],
)
def test_other_doors_speak_the_same_words(door: Callable[[Any], Any], given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r".+") as error:
        door(given)
    assert message in str(error.value)


def test_raw_planes() -> None:
    with pytest.raises(ValueError, match="plane: values from 0 to 255, expected black 0 to white 1"):
        denoise_plane(FLOATS * 255, NoiseLevel(0.01, 0.001))
    with pytest.raises(ValueError, match=r"plane: expected floats of shape \(H, W\), got uint8"):
        denoise_plane(EIGHT, NoiseLevel(0.01, 0.001))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level: expected a and b of at least 0"):
        denoise_plane(FLOATS, NoiseLevel(float("nan"), 0.001))


def test_an_image_keeps_its_memory() -> None:
    assert as_image(EIGHT) is EIGHT
