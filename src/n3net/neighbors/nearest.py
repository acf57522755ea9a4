"""The k nearest items of each query, differentiably: the paper's operator as one function (Secs. 3 and 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, overload

import torch
from torch import Tensor

from n3net.modes import readable
from n3net.neighbors.problem import Choice, Distance, Sets
from n3net.neighbors.pruning import left_out, nearest_items
from n3net.neighbors.sets import match_sets
from n3net.selection import Rule, Update, check_choice


@overload
def nearest(
    queries: Tensor,
    items: Tensor,
    k: int,
    temperature: float | Tensor = ...,
    *,
    values: Tensor | None = ...,
    candidates: Tensor | None = ...,
    keep: int | None = ...,
    mask: Tensor | None = ...,
    query_mask: Tensor | None = ...,
    itself: bool = ...,
    distance: Distance = ...,
    rule: Rule = ...,
    update: Update = ...,
    annealing: float | Tensor = ...,
    generator: torch.Generator | None = ...,
    bound: Literal[False] = ...,
    backend: str = ...,
) -> Tensor: ...
@overload
def nearest(
    queries: Tensor,
    items: Tensor,
    k: int,
    temperature: float | Tensor = ...,
    *,
    values: Tensor | None = ...,
    keep: int,
    mask: Tensor | None = ...,
    query_mask: Tensor | None = ...,
    itself: bool = ...,
    distance: Distance = ...,
    rule: Rule = ...,
    update: Update = ...,
    bound: Literal[True],
    backend: str = ...,
) -> tuple[Tensor, Tensor]: ...
def nearest(
    queries: Tensor,
    items: Tensor,
    k: int,
    temperature: float | Tensor = 1.0,
    *,
    values: Tensor | None = None,
    candidates: Tensor | None = None,
    keep: int | None = None,
    mask: Tensor | None = None,
    query_mask: Tensor | None = None,
    itself: bool = True,
    distance: Distance = "euclidean",
    rule: Rule = "continuous",
    update: Update = "tempered",
    annealing: float | Tensor = 1.0,
    generator: torch.Generator | None = None,
    bound: bool = False,
    backend: str = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    r"""k neighbours of each query in a database of items; gradients reach queries, items, values and temperatures.

    Args:
        queries: what is looked for, :math:`(B, Q, E)`.
        items: what it is compared with, :math:`(B, N, E)`.
        k: neighbours.
        temperature: :math:`t > 0`, a number or one value per query, :math:`(B, Q)`.
        values: what the neighbours are made of, :math:`(B, N, C)`; by default the items.
        candidates: numbers of the items that each query may choose, :math:`(B, Q, M)`, from a tree, a graph or an
            index, negative where there is none. Memory grows with :math:`Q M` instead of :math:`Q N`. A query without
            any gets 0.
        keep: instead of candidates, let each query choose among this many items, those nearest to it: for databases too
            large to be weighed as a whole.
        mask: true where there is an item, :math:`(B, N)`, for databases of unequal size.
        query_mask: true where there is a query, :math:`(B, Q)`; what comes out for others is 0.
        itself: whether query i may choose item i; false where a set is matched with itself.
        distance: ``"euclidean"`` or ``"squared"``, without the root.
        rule, update, annealing, generator: see :func:`n3net.select`.
        bound: with ``keep``, also return how much the weights may differ from those over all items.
        backend: of :mod:`n3net.neighbors`; affects speed and memory only.

    Returns:
        The neighbours, :math:`(B, Q, k, C)`. With ``bound`` also :math:`(B, Q, k)`: of each neighbour's weights at most
        this part (of 1) would lie elsewhere if all items had been weighed.

    Example:
        >>> items = torch.tensor([[[0.0], [1.0], [2.0], [5.0]]])
        >>> nearest(torch.tensor([[[1.9]]]), items, k=2, temperature=0.01).flatten().tolist()
        [2.0, 1.0]
    """
    check_choice("rule", rule, Rule)
    check_choice("update", update, Update)
    check_choice("distance", distance, Distance)
    work = torch.promote_types(torch.promote_types(queries.dtype, items.dtype), torch.float32)
    shape = queries.shape[:2]
    scale = 1 / _per_query("temperature", temperature, shape, queries, work)
    choice = Choice(
        k=k,
        scale=scale,
        strength=scale if update == "tempered" else torch.ones_like(scale),
        distance=distance,
        rule=rule,
        annealing=_per_query("annealing", annealing, shape, queries, work) if rule == "concrete" else None,
        generator=generator,
    )
    problem = Sets(
        queries=queries,
        items=items,
        values=items if values is None else values,
        choice=choice,
        query_mask=query_mask,
        mask=mask,
        candidates=candidates,
        itself=itself,
    )
    if keep is None:
        if bound:
            raise ValueError("bound: without keep, all items are weighed, and there is nothing to bound")
        return match_sets(problem, backend)
    if candidates is not None:
        raise ValueError("keep: candidates were given, from which nothing is left out; pass one of both")
    problem = replace(problem, candidates=nearest_items(problem, keep))
    out = match_sets(problem, backend)
    return (out, left_out(problem)) if bound else out


def _per_query(name: str, value: float | Tensor, shape: torch.Size, like: Tensor, dtype: torch.dtype) -> Tensor:
    """A number, or one value per query, as (B, Q)."""
    x = value.to(dtype) if isinstance(value, Tensor) else like.new_full((), value, dtype=dtype)
    try:
        x = x.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"{name}: expected a number or one value per query, shape {tuple(shape)}, got shape {tuple(x.shape)}"
        ) from None
    if readable(x) and not bool((x > 0).all()):
        raise ValueError(f"{name}: expected positive numbers, got {float(x[~(x > 0)].flatten()[0])}")
    return x
