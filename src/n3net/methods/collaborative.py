"""Groups of similar patches, filtered together in a transform of three dimensions (Dabov et al. 2007).

What the patches of a group share falls into few coefficients of a transform of the patches and along the group, and
noise into all. Small coefficients are dropped, or all are shrunk as a guide says; then the patches return to their
places, where those that overlap are averaged.
"""

from __future__ import annotations

import torch
from torch import Tensor

from n3net import kernel
from n3net.methods.transforms import haar
from n3net.neighbors.similar import Search

GROUPS = 4096  # that PyTorch filters at a time
LEAST = 1e-3  # noise level, below which weights would be without end


def collaborate(
    noisy: Tensor,
    index: Tensor,
    level: Tensor,
    search: Search,
    transform: tuple[Tensor, Tensor],
    window: Tensor,
    *,
    threshold: float = 0.0,
    guide: Tensor | None = None,
    band: int,
) -> Tensor:
    """Filter all groups and put the patches together.

    Args:
        noisy: (C, H, W).
        index: of the members, as :func:`n3net.neighbors.similar.similar_patches` finds them; the first 1, 2, 4 ... of
            each group are filtered.
        level: standard deviation of the noise, of each channel in each group, (C, Qh, Qw).
        search: by which the groups were found.
        transform: a matrix for the sides of patches and its inverse, (P, P) each.
        window: what a pixel of a patch counts, (P, P).
        threshold: below how many standard deviations a coefficient is dropped.
        guide: an image like the clean one, (C, H, W), whose coefficients g say how those of the noisy image are shrunk,
            by g² / (g² + σ²), instead of a threshold.
        band: rows of the image that are filtered one after the other, a multiple of the step.

    Returns:
        (C, H, W). Groups that keep few coefficients, or shrink them much, count more.
    """
    if kernel.why_not(noisy) is not None:
        return by_torch(noisy, index, level, search, transform, window, threshold=threshold, guide=guide)
    problem = search.problem(noisy.shape)
    problem.band, problem.wiener, problem.threshold = band, guide is not None, threshold
    noisy = noisy.contiguous()
    guide = noisy if guide is None else guide.contiguous()
    out = torch.empty_like(noisy)
    matrices = [m.to(noisy).contiguous() for m in (*transform, window)]
    kernel.run("collaborate", problem, noisy, guide, index.contiguous(), level.contiguous(), *matrices, out)
    return out


def by_torch(
    noisy: Tensor,
    index: Tensor,
    level: Tensor,
    search: Search,
    transform: tuple[Tensor, Tensor],
    window: Tensor,
    *,
    threshold: float = 0.0,
    guide: Tensor | None = None,
) -> Tensor:
    """The same by PyTorch alone."""
    channels, height, width = noisy.shape
    there, back, window = (m.to(noisy) for m in (*transform, window))
    sums = noisy.new_zeros(2, channels, height * width)
    inside = torch.arange(search.patch, device=noisy.device)
    pixels = (inside[:, None] * width + inside).to(index.device)  # (P, P)
    found = (index >= 0).sum(-1).flatten()  # (Q,)
    sizes = 2 ** found.clamp(min=1).log2().floor().long()
    level = level.flatten(1).clamp(min=LEAST)  # (C, Q)
    for size in sizes.unique().tolist():
        for groups in (sizes == size).nonzero()[:, 0].split(GROUPS):
            places = index.flatten(0, 1)[groups, :size].long()[..., None, None] + pixels  # (G, n, P, P)
            sigma = level[:, groups, None, None, None]  # (C, G, 1, 1, 1)
            along = haar(size).to(noisy)
            spectrum = _spectrum(noisy, places, there, along)  # (C, G, n, P, P)
            if guide is None:
                share = (spectrum.abs() > threshold * sigma).to(noisy.dtype)
                left = share.sum((2, 3, 4), keepdim=True).clamp(min=1)
            else:
                power = _spectrum(guide, places, there, along).square()
                share = power / (power + sigma.square())
                left = share.square().sum((2, 3, 4), keepdim=True).clamp(min=1e-6)
            filtered = torch.einsum("mn,cgmij->cgnij", along, back @ (spectrum * share) @ back.mT)
            weights = (window / (left * sigma.square())).expand_as(filtered)
            for total, values in zip(sums, (weights * filtered, weights), strict=True):
                total.index_add_(1, places.flatten(), values.flatten(1))
    values, weights = sums
    out = torch.where(weights > 0, values / weights, noisy.flatten(1))
    return out.reshape(noisy.shape)


def _spectrum(image: Tensor, places: Tensor, there: Tensor, along: Tensor) -> Tensor:
    patches = image.flatten(1)[:, places]  # (C, G, n, P, P)
    return torch.einsum("mn,cgnij->cgmij", along, there @ patches @ there.mT)
