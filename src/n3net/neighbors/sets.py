"""Neighbours among all items of a set, in chunks of queries so that memory does not grow with N²."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from n3net.modes import readable, transforms_active, undisturbed
from n3net.neighbors import native
from n3net.neighbors.images import Distance
from n3net.neighbors.limits import compared, logits, root, surely_finite
from n3net.selection import Rule, largest, select_from_logits

CHUNK = 24_000_000  # numbers in the weights of one chunk of queries


@undisturbed
def match_sets(
    embedding: Tensor,
    values: Tensor,
    scale: Tensor,
    strength: Tensor,
    k: int,
    *,
    mask: Tensor | None = None,
    include_self: bool = False,
    distance: Distance = "squared",
    rule: Rule = "continuous",
    annealing: Tensor | None = None,
    generator: torch.Generator | None = None,
    literal: bool = False,
    backend: str = "auto",
) -> Tensor:
    """k neighbours of each item of a set among all others.

    What becomes of numbers that are none, or too large: see :mod:`n3net.neighbors.limits`.

    Args:
        embedding: what is compared, (B, N, E).
        values: what is aggregated, (B, N, C).
        scale, strength: of the logits and of their update, (B, N).
        k: neighbours.
        mask: true where there is an item, (B, N); others are never chosen, and their own neighbours are 0.
        include_self: whether an item is a candidate of its own.
        distance, rule, annealing, generator: as in :func:`n3net.neighbors.match_images`.
        literal: differences of all pairs instead of matrix products: the judge, slow and large.
        backend: ``"auto"``, the compiled kernel where it can run, or ``"tiled"``, PyTorch alone, which has second
            derivatives.

    Returns:
        (B, N, k, C).
    """
    if backend not in ("auto", "tiled"):
        raise ValueError(f"backend: expected 'auto' or 'tiled', got {backend!r}")
    b, n, _ = embedding.shape
    dtype = values.dtype
    work = torch.promote_types(torch.promote_types(dtype, embedding.dtype), torch.float32)
    embedding, values, scale, strength = (t.to(work) for t in (embedding, values, scale, strength))
    if not torch.compiler.is_compiling():
        _check(b, n, k, mask, include_self)
    given, lost = mask, None
    if not surely_finite(embedding, values, scale, strength):
        mask, lost = _usable(embedding, values, scale, strength, mask, include_self)  # (B, N) each
        scale, strength = (t.masked_fill(lost, 1) for t in (scale, strength))
        annealing = None if annealing is None else annealing.masked_fill(lost, 1)
    if mask is not None:
        # What a masked item holds must not matter, not even if it is NaN.
        embedding = embedding.masked_fill(~mask[..., None], 0)
        values = values.masked_fill(~mask[..., None], 0)
    embedding = compared(embedding, embedding.shape[2])

    compiled = backend == "auto" and rule == "continuous" and not literal and native.why_not(values, rule) is None

    def rows(first: int, last: int, e: Tensor, v: Tensor, s: Tensor, c: Tensor) -> Tensor:
        if compiled and distance == "squared":
            z = _squared_logits(e, s, first, last, include_self, mask)
            z = z if lost is None else z.masked_fill(lost[:, first:last, None], 0)
            w = native.select(z, c[:, first:last], k)
            return (w.flatten(1, 2) @ v).unflatten(1, (last - first, k))  # (B, q, k, C)
        q = e[:, first:last]  # (B, q, E)
        if literal:
            d = (q[:, :, None] - e[:, None]).square().sum(-1)  # (B, q, N)
        else:
            center = e.mean(1, keepdim=True).detach()
            x, y = q - center, e - center
            d = x.square().sum(-1)[..., None] + y.square().sum(-1)[:, None] - 2 * x @ y.transpose(1, 2)
            d = d.clamp(min=0)
        d = root(d) if distance == "euclidean" else d
        z = logits(d, s[:, first:last])
        index = torch.arange(n, device=z.device)
        if not include_self:
            z = z.masked_fill(index[first:last, None] == index, -torch.inf)
        if mask is not None:
            z = z.masked_fill(~mask[:, None], -torch.inf)
        z = z if lost is None else z.masked_fill(lost[:, first:last, None], 0)
        lam = None if annealing is None else annealing[:, first:last, None].to(work)
        if compiled:
            w = native.select(z, c[:, first:last], k)
        else:
            w = select_from_logits(z, k, c[:, first:last, None], rule=rule, annealing=lam, generator=generator)
        return (w.flatten(1, 2) @ v).unflatten(1, (last - first, k))  # (B, q, k, C)

    inputs = (embedding, values, scale, strength)
    learning = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    numbers = CHUNK if learning else CHUNK // 3  # one chunk needs no second computation, smaller ones stay in cache
    if torch.compiler.is_exporting() or b * n * (k + 4) * n <= numbers:
        out = rows(0, n, *inputs)
    else:
        size = max(1, numbers // (b * n * (k + 4)))
        spans = [(first, min(first + size, n)) for first in range(0, n, size)]
        if transforms_active():  # these know neither checkpoints nor writing into parts of a tensor
            out = torch.cat([rows(*span, *inputs) for span in spans], 1)
        elif learning:
            again: dict[str, Any] = {} if generator is None else {"context_fn": partial(_same_numbers, generator)}
            out = torch.cat([checkpoint(rows, *span, *inputs, use_reentrant=False, **again) for span in spans], 1)
        else:
            # Results that are kept between the large tensors of two chunks would keep the allocator from reusing these.
            out = values.new_empty(b, n, k, values.shape[2])
            for first, last in spans:
                out[:, first:last] = rows(first, last, *inputs)
    if lost is not None:
        out = out.masked_fill(lost[..., None, None], torch.nan)
    if given is not None:
        out = out.masked_fill(~given[..., None, None], 0)
    return out.to(dtype)


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


def _squared_logits(e: Tensor, s: Tensor, first: int, last: int, include_self: bool, mask: Tensor | None) -> Tensor:
    """``-s |q - e|²`` up to a shift of each row, in one product, (B, N, E), (B, N) -> (B, q, N).

    Autograd need not know of the -inf that are written into it: a selection has no gradient there.
    """
    y = e - e.mean(1, keepdim=True).detach()
    square = y.square().sum(2, keepdim=True)  # (B, N, 1)
    bound = largest(e.dtype)
    limit = (bound / (4 * square.detach().amax(1, keepdim=True))).clamp(max=bound)  # of s, that nothing overflows
    s = s[:, first:last, None].clamp(-limit, limit)
    left = torch.cat([2 * s * y[:, first:last], -s], 2)  # (B, q, E + 1)
    z = left @ torch.cat([y, square], 2).transpose(1, 2)  # (B, q, N)
    if not include_self:
        z.detach().diagonal(first, 1, 2).fill_(-torch.inf)
    if mask is not None:
        z.detach().masked_fill_(~mask[:, None], -torch.inf)
    return z


def _usable(
    embedding: Tensor, values: Tensor, scale: Tensor, strength: Tensor, mask: Tensor | None, include_self: bool
) -> tuple[Tensor, Tensor]:
    """Which items may be chosen, and which have no neighbours of their own because of NaN, (B, N) each."""
    there = embedding.isfinite().all(2) & values.isfinite().all(2)
    items = there if mask is None else there & mask
    left = items.sum(1, keepdim=True) - (0 if include_self else items.long())  # candidates of each, (B, N)
    return items, ~there | scale.isnan() | strength.isnan() | (left == 0)


def _check(b: int, n: int, k: int, mask: Tensor | None, include_self: bool) -> None:
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"k: expected an integer of at least 1, got {k!r}")
    if mask is not None and (mask.dtype != torch.bool or tuple(mask.shape) != (b, n)):
        raise ValueError(
            f"mask: expected a boolean tensor of shape {(b, n)}, true where there is an item, "
            f"got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    items = int(mask.sum(1).min()) if mask is not None and b and readable(mask) else n
    left = items if include_self else items - 1
    if k > left:
        raise ValueError(
            f"k: {k} neighbours were asked for, but an item of the smallest set ({items} items) has only "
            f"{left} candidates"
        )
