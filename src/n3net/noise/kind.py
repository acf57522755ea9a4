"""Whether the noise of an image is white or that of a camera, from the image alone.

White noise is that of a sensor before development, of scanners and of most experiments: each pixel errs on its own. A
camera's development makes neighbours err alike: demosaicking fills in two of three colours from the pixels around,
denoising and JPEG take away what is fine. So it is asked, in the calmest patches of the image, whether the noise is as
strong in middle frequencies as it is in high ones; and whether the colours err each on its own or all alike, as where
white noise was compressed. Noise too weak to be asked is taken for a camera's, as white noise so weak needs no removal.

Drawings and pictures of screens have none: in most of their patches most pixels are the same as their neighbours.

That noise depends on brightness does not tell the two apart: that of a sensor does so before development, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.io.arrays import as_plain, numbers, white_of
from n3net.noise.white import MEDIAN, PATCH, band, frequencies, patches_of

Array = npt.NDArray[Any]

PATCHES = 12_000  # that are looked at
CALM = 0.02  # part of the patches that is used at least
FEWEST = 100  # patches that are used at least
WEAK = 1.0  # gray levels in high frequencies below which noise is not asked
SAME = 0.55  # part of a patch's pixels that are as their neighbours, in half of a drawing's patches at least
ALIKE = 1.25  # noise of middle frequencies against that of high ones from which on neighbours err alike
SHARED = 1.6  # variance of the mean over colours, against that of independent ones, from which on they err alike


@dataclass(frozen=True)
class Kind:
    """What kind of noise there is.

    Args:
        camera: whether it is that of a camera, otherwise it is white.
        shared: whether it is white and the same in all colours.
        why: in words.
        sigma: in high frequencies, in gray levels of 0..255.
        ratio: strength in middle frequencies against that in high ones, about 1 for white noise.
        colors: variance of the mean over colours against that of independent ones, 1 to 3; 1 for gray images.
    """

    camera: bool
    shared: bool
    why: str
    sigma: float = 0.0
    ratio: float = 1.0
    colors: float = 1.0


def kind_of_noise(image: Array, peak: float | None = None) -> Kind:
    """Look at an image (H, W) or (H, W, C).

    Args:
        image: integers or floats.
        peak: the value of white; by default the largest of the integer type, 1 for floats.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> noise = rng.normal(0, 20, (128, 128))
        >>> kind_of_noise(128 + noise, peak=255).camera
        False
        >>> kind_of_noise(128 + (noise + np.roll(noise, 1, 0)), peak=255).why
        'neighbouring pixels err alike'
    """
    image = numbers(as_plain(image))
    peak = white_of(image, peak)
    channels = [image] if image.ndim == 2 else [image[..., c] for c in range(image.shape[2])]
    if min(image.shape[:2]) < PATCH:
        return Kind(False, False, "too small to tell")
    if is_drawn(image, peak):
        return Kind(False, False, "drawn, hardly any")
    patches = [
        patches_of(channel, PATCH, PATCHES).astype(np.float32) / np.float32(peak) for channel in channels
    ]  # (N, size²)
    used = _least_clipped(patches)
    used = used[_calmest([p[used] for p in patches])]
    middle, high = band(PATCH, PATCH - 1, PATCH), frequencies(PATCH)[1]
    fine = [p[used] @ high for p in patches]  # (n, high frequencies) of each channel
    variances = [_variance(f) for f in fine]
    sigma = 255 * float(np.sqrt(np.mean(variances)))
    if sigma < WEAK:
        return Kind(True, False, "hardly any in fine detail", sigma)
    ratio = float(np.sqrt(np.mean([_variance(p[used] @ middle) for p in patches]) / np.mean(variances)))
    mean = sum(fine[1:], fine[0]) / np.float32(len(fine))
    colors = float(_variance(mean) / (np.sum(variances) / len(fine) ** 2))
    measured = sigma, ratio, colors
    if ratio >= ALIKE:
        return Kind(True, False, "neighbouring pixels err alike", *measured)
    if colors >= SHARED:
        return Kind(False, True, "pixels err independently, their colours alike", *measured)
    return Kind(False, False, "pixels err independently", *measured)


def is_drawn(image: Array, peak: float) -> bool:
    """Whether pixels are as their neighbours where an image is neither one colour, nor black or white."""
    channels = [image] if image.ndim == 2 else [image[..., c] for c in range(image.shape[2])]
    same = np.logical_and.reduce([c[:, 1:] == c[:, :-1] for c in channels])  # (H, W - 1)
    clipped = np.logical_and.reduce([(c[:, 1:] <= 0) | (c[:, 1:] >= peak) for c in channels])
    if min(same.shape) < PATCH:
        return False
    share, cut = (patches_of(x, PATCH, PATCHES).mean(1) for x in (same & ~clipped, clipped))  # (N,)
    asked = share[(cut < 0.1) & (share < 1)]
    return len(asked) >= FEWEST and float(np.median(asked)) > SAME


def _least_clipped(patches: list[Array]) -> npt.NDArray[np.intp]:
    """Patches in which no value is cut off at black or white, or, if they are few, the quarter with the fewest."""
    count = np.zeros(len(patches[0]), np.intp)
    for p in patches:
        if p.min() >= 0:  # where values lie beyond, none were cut off
            count += (p <= 0).sum(1)
        if p.max() <= 1:
            count += (p >= 1).sum(1)
    order = np.argsort(count, kind="stable")
    return order[: max(int((count == 0).sum()), FEWEST, len(order) // 4)]


def _calmest(patches: list[Array]) -> npt.NDArray[np.intp]:
    """Those with no more energy in low frequencies than noise alone has, or as many as are needed."""
    low, high = frequencies(PATCH)
    texture = sum(np.square(p @ low).sum(1) for p in patches)  # (N,)
    fine = [p @ high for p in patches]
    order = np.argsort(texture, kind="stable")
    least = max(FEWEST, int(CALM * len(order)))
    used = order[:least]
    for _ in range(3):
        limit = low.shape[1] * sum(_variance(f[used]) for f in fine)
        used = order[: max(least, int((texture < limit).sum()))]
    return used


def _variance(coefficients: Array) -> float:
    """Of noise in frequencies that only a few patches have texture in."""
    return (float(np.median(np.abs(coefficients))) / MEDIAN) ** 2
