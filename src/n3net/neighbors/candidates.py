"""Each query with candidates of its own, named by their numbers: gathered, compared and summed, a chunk at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from n3net.neighbors.all_pairs import choice_of, in_chunks, weights
from n3net.neighbors.limits import logits, root
from n3net.neighbors.problem import Sets


def neighbors(problem: Sets) -> Tensor:
    """All neighbours of all queries among their candidates, (B, Q, k, C)."""
    p = problem
    assert p.candidates is not None
    keep = usable(p)  # (B, Q, M)
    index = p.candidates.clamp(min=0)
    batch = torch.arange(len(index), device=index.device)[:, None, None]

    def rows(first: int, last: int, queries: Tensor, items: Tensor, values: Tensor, *tensors: Tensor) -> Tensor:
        choice = choice_of(p.choice, *tensors).each(lambda t: t[:, first:last])
        here, none = (batch, index[:, first:last]), ~keep[:, first:last]  # (B, q, M)
        d = (queries[:, first:last, None] - items[here]).square().sum(-1)  # (B, q, M)
        d = d.masked_fill(none, 0)
        z = logits(root(d) if choice.distance == "euclidean" else d, choice.scale)
        z = z.masked_fill(none, -torch.inf)
        if p.idle is not None:
            z = z.masked_fill(p.idle[:, first:last, None], 0)
        return weights(z, choice) @ values[here]  # (B, q, k, C)

    channels = 2 * p.items.shape[2] + p.values.shape[2]
    return in_chunks(rows, p, index.shape[2] * (p.choice.k + 4 + channels))


def usable(p: Sets) -> Tensor:
    """True where a candidate may be chosen, (B, Q, M)."""
    assert p.candidates is not None
    index = p.candidates.clamp(min=0)
    keep = p.candidates >= 0
    if p.mask is not None:
        keep = keep & p.mask.gather(1, index.flatten(1)).view_as(index)
    if not p.itself:
        keep = keep & (index != torch.arange(index.shape[1], device=index.device)[:, None])
    return keep
