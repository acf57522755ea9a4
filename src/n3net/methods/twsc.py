"""TWSC (Xu, Zhang and Zhang 2018) for photographs: groups of similar patches, sparse in their own principal components.

All three colours of a patch are one vector. Noise is measured patch by patch, by how much of it has been removed so
far, and says how much the coefficients of a patch are shrunk and how much the patch counts. Settings are those of the
authors' program for photographs, in which the weights of rows are switched off and so no iterative solver is needed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from n3net.models.interface import Network
from n3net.neighbors.similar import Search, similar_patches

SEARCH = Search(patch=6, step=3, radius=20, count=70)
ROUNDS = 7
STRENGTH = 4.9  # what a patch's noise is multiplied by
AGAIN = 2  # groups are found anew every so many rounds
LEAST_SIDE = 24  # of an image, so that there are enough patches
GRID_ROWS = 4  # that are filtered at a time
EPSILON = 1e-8


def twsc(
    noisy: Tensor,
    sigma: float | None = None,
    rounds: int = ROUNDS,
    strength: float = STRENGTH,
    progress: Callable[[float], None] | None = None,
) -> Tensor:
    """Remove the noise of a photograph.

    Args:
        noisy: (C, H, W), black 0, white 1.
        sigma: standard deviation of the noise in gray levels of 0..255, by default as :func:`estimate_noise` finds it.
        rounds, strength: the authors' 7 and 4.9 for CC15, 8 and 3 for the Darmstadt Noise Dataset.
        progress: called with the part that is done, 0 to 1.

    Returns:
        The image, of the same shape, not clipped.
    """
    height, width = noisy.shape[1:]
    more = max(0, LEAST_SIDE - width), max(0, LEAST_SIDE - height)
    image = F.pad(noisy, (0, more[0], 0, more[1]), mode="replicate")
    variance = ((estimate_noise(image) if sigma is None else sigma) / 255) ** 2
    current, index = image, torch.empty(0)
    for number in range(rounds):
        if number % AGAIN == 0:
            index, _ = similar_patches(current, SEARCH)
        removed = F.avg_pool2d((image - current).square().mean(0)[None, None], SEARCH.patch, 1)[0, 0]
        noise = strength * (variance - removed).abs().sqrt()  # (H - P + 1, W - P + 1)
        current = _filter(current, index, noise)
        if progress is not None:
            progress((number + 1) / rounds)
    return current[:, :height, :width]


def estimate_noise(image: Tensor) -> float:
    """The noise of an image (C, H, W) in gray levels, from the eigenvalues of its patches (Chen, Zhu and Heng 2015).

    Those of noise alone lie around their mean, as many above it as below. Larger ones come from the picture and are
    left out until that is so.
    """
    variances = []
    for channel in 255 * image.double():
        patches = _patches(channel[None], *(SEARCH.starts(side) for side in channel.shape))  # (Q, P P)
        values = torch.linalg.eigvalsh(torch.cov(patches.T, correction=0)).clamp(min=0)  # ascending
        while len(values) > 1 and (values > values.mean()).sum() != (values < values.mean()).sum():
            values = values[:-1]
        variances.append(values.mean())
    return float(torch.stack(variances).mean().sqrt())


def _patches(image: Tensor, ys: Tensor, xs: Tensor) -> Tensor:
    """Those that begin at these rows and columns: (C, H, W) -> (Q, C P P)."""
    windows = image.unfold(1, SEARCH.patch, 1).unfold(2, SEARCH.patch, 1)[:, ys[:, None], xs]  # (C, Qh, Qw, P, P)
    return windows.permute(1, 2, 0, 3, 4).flatten(0, 1).flatten(1)


def _filter(image: Tensor, index: Tensor, noise: Tensor) -> Tensor:
    """One round: all groups, some rows of the grid at a time."""
    channels, height, width = image.shape
    p, across = SEARCH.patch, width - SEARCH.patch + 1
    total, weights = torch.zeros_like(image), image.new_zeros(1, height, width)
    for members in index.split(GRID_ROWS):
        members = members.flatten(0, 1).long()  # (Q, n)
        ys, xs = members // width, members % width
        top = int(ys.min())
        rows = slice(top, int(ys.max()) + p)
        windows = image[:, rows].unfold(1, p, 1).unfold(2, p, 1)  # (C, h, w, P, P)
        patches = windows.permute(1, 2, 0, 3, 4).reshape(-1, channels * p * p)  # (L, D)
        places, level = (ys - top) * across + xs, noise[ys, xs]  # (Q, n)
        weight = 1 / (level + EPSILON)
        filtered = shrink(patches[places], level) * weight[..., None]  # (Q, n, D)
        sums = torch.zeros_like(patches).index_add_(0, places.flatten(), filtered.flatten(0, 1))
        counts = torch.zeros_like(patches[:, : p * p])
        counts += counts.new_zeros(len(patches)).index_add_(0, places.flatten(), weight.flatten())[:, None]
        size = (rows.stop - top, width)
        total[:, rows] += F.fold(sums.T[None], size, p)[0]
        weights[:, rows] += F.fold(counts.T[None], size, p)[0]
    return total / weights


def shrink(patches: Tensor, level: Tensor) -> Tensor:
    """Groups of patches, sparse in the principal components of each.

    Args:
        patches: (Q, n, D), of each group the one first around which it was found.
        level: standard deviation of the noise of each, times the strength, (Q, n).

    Returns:
        (Q, n, D).
    """
    mean = patches.mean(1, keepdim=True)
    centered = patches - mean
    gram = centered @ centered.mT  # (Q, n, n)
    floor = patches.shape[1] * level[:, 0].square()  # what noise adds to an eigenvalue, (Q,)
    some = torch.linalg.matrix_norm(gram) > floor  # the norm bounds eigenvalues: the others have none above the floor
    out = mean.repeat(1, patches.shape[1], 1)
    if some.any():
        out[some] += _coefficients(gram[some], level[some], floor[some]) @ centered[some]
    return out


def _coefficients(gram: Tensor, level: Tensor, floor: Tensor) -> Tensor:
    """What each member of a group becomes, as a combination of all members: (Q, n, n)."""
    values, vectors = torch.linalg.eigh(gram)  # (Q, n), (Q, n, n)
    clean = (values - floor[:, None]).clamp(min=0).sqrt()[:, None]  # (Q, 1, n)
    singular = values.clamp(min=EPSILON**2).sqrt()[:, None]
    coefficients = vectors * singular  # of member j along component k
    limit = level.square()[..., None] / clean.clamp(min=EPSILON)
    shrunk = coefficients.sign() * (coefficients.abs() - limit).clamp(min=0) * (clean > 0)
    return (shrunk / singular) @ vectors.mT


class TWSC(Network):
    """:func:`twsc` in the place of a network, (B, C, H, W) -> (B, C, H, W).

    It sees the whole image, as patches reach further from round to round, and estimates the noise itself.
    """

    tells_progress = True
    estimates_noise = True
    estimator = staticmethod(estimate_noise)

    def forward(self, x: Tensor, progress: Callable[[float], None] | None = None) -> Tensor:
        return torch.stack([twsc(image, progress=progress) for image in x])
