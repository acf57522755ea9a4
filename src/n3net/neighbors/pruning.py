"""Databases too large to be weighed as a whole: the nearest items of each query, and what the others would weigh."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from n3net.neighbors.candidates import usable
from n3net.neighbors.limits import compared
from n3net.neighbors.problem import Sets
from n3net.selection import log_one_minus, select_from_logits

CHUNK = 2_000_000  # distances that are computed at a time: they stay in a cache


@torch.no_grad()
def nearest_items(problem: Sets, keep: int) -> Tensor:
    """Numbers of the nearest items of each query, in any order, -1 where a mask leaves fewer, (B, Q, keep)."""
    n = problem.items.shape[1]
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < problem.choice.k:
        raise ValueError(f"keep: expected an integer of at least k = {problem.choice.k}, got {keep!r}")
    keep = min(keep, n)
    return torch.cat([_smallest(d, keep) for d in _distances(problem)], 1)


def _smallest(d: Tensor, keep: int) -> Tensor:
    """Places of the smallest numbers of each row, -1 where these are infinite, (B, q, N) -> (B, q, keep).

    They lie in those ``keep`` columns of a table whose least numbers are smallest, so only these are looked through.
    """
    n = d.shape[-1]
    depth = max(1, math.isqrt(n // keep))
    width = (n + depth - 1) // depth
    table = torch.nn.functional.pad(d, (0, depth * width - n), value=torch.inf).unflatten(-1, (depth, width))
    columns = table.amin(-2).topk(keep, largest=False, sorted=False).indices  # (B, q, keep)
    inside = columns[..., None, :].expand(*columns.shape[:-1], depth, keep)
    found = table.gather(-1, inside).flatten(-2)  # (B, q, depth keep)
    best = found.topk(keep, largest=False, sorted=False)
    rows = best.indices // keep
    index = rows * width + columns.gather(-1, best.indices % keep)
    return index.masked_fill(best.values.isinf(), -1)


def _distances(p: Sets) -> Iterator[Tensor]:
    """Squared distances of chunks of queries to all items, infinite where an item may not be chosen, (B, q, N)."""
    b, n, e = p.items.shape
    items, queries = (compared(t.to(_work(p)), e).nan_to_num(nan=torch.inf) for t in (p.items, p.queries))
    finite = items.isfinite().all(2) & p.values.isfinite().all(2)  # (B, N)
    there = finite if p.mask is None else finite & p.mask
    items = items.masked_fill(~there[..., None], 0)
    queries = queries.masked_fill(~queries.isfinite().all(2)[..., None], 0)
    center = items.mean(1, keepdim=True)
    y = (items - center).transpose(1, 2)  # (B, E, N)
    squares = y.square().sum(1, keepdim=True).masked_fill(~there[:, None], torch.inf)  # (B, 1, N)
    size = max(1, CHUNK // max(1, b * n))
    for first in range(0, queries.shape[1], size):
        x = queries[:, first : first + size] - center
        d = torch.baddbmm(squares.expand(b, x.shape[1], n), x, y, alpha=-2) if b else x @ y
        d += x.square().sum(2, keepdim=True)
        if not p.itself:
            d.diagonal(first, 1, 2).fill_(torch.inf)
        yield d.clamp_(min=0)


@torch.no_grad()
def left_out(problem: Sets) -> Tensor:
    """A bound on how far the weights are from those over all items, in total variation, (B, Q, k).

    The problem's candidates are those of :func:`nearest_items`. With r, the sum of exp(z) of the items that were left
    out, intervals for the logits of those that were kept are carried through the steps of Eqs. 8-10: a logit that was
    left out can only fall, so r holds in all of them.
    """
    p, choice = problem, problem.choice
    if choice.rule == "hard":
        return choice.scale.new_zeros(*choice.scale.shape, choice.k)
    assert p.candidates is not None
    keep = usable(p)
    index, scale = p.candidates.clamp(min=0), choice.scale.to(_work(p))[..., None]
    z, rest, first = [], [], 0
    for d in _distances(p):
        part = slice(first, first + d.shape[1])
        first += d.shape[1]
        logit = -scale[:, part] * (d.sqrt_() if choice.distance == "euclidean" else d)
        z.append(logit.gather(-1, index[:, part]).masked_fill(~keep[:, part], -torch.inf))
        rest.append(logit.scatter_(-1, index[:, part], -torch.inf).logsumexp(-1, keepdim=True))
    return _variation(torch.cat(z, 1), torch.cat(rest, 1), choice.strength.to(_work(p))[..., None], choice.k)


def _variation(z: Tensor, rest: Tensor, strength: Tensor, k: int) -> Tensor:
    """Of weights over logits (..., M), where there are others whose exp sum up to exp(rest) (..., 1) -> (..., k)."""
    top = z.amax(-1, keepdim=True)
    z, rest = z - top, rest - top
    weights = select_from_logits(z, k, strength)  # (..., k, M)
    low, high = z, z
    bounds = []
    for j in range(k):
        without_high, without_low = _without_each(high), _without_each(low)  # (..., M)
        most = torch.sigmoid(high - without_low)
        least = torch.sigmoid(low - torch.logaddexp(without_high, rest))
        here = torch.maximum(most - weights[..., j, :], weights[..., j, :] - least).clamp(min=0)
        outside = torch.sigmoid(rest - low.logsumexp(-1, keepdim=True))
        bounds.append(((here.sum(-1) + outside[..., 0]) / 2).clamp(max=1))
        if j + 1 < k:  # log(1 - sigmoid(x)) = -softplus(x)
            low, high = (
                low - strength * torch.nn.functional.softplus(high - without_low),
                high - strength * torch.nn.functional.softplus(low - torch.logaddexp(without_high, rest)),
            )
            top = high.amax(-1, keepdim=True)
            low, high, rest = low - top, high - top, rest - top
    return torch.stack(bounds, -1).nan_to_num(nan=1.0)


def _without_each(x: Tensor) -> Tensor:
    """logsumexp of all entries but one, for each, (..., M)."""
    total = x.logsumexp(-1, keepdim=True)
    return total + log_one_minus(x - total)


def _work(p: Sets) -> torch.dtype:
    work = torch.promote_types(p.queries.dtype, p.items.dtype)
    return torch.promote_types(work, torch.float32)
