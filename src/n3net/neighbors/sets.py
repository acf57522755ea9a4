"""Neighbours of queries among the items of a database, or of a set among itself."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from n3net.modes import readable, undisturbed
from n3net.neighbors.backends import choose
from n3net.neighbors.candidates import usable
from n3net.neighbors.limits import compared, surely_finite
from n3net.neighbors.problem import Sets


@undisturbed
def match_sets(problem: Sets, backend: str = "auto") -> Tensor:
    """k neighbours of each query, (B, Q, k, C).

    What becomes of numbers that are none, or too large: see :mod:`n3net.neighbors.limits`. A query that was given no
    candidates, because its own are all negative or masked, gets 0.

    Args:
        problem: queries, items, and who may choose whom.
        backend: ``"auto"``, or a name, see :mod:`n3net.neighbors`.
    """
    if not torch.compiler.is_compiling():
        _check(problem)
    dtype = problem.values.dtype
    p, lost = _without_nan(_in_one_type(problem))
    out = choose(backend, p).sets(p)  # type: ignore[misc]  # (B, Q, k, C)
    if lost is not None:
        out = out.masked_fill(lost[..., None, None], torch.nan)
    none = _nothing_given(problem)
    if none is not None:
        out = out.masked_fill(none[..., None, None], 0)
    return out.to(dtype)


def _in_one_type(p: Sets) -> Sets:
    work = torch.float32
    for t in (p.queries, p.items, p.values):
        work = torch.promote_types(work, t.dtype)
    items = p.items.to(work)
    queries = items if p.queries is p.items else p.queries.to(work)
    choice = p.choice.now().each(lambda x: x.to(work))
    return replace(p, queries=queries, items=items, values=p.values.to(work), choice=choice)


def _nothing_given(p: Sets) -> Tensor | None:
    """Queries that are none, or were given nothing to choose from, (B, Q); None if there are surely none of these."""
    none = None if p.query_mask is None else ~p.query_mask
    if p.candidates is not None:
        left = ~usable(p).any(-1)
        none = left if none is None else none | left
    return none


def _without_nan(p: Sets) -> tuple[Sets, Tensor | None]:
    """The problem without what is not finite or not there, and which queries have no neighbours because of NaN, (B, Q).

    What a masked item holds does not matter, not even if it is NaN.
    """
    choice, lost = p.choice, None
    tensors = (p.items, p.values, choice.scale, choice.strength)
    if not surely_finite(*tensors, *(() if p.queries is p.items else (p.queries,))):
        there = p.items.isfinite().all(2) & p.values.isfinite().all(2)  # (B, N)
        lost = choice.scale.isnan() | choice.strength.isnan()
        lost = lost | ~(there if p.queries is p.items else p.queries.isfinite().all(2))
        p = replace(p, mask=there if p.mask is None else there & p.mask)
        lost = lost | (_left(p) == 0)
    idle = _nothing_given(p) if lost is None else lost if p.candidates is None else lost | ~usable(p).any(-1)
    if idle is not None:
        one = idle
        p = replace(p, idle=idle, choice=choice.each(lambda x: x.masked_fill(one, 1)))
    together = p.queries is p.items
    items, values, queries = p.items, p.values, p.queries
    if p.mask is not None:
        items = items.masked_fill(~p.mask[..., None], 0)
        values = values.masked_fill(~p.mask[..., None], 0)
    if not together and idle is not None:
        queries = queries.masked_fill(idle[..., None], 0)
    numbers = items.shape[2]
    items = compared(items, numbers)
    queries = items if together else compared(queries, numbers)
    return replace(p, queries=queries, items=items, values=values), lost


def _left(p: Sets) -> Tensor:
    """How many candidates each query has, (B, Q)."""
    if p.candidates is not None:
        return usable(p).sum(-1)
    b, n = p.items.shape[:2]
    there = p.items.new_ones(b, n, dtype=torch.bool) if p.mask is None else p.mask
    left = there.sum(1, keepdim=True)  # (B, 1)
    return left.expand(b, p.queries.shape[1]) if p.itself else left - there.long()


def _check(p: Sets) -> None:
    if p.items.dim() != 3:
        raise ValueError(f"items: expected shape (B, N, E), got {tuple(p.items.shape)}")
    b, n, e = p.items.shape
    if p.queries.dim() != 3 or (p.queries.shape[0], p.queries.shape[2]) != (b, e):
        raise ValueError(f"queries: expected shape ({b}, Q, {e}) like the items, got {tuple(p.queries.shape)}")
    q = p.queries.shape[1]
    if p.values.dim() != 3 or tuple(p.values.shape[:2]) != (b, n):
        raise ValueError(f"values: expected shape ({b}, {n}, C) like the items, got {tuple(p.values.shape)}")
    for name, tensor in (("scale", p.choice.scale), ("strength", p.choice.strength), ("annealing", p.choice.annealing)):
        if tensor is not None and tuple(tensor.shape) != (b, q):
            raise ValueError(f"{name}: expected one value per query, shape {(b, q)}, got {tuple(tensor.shape)}")
    k = p.choice.k
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k: expected an integer of at least 1, got {k!r}")
    for name, what, mask, size in (("mask", "an item", p.mask, n), ("query_mask", "a query", p.query_mask, q)):
        if mask is not None and (mask.dtype != torch.bool or tuple(mask.shape) != (b, size)):
            raise ValueError(
                f"{name}: expected a boolean tensor of shape {(b, size)}, true where there is {what}, "
                f"got {mask.dtype} of shape {tuple(mask.shape)}"
            )
    if not p.itself and q != n:
        raise ValueError(f"itself: {q} queries and {n} items are no set that is matched with itself")
    if p.candidates is not None:
        _check_candidates(p.candidates, b, q, n, k)
        return
    items = int(p.mask.sum(1).min()) if p.mask is not None and b and readable(p.mask) else n
    left = items if p.itself else items - 1
    if k > left:
        raise ValueError(
            f"k: {k} neighbours were asked for, but a query of the smallest set ({items} items) has only "
            f"{left} candidates"
        )


def _check_candidates(candidates: Tensor, b: int, q: int, n: int, k: int) -> None:
    shape = tuple(candidates.shape)
    if candidates.dtype not in (torch.int32, torch.int64) or candidates.dim() != 3 or shape[:2] != (b, q):
        raise ValueError(
            f"candidates: expected numbers of items, int64 of shape ({b}, {q}, M), negative where there is none, got "
            f"{candidates.dtype} of shape {shape}"
        )
    if k > shape[2]:
        raise ValueError(f"k: {k} neighbours were asked for, but a query has only {shape[2]} candidates")
    if candidates.numel() and readable(candidates) and int(candidates.max()) >= n:
        raise ValueError(f"candidates: expected numbers below {n}, the number of items, got {int(candidates.max())}")
