"""Arrays that a program gives as images: made plain, and refused in words where they are none."""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.io.picture import peak_of

Array = npt.NDArray[Any]

# How far from black (0) and white (1) noise may take a value: that of 75 gray levels stays within -1.6 and 2.6. What
# lies beyond was not meant as brightness, or white was not what it was taken for.
LOWEST, HIGHEST = -2.0, 3.0


def as_image(image: Any, name: str = "image") -> Array:
    """An array (H, W) or (H, W, 3) of uint8, uint16 or floats, all of them numbers.

    Args:
        image: such an array, or what numpy makes one of: a list, a picture of Pillow, a tensor of PyTorch.
        name: of the argument, for the message.

    Raises:
        ValueError: it is something else.
    """
    pixels = as_plain(image, name)
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3) or 0 in pixels.shape:
        first = pixels.ndim == 3 and pixels.shape[0] in (1, 3)
        hint = "; put the channels last, image.transpose(1, 2, 0)" if first else ""
        raise ValueError(f"{name}: expected shape (H, W) or (H, W, 3), got {pixels.shape}{hint}")
    if pixels.dtype.kind != "f" and not (pixels.dtype.kind == "u" and pixels.dtype.itemsize <= 2):
        raise ValueError(f"{name}: expected uint8, uint16 or floats, got {pixels.dtype}; convert it with astype")
    return numbers(pixels, name)


def as_plain(image: Any, name: str = "image") -> Array:
    """An array as numpy itself has it, no matrix, and nothing masked."""
    if isinstance(image, str | PurePath):
        raise ValueError(f"{name}: expected an array, got {_words(image)}; open the file first, with Pillow for one")
    if image is None or isinstance(image, bytes | dict | set):
        raise ValueError(f"{name}: expected an array, got {_words(image)}")
    if isinstance(image, np.ma.MaskedArray):
        masked = int(np.ma.count_masked(image))
        if masked:
            raise ValueError(
                f"{name}: {masked} of its {image.size} values are masked; fill them first, image.filled(0)"
            )
        image = image.data
    if hasattr(image, "detach"):  # a tensor that knows its gradient, or is on another device
        image = image.detach().cpu()
    try:
        return np.asarray(image)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name}: expected an array, got {_words(image)} ({error})") from None


def numbers(pixels: Array, name: str = "image") -> Array:
    """The same pixels, which must all be numbers."""
    problem = not_numbers(pixels)
    if problem:
        raise ValueError(f"{name}: {problem}; replace them first")
    return pixels


def not_numbers(pixels: Array) -> str | None:
    """How many values are no numbers and where the first is, or None."""
    if pixels.dtype.kind != "f" or (math.isfinite(pixels.min()) and math.isfinite(pixels.max())):
        return None
    places = np.argwhere(~np.isfinite(pixels))
    where = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column", "channel"), places[0].tolist(), strict=False))
    return f"{len(places)} of its {pixels.size} values are not numbers (NaN or infinity), the first at {where}"


def white_of(pixels: Array, peak: float | None = None, name: str = "image") -> float:
    """The value of white, by default that of the type.

    Raises:
        ValueError: it is no such value, or the pixels do not fit it.
    """
    white = peak_of(pixels.dtype) if peak is None else peak
    if isinstance(white, bool) or not isinstance(white, int | float | np.number) or not 0 < white < math.inf:
        raise ValueError(f"peak: expected a finite number above 0, the value of white, got {peak!r}")
    if pixels.dtype.kind == "u" and white > np.iinfo(pixels.dtype).max:
        raise ValueError(f"peak: expected at most {np.iinfo(pixels.dtype).max} for {pixels.dtype}, got {peak!r}")
    problem = beyond(pixels, float(white))
    if problem:
        raise ValueError(f"{name}: {problem}; pass peak= with the value of white, or replace what is no brightness")
    return float(white)


def beyond(pixels: Array, white: float) -> str | None:
    """What values there are where they lie too far outside black and white, or None."""
    if pixels.dtype.kind == "u" and white == np.iinfo(pixels.dtype).max:
        return None
    low, high = float(pixels.min()), float(pixels.max())
    if LOWEST * white <= low and high <= HIGHEST * white:
        return None
    return f"values from {low:g} to {high:g}, expected black 0 to white {white:g}, give or take the noise"


def _words(image: Any) -> str:
    return "None" if image is None else f"{type(image).__module__}.{type(image).__qualname__}".removeprefix("builtins.")
