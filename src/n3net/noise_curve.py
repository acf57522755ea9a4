"""How strong noise is at each intensity, from the image alone.

As :mod:`n3net.noise`, but apart for patches of similar brightness: the noise of sensors grows with the light.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.noise import MEDIAN, PATCH, frequencies, patches_of

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.floating[Any]]

BINS = 24  # of intensity, equally many patches in each
PATCHES = 60_000  # that are looked at, of all channels together
CALM = 0.03  # part of a bin's patches that is used at least
FEWEST = 24  # patches that are used at least


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


def _bin(patches: Floats, low: Floats, high: Floats, black: float, white: float) -> Bin:
    texture = np.square(patches @ low).sum(1)  # (N,)
    fine = np.abs(patches @ high)  # (N, high frequencies)
    order = np.argsort(texture, kind="stable")
    used, sigma = order[: max(FEWEST, int(CALM * len(order)))], 0.0
    for _ in range(3):
        sigma = float(np.median(fine[used])) / MEDIAN
        calm = int((texture < sigma**2 * low.shape[1]).sum())  # as calm as noise alone
        used = order[: max(FEWEST, int(CALM * len(order)), calm)]
    sigma = float(np.median(fine[used])) / MEDIAN
    energy = float(np.median(texture[used])) / low.shape[1]
    values = patches[used]
    clipped = float(((values <= black) | (values >= white)).mean())
    return Bin(float(values.mean()), sigma, len(used), energy / max(sigma, 1e-12) ** 2, clipped)
