"""Each query with all items of a set, in chunks of queries so that memory does not grow with Q N."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from n3net.modes import transforms_active
from n3net.neighbors.limits import logits, root
from n3net.neighbors.problem import Choice, Sets
from n3net.selection import largest, select_from_logits

CHUNK = 24_000_000  # numbers in the weights of one chunk of queries

Select = Callable[[Tensor, Tensor, int], Tensor]  # logits (..., M), strength (...), k -> weights (..., k, M)


def neighbors(problem: Sets, select: Select | None = None) -> Tensor:
    """All neighbours of all queries, (B, Q, k, C); ``select`` is the continuous rule, if there is a faster one."""
    p = problem
    center = p.items.mean(1, keepdim=True).detach()  # distances do not change with it, products lose fewer digits
    select = select if p.choice.rule == "continuous" else None

    def rows(first: int, last: int, queries: Tensor, items: Tensor, values: Tensor, *tensors: Tensor) -> Tensor:
        choice = choice_of(p.choice, *tensors).each(lambda t: t[:, first:last])
        q, e = queries[:, first:last] - center, items - center
        if select is not None and choice.distance == "squared":
            z = _squared_logits(q, e, choice.scale)
            # Autograd need not know of the -inf that are written into it: a selection has no gradient there.
            if not p.itself:
                z.detach().diagonal(first, 1, 2).fill_(-torch.inf)
            if p.mask is not None:
                z.detach().masked_fill_(~p.mask[:, None], -torch.inf)
        else:
            d = q.square().sum(-1)[..., None] + e.square().sum(-1)[:, None] - 2 * q @ e.transpose(1, 2)  # (B, q, N)
            d = d.clamp(min=0)
            z = logits(root(d) if choice.distance == "euclidean" else d, choice.scale)
            if not p.itself:
                index = torch.arange(e.shape[1], device=z.device)
                z = z.masked_fill(index[first:last, None] == index, -torch.inf)
            if p.mask is not None:
                z = z.masked_fill(~p.mask[:, None], -torch.inf)
        if p.idle is not None:
            z = z.masked_fill(p.idle[:, first:last, None], 0)
        return (weights(z, choice, select).flatten(1, 2) @ values).unflatten(1, (last - first, -1))  # (B, q, k, C)

    return in_chunks(rows, p, p.items.shape[1] * (p.choice.k + 4))


def in_chunks(rows: Callable[..., Tensor], p: Sets, per_query: int) -> Tensor:
    """``rows`` of all queries, so many at a time that :data:`CHUNK` numbers suffice; with gradients each is done twice.

    ``rows`` takes the first and the last query, and all tensors that may have gradients: queries, items, values, scale,
    strength and annealing.
    """
    inputs = [p.queries, p.items, p.values, p.choice.scale, p.choice.strength]
    inputs = inputs if p.choice.annealing is None else [*inputs, p.choice.annealing]
    b, queries = p.queries.shape[:2]
    learning = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    numbers = CHUNK if learning else CHUNK // 3  # one chunk needs no second computation, smaller ones stay in cache
    if torch.compiler.is_exporting() or b * queries * per_query <= numbers:
        return rows(0, queries, *inputs)
    size = max(1, numbers // (b * per_query))
    spans = [(first, min(first + size, queries)) for first in range(0, queries, size)]
    if transforms_active():  # these know neither checkpoints nor writing into parts of a tensor
        return torch.cat([rows(*span, *inputs) for span in spans], 1)
    if learning:
        generator = p.choice.generator
        again: dict[str, Any] = {} if generator is None else {"context_fn": partial(_same_numbers, generator)}
        return torch.cat([checkpoint(rows, *span, *inputs, use_reentrant=False, **again) for span in spans], 1)
    # Results that are kept between the large tensors of two chunks would keep the allocator from reusing these.
    out = p.values.new_empty(b, queries, p.choice.k, p.values.shape[2])
    for first, last in spans:
        out[:, first:last] = rows(first, last, *inputs)
    return out


def choice_of(choice: Choice, scale: Tensor, strength: Tensor, annealing: Tensor | None = None) -> Choice:
    """The same with these tensors, which a checkpoint has given."""
    return Choice(
        k=choice.k,
        scale=scale,
        strength=strength,
        distance=choice.distance,
        rule=choice.rule,
        annealing=annealing,
        generator=choice.generator,
    )


def weights(z: Tensor, choice: Choice, select: Select | None = None) -> Tensor:
    """(B, q, M) -> (B, q, k, M); every query has something to choose from."""
    if select is not None:
        return select(z, choice.strength, choice.k)
    annealing = None if choice.annealing is None else choice.annealing[..., None]
    return select_from_logits(
        z, choice.k, choice.strength[..., None], rule=choice.rule, annealing=annealing, generator=choice.generator
    )


def _squared_logits(q: Tensor, e: Tensor, s: Tensor) -> Tensor:
    """``-s |q - e|²`` up to a shift of each row, in one product, (B, q, E), (B, N, E), (B, q) -> (B, q, N)."""
    square = e.square().sum(2, keepdim=True)  # (B, N, 1)
    bound = largest(e.dtype)
    most = torch.maximum(square.detach().amax(1, keepdim=True), q.detach().square().sum(2, keepdim=True))
    limit = (bound / (4 * most)).clamp(max=bound)  # of s, that nothing overflows
    s = s[..., None].clamp(-limit, limit)
    left = torch.cat([2 * s * q, -s], 2)  # (B, q, E + 1)
    return left @ torch.cat([e, square], 2).transpose(1, 2)  # (B, q, N)


def _same_numbers(generator: torch.Generator) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For a checkpoint: its second computation draws from the generator what the first is about to draw."""
    return nullcontext(), _State(generator)


class _State(AbstractContextManager[None]):
    """A generator as it is now, whenever this is entered; behind it the generator is as it was before."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator, self.state = generator, generator.get_state()

    def __enter__(self) -> None:
        self.before = self.generator.get_state()
        self.generator.set_state(self.state)

    def __exit__(self, *_: object) -> None:
        self.generator.set_state(self.before)
