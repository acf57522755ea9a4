"""How strong the noise of an image is, from the image alone.

White noise is equally strong in all frequencies of a patch's cosine transform, while pictures are weak in the high
ones, and weakest where they are weak in the low ones too. So the patches with the least energy in low frequencies are
chosen, which says nothing about the noise in their high frequencies, and the median of the latter's magnitudes tells
the noise level, whatever a few textured patches among them do. (The idea is that of Ponomarenko et al., "An automatic
approach to lossy compression of AVIRIS images", IGARSS 2007.)

Files cut values off at black and white, which makes noise look weaker there. Patches whose mean is far enough from both
are preferred, and what clipping has taken from the others' variance is computed and given back.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from n3net.io.arrays import as_plain, numbers, white_of

PATCH = 8  # pixels along one side
PATCHES = 25_000  # that are looked at; more do not make the estimate better
CALM = 0.005  # part of the patches that is used at least
FEWEST = 100  # patches that are used at least
CLEAR = 2.5  # standard deviations of the noise that keep a patch clear of clipping
MEDIAN = 0.6745  # of the magnitude of a standard Gaussian

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.floating]
Indices = npt.NDArray[np.intp]


def estimate_sigma(image: Array, peak: float | None = None) -> tuple[float, ...]:
    """Standard deviation of the noise in each channel, in gray levels of 0..255.

    Args:
        image: (H, W) or (H, W, C), integers or floats.
        peak: the value of white; by default the largest of the integer type, 1 for floats.

    White Gaussian noise of 3 to 75 gray levels on photographs is found to within 10 % or 1 gray level, before or after
    clipping to black and white, unless fine texture fills the whole picture. Noise that is not white, as in JPEG files
    or after demosaicking, is underestimated. Flat images, and those smaller than 4 pixels, give 0.

    Example:
        >>> noisy = np.random.default_rng(0).normal(128, 20, (128, 128))
        >>> [round(sigma) for sigma in estimate_sigma(noisy, peak=255)]
        [20]
    """
    image = as_plain(image)
    if image.ndim not in (2, 3) or 0 in image.shape:
        raise ValueError(f"image: expected shape (H, W) or (H, W, C), got {image.shape}")
    peak = white_of(numbers(image), peak)
    channels = image[..., None] if image.ndim == 2 else image
    return tuple(255 * _sigma(channels[..., c], peak) for c in range(channels.shape[-1]))


def _sigma(channel: Array, peak: float) -> float:
    """Of one channel, as a part of white's value."""
    size = min(PATCH, *channel.shape)
    if size < 4:
        return 0.0
    patches = patches_of(channel, size).astype(np.float32) / np.float32(peak)  # (N, size²)
    black = 0.0 if patches.min() >= 0 else -math.inf  # where values lie beyond, none were cut off
    white = 1.0 if patches.max() <= 1 else math.inf
    patches = patches[~((patches <= black) | (patches >= white)).all(1)]  # these tell nothing
    if len(patches) == 0:
        return 0.0
    low, high = frequencies(size)
    texture = np.square(patches @ low).sum(1)  # (N,)
    fine = np.abs(patches @ high)  # (N, high frequencies)
    means = patches.mean(1, dtype=np.float64)
    distance = np.minimum(means - black, white - means)
    sigma, limit = 0.1, 0.0
    for _ in range(3):
        chosen = _clear_of_clipping(distance, CLEAR * sigma)
        chosen = _calmest(texture, chosen, limit)
        sigma = _unclipped(float(np.median(fine[chosen])) / MEDIAN, means[chosen], black, white)
        limit = sigma**2 * low.shape[1]  # texture that noise alone has
    return sigma


def patches_of(channel: Array, size: int, most: int = PATCHES) -> Array:
    """Patches on a regular grid, as dense as ``most`` allows, (N, size²)."""
    windows = np.lib.stride_tricks.sliding_window_view(channel, (size, size))
    step = max(1, math.ceil(math.sqrt(windows.shape[0] * windows.shape[1] / most)))
    return windows[::step, ::step].reshape(-1, size * size)


def frequencies(size: int) -> tuple[Floats, Floats]:
    """Bases of a patch's low frequencies, without its mean, and of its high ones, (size², n) each."""
    return band(size, 1, size), band(size, size + 2, 2 * size)


def band(size: int, first: int, last: int) -> Floats:
    """Cosines of a patch whose two frequencies sum to ``first`` to ``last``, (size², n)."""
    n = np.arange(size)
    cosines = np.cos(np.pi * (n[:, None] + 0.5) * n / size) * math.sqrt(2 / size)  # (pixel, frequency)
    cosines[:, 0] /= math.sqrt(2)
    basis = np.kron(cosines, cosines).astype(np.float32)  # (size², size²)
    frequency = (n[:, None] + n).ravel()
    return basis[:, (frequency >= first) & (frequency <= last)]


def _clear_of_clipping(distance: Floats, least: float) -> Indices:
    """Patches whose mean is so far from black and white, or, if they are few, the quarter that is farthest."""
    clear = np.flatnonzero(distance > least)
    if len(clear) >= max(FEWEST, len(distance) // 10):
        return clear
    return np.argsort(-distance, kind="stable")[: max(FEWEST, len(distance) // 4)]


def _calmest(texture: Floats, chosen: Indices, limit: float) -> Indices:
    """Those of the chosen patches with the least texture: all below the limit, or as many as are needed."""
    count = max(FEWEST, int(CALM * len(texture)), int((texture[chosen] < limit).sum()))
    return chosen[np.argsort(texture[chosen], kind="stable")[:count]]


def _unclipped(sigma: float, means: Floats, black: float, white: float) -> float:
    """Standard deviation before clipping of noise that has ``sigma`` after it, in patches with these means."""
    if min(means.min() - black, white - means.max()) > 4 * sigma:
        return sigma
    levels = np.quantile(means, np.linspace(0.025, 0.975, 20))
    low, high = sigma, 2 * sigma + 0.01
    for _ in range(16):
        middle = (low + high) / 2
        if _clipped_variance(levels, middle, black, white) < sigma**2:
            low = middle
        else:
            high = middle
    return low


def _clipped_variance(levels: Floats, sigma: float, black: float, white: float) -> float:
    """Mean variance of clipped Gaussian noise where its mean after clipping has these levels."""
    truth = np.linspace(-0.5, 1.5, 101)
    a, b = (black - truth) / sigma, (white - truth) / sigma  # bounds of the standard Gaussian z
    below, above, inside = _tail(-a), _tail(b), 1 - _tail(-a) - _tail(b)
    density_a, density_b = (np.exp(-0.5 * np.square(x)) / math.sqrt(2 * math.pi) for x in (a, b))
    z = density_a - density_b  # mean of z between the bounds, and of z²
    z_square = inside + np.where(np.isinf(a), 0, a) * density_a - np.where(np.isinf(b), 0, b) * density_b
    mean = truth * inside + sigma * z
    square = truth**2 * inside + 2 * truth * sigma * z + sigma**2 * z_square
    if math.isfinite(black):
        mean, square = mean + black * below, square + black**2 * below
    if math.isfinite(white):
        mean, square = mean + white * above, square + white**2 * above
    return float(np.interp(levels, mean, square - mean**2).mean())


def _tail(x: Floats) -> Floats:
    """Probability that a standard Gaussian is larger."""
    return np.array([0.5 * math.erfc(v / math.sqrt(2)) for v in x])
