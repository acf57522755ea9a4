"""The judge: every step as the paper words it, one operation a line, no thought of time or memory.

Patches are cut out with ``unfold``, every query's candidates are gathered, distances are sums of squared differences,
neighbours are weighted sums of whole patches, and ``fold`` averages them back into the image.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from n3net.neighbors.grid import Grid, Time, col2im, im2col
from n3net.neighbors.limits import logits, logits_of, root, weigh
from n3net.neighbors.problem import Sets, Windows

STILL = Time()


def why_not(problem: Windows | Sets) -> str | None:
    """Why this backend cannot run, or None: the reference always can."""
    return None


def windows(problem: Windows) -> Tensor:
    """All neighbours of all patches as volumes, (B, k C, H, W)."""
    return aggregate(logits_of(problem, distances(problem.embedding, problem.grid, problem.time)), problem)


def sets(problem: Sets) -> Tensor:
    """All neighbours of all queries, (B, Q, k, C); what the problem may hold: see ``sets.py``."""
    p = problem
    b, n = p.items.shape[:2]
    index = torch.arange(n, device=p.items.device).expand(b, p.queries.shape[1], n)  # all are candidates
    index = index if p.candidates is None else p.candidates  # (B, Q, M)
    keep, index = index >= 0, index.clamp(min=0)
    batch = torch.arange(b, device=index.device)[:, None, None]
    if p.mask is not None:
        keep = keep & p.mask[batch, index]
    if not p.itself:
        keep = keep & (index != torch.arange(index.shape[1], device=index.device)[:, None])
    d = (p.queries[:, :, None] - p.items[batch, index]).square().sum(-1)  # (B, Q, M)
    d = root(d.masked_fill(~keep, 0)) if p.choice.distance == "euclidean" else d.masked_fill(~keep, 0)
    w, _ = weigh(logits(d, p.choice.scale), keep, p.choice)  # (B, Q, k, M)
    return w @ p.values[batch, index]  # (B, Q, k, C)


def distances(embedding: Tensor, grid: Grid, time: Time = STILL) -> Tensor:
    """Squared distances of patches, 0 where a slot is no candidate: (B, C, H, W) -> (B, Qh, Qw, M).

    NaN where a patch holds one; that has no gradient.
    """
    patches = _patches(embedding, grid)  # (B, Q, D)
    there = _windows(patches, grid, time)  # (B, Q, M, D)
    difference = patches[:, :, None] - there
    none = difference.isnan()
    d = difference.masked_fill(none, 0).square().sum(-1)  # (B, Q, M)
    d = d.masked_fill(none.any(-1), torch.nan)
    d = d.unflatten(1, (grid.query_rows, grid.query_cols))
    return torch.where(time.candidates(grid, d.shape[0], d.device), d, 0)


def aggregate(z: Tensor, problem: Windows) -> Tensor:
    """Select k neighbours by their logits and put them into the image: (B, Qh, Qw, M) -> (B, k C, H, W)."""
    values, grid, k = problem.values, problem.grid, problem.choice.k
    w, dead = weigh(z, problem.candidates, problem.choice)
    w, dead = w.flatten(1, 2), dead.flatten(1)  # (B, Q, k, M), (B, Q)
    patches = _patches(values, grid)  # (B, Q, D)
    there = _windows(patches, grid, problem.time)  # (B, Q, M, D)
    neighbours = w @ there  # (B, Q, k, D)
    columns = neighbours.permute(0, 2, 3, 1).flatten(1, 2)  # (B, k D, Q)
    columns = columns.unflatten(-1, (grid.query_rows, grid.query_cols))
    columns = columns.unflatten(1, (k * values.shape[1], -1)).flatten(0, 1)  # (B k C, P P, Qh, Qw)
    height, width = values.shape[-2:]
    out = col2im(columns, height, width, grid.patch * grid.cell, grid.cell)  # (B k C, 1, H, W)
    out = out.reshape(values.shape[0], k * values.shape[1], height, width)
    size = grid.patch * grid.cell
    pixels = dead[:, None].to(out.dtype).expand(-1, size * size, -1)  # (B, P P, Q)
    covered = F.fold(pixels, (height, width), size, stride=grid.cell) > 0  # (B, 1, H, W)
    return out.masked_fill(covered, torch.nan)


def _patches(image: Tensor, grid: Grid) -> Tensor:
    return im2col(image, grid.patch * grid.cell, grid.cell).flatten(-2).transpose(1, 2)  # (B, Q, D)


def _windows(patches: Tensor, grid: Grid, time: Time) -> Tensor:
    """The patches of each query's window, frames one behind the other: (B, Q, D) -> (B, Q, M, D)."""
    slots = slots_of(grid, patches.device)  # (Q, M)
    return torch.cat([frame[:, slots] for frame in time.others(patches)], 2)


def slots_of(grid: Grid, device: torch.device) -> Tensor:
    """Number of the patch in each slot, any patch where the slot lies outside -> (Q, M)."""
    along = torch.arange(grid.window, device=device)
    y = grid.start(grid.query_rows, device)[:, None, None, None] + along[:, None]  # (Qh, 1, w, 1)
    x = grid.start(grid.query_cols, device)[:, None, None] + along  # (Qw, 1, w)
    y, x = y.clamp(0, grid.query_rows - 1), x.clamp(0, grid.query_cols - 1)
    return (y * grid.query_cols + x).flatten(2).flatten(0, 1)
