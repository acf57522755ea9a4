"""From distances to a choice, also where numbers are too large, or are none: one rule for all backends.

- A squared distance is at most :func:`n3net.selection.largest`, because what is compared is cut off at
  :func:`compared`'s limit (3e13 for patches of 10 x 10 pixels and 8 channels in float32). Beyond it, patches are as far
  from each other as can be, and equally so.
- A logit is at most that large, too: where it would not be, the scale of the query is made smaller. So a scale of
  infinity is what it means, a temperature of 0, which takes the nearest one after the other.
- A patch (or item) that holds a NaN or an infinity, in what is compared or in what is aggregated, is no candidate:
  nobody chooses it. It has no neighbours of its own either, nor has a query whose scale or strength is NaN: the pixels
  of such patches are NaN, and have no gradient.
- A query that is left with fewer than k candidates gets them again. One that is left with none is NaN.

So weights are finite and sum to 1, or are all NaN. Where a program is exported or compiled, the same is done without
looking whether there is need for it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from n3net.modes import readable
from n3net.neighbors.problem import Choice, Gain, Windows
from n3net.selection import largest, select_from_logits


def compared(embedding: Tensor, numbers: int) -> Tensor:
    """What is compared, so many numbers at a time, cut off where distances might overflow; NaN where not finite."""
    limit = math.sqrt(largest(embedding.dtype) / (4 * max(1, numbers)))
    if surely_finite(embedding, limit=limit):
        return embedding
    return torch.where(embedding.isfinite(), embedding.clamp(-limit, limit), torch.nan)


def marked(embedding: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """(B, E, H, W), (B, C, H, W): values without what is not finite, of which the embedding knows as a NaN."""
    if surely_finite(values):
        return embedding, values
    finite = values.isfinite()
    return embedding.masked_fill(~finite.all(1, keepdim=True), torch.nan), values.masked_fill(~finite, 0)


def surely_finite(*tensors: Tensor, limit: float = math.inf) -> bool:
    """Whether all numbers are finite, and within a limit.

    False also where they are not :func:`n3net.modes.readable`.
    """
    if not readable(*tensors):
        return False
    ends = (torch.aminmax(_as_it_lies(t.detach())) for t in tensors if t.numel())
    return all(-limit < float(end) < limit for pair in ends for end in pair)


def _as_it_lies(t: Tensor) -> Tensor:
    """With its dimensions in the order of memory, in which PyTorch reduces several times as fast."""
    strides = t.stride()
    return t.permute(sorted(range(t.dim()), key=lambda dim: -strides[dim]))


def root(d: Tensor) -> Tensor:
    """Square root whose gradient at 0 is 0, where a slot is no candidate or two patches are the same; NaN stays."""
    none = ~(d > 0)
    return torch.where(none, d.detach(), torch.where(none, 1, d).sqrt())


def logits(d: Tensor, scale: Tensor) -> Tensor:
    """z = -scale * d, (B, Qh, Qw, M), (B, Qh, Qw), up to a shift of each row; -inf where it is NaN."""
    total = d.detach().sum(-1, keepdim=True)
    if not surely_finite(total, scale):
        none = d.isnan() | scale.isnan()[..., None]
        d, scale = d.masked_fill(none, 0), scale.masked_fill(scale.isnan(), 0)
        return _logits(d, d.detach().sum(-1, keepdim=True), scale).masked_fill(none, -torch.inf)
    return _logits(d, total, scale)


def _logits(d: Tensor, total: Tensor, scale: Tensor) -> Tensor:
    """The same for numbers, with the sum of each row's distances.

    Around their mean, distances lose fewer digits in the product, and in its gradient with respect to the scale.
    """
    bound = largest(d.dtype)
    most = (bound / total).clamp(max=bound)  # of the scale: nothing is cut off, the order of all is kept
    mean = total / (d != 0).sum(-1, keepdim=True).clamp(min=1)  # of the candidates
    return -scale[..., None].clamp(-most, most) * (d - mean)


def logits_of(problem: Windows, d: Tensor) -> Tensor:
    """Logits of all slots from squared distances, (B, Qh, Qw, M) -> (B, Qh, Qw, M)."""
    d = root(d) if problem.choice.distance == "euclidean" else d
    scale = problem.choice.scale
    if problem.gain is not None:
        scale = gained(problem.gain, d, problem.candidates, scale)
    return logits(d, scale)


def gained(gain: Gain, d: Tensor, candidates: Tensor, scale: Tensor) -> Tensor:
    """The scale times a factor that is computed from all distances, of those that there are."""
    none, lost = d.isnan(), scale.isnan()
    factor = gain(d.masked_fill(none, 0), candidates & ~none)
    return (factor * scale.masked_fill(lost, 0)).masked_fill(lost, torch.nan)


def weigh(z: Tensor, candidates: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
    """Weights (..., k, M) from logits (..., M), and which queries have no neighbours (...).

    ``candidates`` (..., M) are true where a slot may be chosen. The weights of queries without neighbours are 0: what
    they give must become NaN behind the weighted sums, or their gradients would spread it.
    """
    none = ~candidates | z.isnan()
    dead = none.logical_or(z.isneginf()).all(-1) | choice.strength.isnan()  # (...)
    if choice.annealing is not None:
        dead = dead | choice.annealing.isnan()
    strength, annealing = (
        None if x is None else x.masked_fill(dead, 1)[..., None] for x in (choice.strength, choice.annealing)
    )
    assert strength is not None
    z = z.masked_fill(none, -torch.inf).masked_fill(dead[..., None], 0)
    w = select_from_logits(z, choice.k, strength, rule=choice.rule, annealing=annealing, generator=choice.generator)
    return w.masked_fill(dead[..., None, None], 0), dead
