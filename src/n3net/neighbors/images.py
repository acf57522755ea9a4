"""Neighbours of image patches, from features to feature volumes N_1 .. N_k (Sec. 4 of the paper)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from n3net.modes import constant, undisturbed
from n3net.neighbors import native
from n3net.neighbors.backends import choose, distances
from n3net.neighbors.grid import Grid, Matching, Pads, col2im, crop, im2col, pad
from n3net.neighbors.limits import compared, gained, marked, root
from n3net.neighbors.native import Places
from n3net.neighbors.problem import Images, Windows


@undisturbed
def match_images(problem: Images, backend: str = "auto") -> Tensor:
    """k neighbour volumes of an image: N_1 .. N_k, (B, k C, H, W), or (B, (k + 1) C, H, W) beside the values.

    What becomes of numbers that are none, or too large: see :mod:`n3net.neighbors.limits`.

    Args:
        problem: the image, its patches and how they choose.
        backend: ``"auto"`` or a name, see :mod:`n3net.neighbors`.
    """
    dtype, x = problem.values.dtype, problem.values
    p = _in_one_type(problem)
    grid, pads = _layout(p, backend)
    k, matching = p.choice.k, p.matching
    embedding, values = marked(p.embedding, p.values)
    whole_cells = matching.patch_size % matching.stride == 0
    windows = Windows(embedding=embedding, values=values, choice=p.choice, grid=grid, gain=p.gain, time=p.time)
    engine = choose(backend, windows)
    if engine.sweep is not None and whole_cells and not torch.is_grad_enabled():
        if p.gain is not None:  # distances are computed twice, here and in the sweep: less than to do without it
            windows = _with_gain(windows, matching, pads)
        corner = (pads[2], pads[0])
        places = Places(corner, (0, 0), corner, (*corner, *values.shape[2:]))
        out = engine.sweep(windows, places, differences=p.differences, beside=p.beside)
        if p.beside and values is not p.values:
            out[:, : x.shape[1]] = p.values
        return out.to(dtype)
    embedding = compared(embedding, embedding.shape[1] * matching.patch_size**2)
    embedding, values = pad(embedding, pads), pad(values, pads)
    height, width = values.shape[-2:]
    if not whole_cells:
        embedding, values = (im2col(t, matching.patch_size, matching.stride) for t in (embedding, values))
    out = engine.windows(replace(windows, embedding=embedding, values=values))
    if not whole_cells:
        columns = out.unflatten(1, (-1, matching.patch_size**2)).flatten(0, 1)  # (B k C, P², Qh, Qw)
        image = col2im(columns, height, width, matching.patch_size, matching.stride)
        out = image.reshape(out.shape[0], -1, height, width)
        out = out.masked_fill(out.isnan(), torch.nan)  # without gradient
    out = crop(out, pads)
    if p.differences:
        out = out - torch.cat([p.values] * k, 1)  # cat keeps the memory format
    return (torch.cat([p.values, out], 1) if p.beside else out).to(dtype)


def image_distances(embedding: Tensor, matching: Matching, pads: Pads | None = None) -> Tensor:
    """Squared distances of patches, 0 where a slot is no candidate: (B, E, H, W) -> (B, Qh, Qw, M)."""
    height, width = embedding.shape[-2:]
    grid = matching.grid(height, width, pads)
    source = pad(embedding, matching.padding(height, width) if pads is None else pads)
    whole_cells = matching.patch_size % matching.stride == 0
    return distances(source if whole_cells else im2col(source, matching.patch_size, matching.stride), grid)


def _with_gain(p: Windows, matching: Matching, pads: Pads) -> Windows:
    """The same with a scale that has the gain in it."""
    assert p.gain is not None
    d = image_distances(compared(p.embedding, p.embedding.shape[1] * matching.patch_size**2), matching, pads)
    d = root(d) if p.choice.distance == "euclidean" else d
    return replace(p, choice=replace(p.choice, scale=gained(p.gain, d, p.candidates, p.choice.scale)), gain=None)


def _in_one_type(p: Images) -> Images:
    work = torch.promote_types(torch.promote_types(p.values.dtype, p.embedding.dtype), torch.float32)
    choice = p.choice.now().each(lambda t: t.to(work))
    return replace(p, embedding=p.embedding.to(work), values=p.values.to(work), choice=choice)


def _layout(p: Images, backend: str) -> tuple[Grid, Pads]:
    """The grid of the image behind its padding, and that; the problem is checked with it."""
    height, width = p.values.shape[-2:]
    if backend not in ("auto", "native") or native.why_not(p) is not None:
        height, width = constant(height), constant(width)
    pads = p.matching.padding(height, width) if p.pads is None else p.pads
    grid = p.matching.grid(height, width, pads)
    if not torch.compiler.is_compiling():
        _check(p, grid, pads)
    return grid, pads


def _check(p: Images, grid: Grid, pads: Pads) -> None:
    if p.values.dim() != 4:
        raise ValueError(f"values: expected shape (B, C, H, W), got {tuple(p.values.shape)}")
    b, _, h, w = p.values.shape
    if any((size - p.matching.patch_size) % p.matching.stride for size in (h + sum(pads[2:]), w + sum(pads[:2]))):
        raise ValueError(
            f"pads: a {h} x {w} image with {pads} zeros (left, right, top, bottom) is no whole number of "
            f"patches of {p.matching.patch_size} pixels every {p.matching.stride}"
        )
    shape = tuple(p.embedding.shape)
    if len(shape) != 4 or (shape[0], *shape[2:]) != (b, h, w):
        raise ValueError(f"embedding: expected shape ({b}, E, {h}, {w}) like the values, got {shape}")
    expected = (b, grid.query_rows, grid.query_cols)
    for name, tensor in (("scale", p.choice.scale), ("strength", p.choice.strength), ("annealing", p.choice.annealing)):
        if tensor is not None and tuple(tensor.shape) != expected:
            raise ValueError(f"{name}: expected one value per patch, shape {expected}, got {tuple(tensor.shape)}")
    k = p.choice.k
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k: expected an integer of at least 1, got {k!r}")
    if b % p.time.length:
        raise ValueError(f"time: {b} images are no whole number of videos of {p.time.length} frames")
    fewest = p.time.fewest_candidates(grid)
    if k > fewest:
        raise ValueError(
            f"k: {k} neighbours were asked for, but a patch of a {h} x {w} image has only {fewest} candidates; "
            "use a larger image, a smaller patch_size or stride, or a smaller k"
        )
