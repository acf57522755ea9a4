"""WSD-SR (Cruz et al. 2018), our version: Wiener filters along groups of similar patches, and back-projection, in turn.

The paper's outline: an image is enlarged, patches of it are grouped with similar ones, and each group is filtered along
the similarity alone, pixel of a patch by pixel; what the members agree on stays, details that one has and the others
lack are shared. Then the result is corrected so that it gives the small image when it is reduced. From round to round
the filter is weaker. Neither a program nor the settings are public; ours were chosen on training images of BSDS500.
"""

from __future__ import annotations

import torch
from torch import Tensor

from n3net.imaging.resizing import Size
from n3net.methods.collaborative import collaborate
from n3net.methods.enlarging import Progress, back_project, bicubic
from n3net.methods.transforms import kaiser
from n3net.neighbors.similar import Search, similar_patches

SEARCH = Search(patch=10, step=3, radius=15, count=32)
FIRST, LAST, ROUNDS = 36.0, 2.0, 30  # strength of the filter in gray levels, from the first round to the last
BETA = 2.0  # of the Kaiser window
BAND = 42  # rows that are filtered one after the other


def wsdsr(small: Tensor, size: Size, progress: Progress | None = None) -> Tensor:
    """Enlarge the luminance of an image.

    Args:
        small: (1, h, w) in [0, 1].
        size: height and width of the result.
        progress: called after each round.

    Returns:
        (1, H, W), not clipped.
    """
    out = back_project(bicubic(small, size), small, 3)
    if min(size) < SEARCH.patch:
        return out
    itself, window = torch.eye(SEARCH.patch), kaiser(SEARCH.patch, BETA)
    for number in range(ROUNDS):
        strength = FIRST * (LAST / FIRST) ** (number / (ROUNDS - 1))
        image = 255 * out
        index, _ = similar_patches(image, SEARCH)
        level = image.new_full((1, *index.shape[:2]), strength)
        filtered = collaborate(image, index, level, SEARCH, (itself, itself), window, guide=image, band=BAND)
        out = back_project(filtered / 255, small)
        if progress is not None:
            progress((number + 1) / ROUNDS)
    return out
