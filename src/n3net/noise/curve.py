"""How strong noise is at each intensity, from the image alone.

As :mod:`n3net.noise.white`, but apart for patches of similar brightness: the noise of sensors grows with the light, and
development bends it.

The noise of developed photographs is not white: demosaicking, sharpening and JPEG compression leave little of it in the
highest frequencies. In every third pixel of every third row, neighbours are far enough from each other to have noise of
their own, so photographs are measured in such parts of them. White noise gives the same there.

Such parts see texture where the photograph itself is calm. So noise is not taken for more than what the calmest patches
of the whole photograph allow, :func:`_ceiling`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from n3net.io.arrays import as_plain, numbers, white_of
from n3net.io.picture import peak_of
from n3net.noise.white import MEDIAN, PATCH, band, frequencies, patches_of

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.floating[Any]]

BINS = 24  # of intensity, equally many patches in each
PATCHES = 60_000  # that are looked at, of all channels together
CALM = 0.01  # part of a bin's patches that is used at least
FEWEST = 24  # patches that are used at least
STEP = 3  # pixels between those of a photograph that are looked at together
WIDTH = 0.08  # of the intensities that a point of a curve is a mean of, black 0 and white 1
POINTS = 33  # of a curve
TRUSTED = 0.5  # confidence from which on a curve is good to about 20 %
ABOVE = 2.0  # the most that noise can be, against what the calmest patches hold of it
GROWTH = 0.3  # of the intensities over which noise grows or falls by a factor e at most
DROPPED = 2  # bins that may be calm without telling the noise: a frame, or what a camera has smoothed
FINEST = 0.3 / 255  # what rounding to 8 bits leaves
BLUR = 7  # pixels along one side that tell the intensity of a noisy pixel


@dataclass(frozen=True)
class Bin:
    """Patches of similar brightness.

    Args:
        level: their mean, black 0 and white 1.
        sigma: standard deviation of the noise in the calmest of them, as values have it, clipped or not.
        patches: that are used.
        texture: energy of low frequencies against that of high ones in the patches used: 1 for noise alone.
        clipped: share of their values that are cut off at black or white.
    """

    level: float
    sigma: float
    patches: int
    texture: float
    clipped: float


def measure(channels: Sequence[Array], peak: float = 1.0) -> list[Bin]:
    """Noise at all intensities of some channels (H, W) that have the same noise, darkest first.

    Patches in which values are cut off are used like the others: what that takes from the noise is for the caller to
    give back. Patches without any noise, all black or all white, are not.
    """
    size = min(PATCH, *(side for channel in channels for side in channel.shape))
    if size < 4:
        return []
    found = [patches_of(c, size, PATCHES // len(channels)) for c in channels]
    patches = np.concatenate(found).astype(np.float32) / np.float32(peak)  # (N, size²)
    black = 0.0 if patches.min() >= 0 else -math.inf  # where values lie beyond, none were cut off
    white = 1.0 if patches.max() <= 1 else math.inf
    patches = patches[patches.min(1) < patches.max(1)]
    means = patches.mean(1)
    order = np.argsort(means, kind="stable")
    low, high = frequencies(size)
    count = min(BINS, len(patches) // FEWEST)
    return [
        _bin(patches[chosen], low, high, black, white) for chosen in (np.array_split(order, count) if count else [])
    ]


@dataclass(frozen=True)
class NoiseCurve:
    """Standard deviation of the noise as a function of intensity, both black 0 and white 1.

    Args:
        levels, sigmas: points of the curve, between which it is straight.
        confidence: 0 to 1, the share of what was measured that has hardly any texture in it. From
            :data:`TRUSTED` on, the curve can be trusted to about 20 % where the picture has intensities.
    """

    levels: Floats
    sigmas: Floats
    confidence: float

    def __call__(self, intensity: Any) -> Floats:
        return np.interp(intensity, self.levels, self.sigmas)


def estimate_curve(channel: Array, peak: float | None = None) -> NoiseCurve:
    """Of one channel (H, W) of a photograph.

    Args:
        channel: integers or floats.
        peak: the value of white; by default the largest of the integer type, 1 for floats.

    Example:
        >>> clean = np.linspace(0.1, 0.9, 300 * 300).reshape(300, 300)
        >>> noise = np.random.default_rng(0).standard_normal(clean.shape)
        >>> curve = estimate_curve(clean + (0.02 + 0.04 * clean) * noise)
        >>> [round(float(curve(level)), 2) for level in (0.25, 0.5, 0.75)]
        [0.03, 0.04, 0.05]
    """
    peak = peak_of(channel.dtype) if peak is None else peak
    step = STEP if min(channel.shape) >= STEP * PATCH else 1
    parts = [channel[row::step, column::step] for row in range(step) for column in range(step)]
    bins = measure(parts, peak)
    levels = np.linspace(0, 1, POINTS)
    if not bins:
        return NoiseCurve(levels, np.zeros(POINTS), 0.0)
    at, variances = np.array([b.level for b in bins]), np.square([b.sigma for b in bins])
    most = np.sqrt([b.patches for b in bins])
    weights = most / (1 + 4 * np.square([max(0.0, b.texture - 1) for b in bins]))
    near = weights * np.exp(-0.5 * np.square((levels[:, None] - at) / WIDTH)) + 1e-9 * weights  # (POINTS, bins)
    sigmas = np.minimum(np.sqrt((near * variances).sum(1) / near.sum(1)), _ceiling(channel, peak, levels))
    return NoiseCurve(levels, sigmas, float(weights.sum() / most.sum()))


def noise_map(image: Array, peak: float | None = None) -> tuple[npt.NDArray[np.float32], float]:
    """Noise of each pixel of a photograph (H, W) or (H, W, C) in gray levels of 0..255, (H, W), and the confidence.

    That of a pixel is the root mean square over its channels.
    """
    image = numbers(as_plain(image))
    peak = white_of(image, peak)
    channels = [image] if image.ndim == 2 else [image[..., c] for c in range(image.shape[2])]
    total, confidence = np.zeros(image.shape[:2], np.float32), 1.0
    for channel in channels:
        curve = estimate_curve(channel, peak)
        confidence = min(confidence, curve.confidence)
        total += np.square(curve(_blurred(channel.astype(np.float32) / np.float32(peak)))).astype(np.float32)
    return 255 * np.sqrt(total / len(channels)), confidence


def known_map(noisy: Floats, clean: Floats) -> npt.NDArray[np.float32]:
    """What :func:`noise_map` would find if it knew the clean photograph, (H, W, C) in [0, 1] both -> (H, W).

    Noise is measured where the clean one is calm, in the flatter half of its pixels, as a function of intensity.
    """
    gray = clean.mean(-1, dtype=np.float32)
    texture = _blurred(gray * gray) - _blurred(gray) ** 2
    calm = texture <= np.median(texture)
    levels = np.linspace(0, 1, POINTS)
    near = np.exp(-0.5 * np.square((levels[:, None] - levels) / WIDTH)) + 1e-9  # (POINTS, POINTS)
    total = np.zeros(gray.shape, np.float32)
    for c in range(clean.shape[-1]):
        at = _blurred(noisy[..., c].astype(np.float32)) * np.float32(POINTS - 1)
        place = np.rint(at[calm]).astype(np.intp)
        errors = np.square(noisy[..., c][calm] - clean[..., c][calm])
        sums, counts = np.bincount(place, errors, POINTS), np.bincount(place, minlength=POINTS)
        total += np.interp(at, np.arange(POINTS), near @ sums / (near @ counts))
    return 255 * np.sqrt(total / clean.shape[-1])


def _ceiling(channel: Array, peak: float, levels: Floats) -> Floats:
    """The most that noise can be at these levels.

    All of a patch's energy but that of its mean and slope is noise or texture. The calmest 2 % of the patches of
    similar brightness have hardly any texture, or the limit is too high; noise of other brightness differs little.
    """
    unknown = np.full(len(levels), math.inf)
    if min(channel.shape) < PATCH:
        return unknown
    patches = patches_of(channel, PATCH).astype(np.float32) / np.float32(peak)  # (N, size²)
    inside = (patches > 0) & (patches < 1)
    told = (inside.mean(1) > 0.9) & (patches.min(1) < patches.max(1))
    patches = patches[told]
    count = min(BINS, len(patches) // FEWEST)
    if count <= DROPPED:
        return unknown
    means, detail = patches.mean(1), band(PATCH, 2, 2 * PATCH)
    energy = np.sqrt(np.square(patches @ detail).sum(1) / detail.shape[1])  # (N,)
    bins = np.array_split(np.argsort(means, kind="stable"), count)
    at = np.array([means[chosen].mean() for chosen in bins])
    least = np.array([max(FINEST, float(np.quantile(energy[chosen], 2 * CALM))) for chosen in bins])
    limits = np.sort(least * np.exp(np.abs(levels[:, None] - at) / GROWTH), 1)  # (levels, bins)
    return ABOVE * limits[:, DROPPED]


def _blurred(channel: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Means over BLUR x BLUR pixels, fewer at the border."""
    x = torch.from_numpy(channel)[None, None]
    return F.avg_pool2d(x, BLUR, 1, BLUR // 2, count_include_pad=False)[0, 0].numpy()


def _bin(patches: Floats, low: Floats, high: Floats, black: float, white: float) -> Bin:
    coarse = np.abs(patches @ low)  # (N, low frequencies)
    texture = np.square(coarse).sum(1)  # (N,)
    fine = np.abs(patches @ high)  # (N, high frequencies)
    order = np.argsort(texture, kind="stable")
    used, sigma = order[: max(FEWEST, int(CALM * len(order)))], 0.0
    for _ in range(3):
        sigma = float(np.median(fine[used])) / MEDIAN
        calm = int((texture < sigma**2 * low.shape[1]).sum())  # as calm as noise alone
        used = order[: max(FEWEST, int(CALM * len(order)), calm)]
    sigma = float(np.median(fine[used])) / MEDIAN
    ratio = float(np.median(coarse[used])) / MEDIAN / max(sigma, 1e-12)  # a slope is in few frequencies and no texture
    values = patches[used]
    clipped = float(((values <= black) | (values >= white)).mean())
    return Bin(float(values.mean()), sigma, len(used), ratio**2, clipped)
