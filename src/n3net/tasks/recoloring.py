"""Other colours for training crops, so that a few hundred images show more of them than they have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3net.imaging.color import LUMA

Floats = NDArray[np.float32]

MIXING = 0.15  # standard deviation of what a channel takes from another
SATURATION = (0.0, 2.0)  # from gray to twice as colourful
GAMMA = (0.7, 1.4)


def recolor(crop: NDArray[Any], rng: np.random.Generator) -> Floats:
    """A crop (H, W, 1) or (H, W, 3) of 0..255 with other colours, (H, W, C) in [0, 1].

    Each with a chance of one half: channels are exchanged; a part of each is mixed into the others; colours are made
    weaker or stronger; the crop is made brighter or darker by a power of its values. Gray stays gray, and so do black
    and white.
    """
    values = np.asarray(crop, np.float32) / np.float32(255)
    if values.shape[-1] == 3:
        values = np.clip(values @ draw_matrix(rng).T.astype(np.float32), 0, 1)
    if rng.random() < 0.5:
        values = values ** np.float32(np.exp(rng.uniform(*np.log(GAMMA))))
    return values


def draw_matrix(rng: np.random.Generator) -> NDArray[np.float64]:
    """What colours are multiplied with, (3, 3). Its rows sum to 1: what is gray stays as it is."""
    matrix = np.eye(3)
    if rng.random() < 0.5:
        matrix = matrix[rng.permutation(3)]
    if rng.random() < 0.5:
        mixed = rng.normal(0, MIXING, (3, 3))
        matrix = (np.eye(3) + mixed - np.diag(mixed.sum(1))) @ matrix
    if rng.random() < 0.5:
        matrix = saturate(rng.uniform(*SATURATION)) @ matrix
    return matrix


def saturate(factor: float) -> NDArray[np.float64]:
    """The matrix that multiplies a colour's distance from the gray of its luminance, (3, 3)."""
    return factor * np.eye(3) + (1 - factor) * np.array(LUMA)
