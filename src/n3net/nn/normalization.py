"""Normalisation of distances, and of sets whose items a mask counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from n3net.modes import tracing, transforms_active


class DistanceNorm(nn.Module):
    """A batch norm over all distances, reduced to what a selection can see of it: one factor of the logits.

    In training the factor comes from the distances of the batch, which must all be known before the selection; in
    evaluation it is a constant.
    """

    running_var: Tensor

    def __init__(self, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(()))
        self.register_buffer("running_var", torch.ones(()))

    def constant(self) -> Tensor:
        """The factor in evaluation, a scalar."""
        return self.weight * torch.rsqrt(self.running_var + self.eps)

    def forward(self, distances: Tensor, candidates: Tensor) -> Tensor:
        """The factor of a batch: distances (B, Qh, Qw, M), mask of candidates (B, Qh, Qw, M) -> scalar."""
        count = candidates.expand_as(distances).sum().clamp(min=1)
        mean = distances.sum() / count  # distances are 0 where there is no candidate
        var = torch.where(candidates, distances - mean, 0).square().sum() / count
        if self.training and distances.shape[0] > 0:
            with torch.no_grad():
                unbiased = var * (count / (count - 1).clamp(min=1))
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return self.weight * torch.rsqrt(var + self.eps)


class QueryNorm(nn.Module):
    """Each query's distances divided by their own standard deviation, with a learned factor.

    In training and in evaluation alike, there is nothing to gather: where all candidates are nearly alike, small
    differences count as much as large ones do elsewhere.
    """

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, distances: Tensor, candidates: Tensor) -> Tensor:
        """The factor of each query: distances (B, Qh, Qw, M), mask of candidates (B, Qh, Qw, M) -> (B, Qh, Qw)."""
        count = candidates.sum(-1).clamp(min=1)  # (B, Qh, Qw)
        mean = distances.sum(-1) / count  # (B, Qh, Qw); distances are 0 where there is no candidate
        var = torch.where(candidates, distances - mean[..., None], 0).square().sum(-1) / count
        return self.weight * torch.rsqrt(var + self.eps)


class SetNorm(nn.Module):
    """Context norm, then a batch norm without affine parameters, over the items of sets: (B, N, C) -> (B, N, C).

    Context norm leaves mean 0 in each set, so all that is left to the batch norm is a variance, and both together are
    one factor of each set and channel. The defaults are CNNet's.
    """

    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-3, momentum: float = 0.01) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """``mask`` (B, N) is true where there is an item; others have no part in the statistics."""
        return _normalize(x, mask, self._factor)

    def _factor(self, var: Tensor, count: Tensor) -> Tensor:
        """From variances (B, 1, C) and sizes (B, 1, 1) of the sets to what their items are multiplied with."""
        factor = torch.rsqrt(var + self.eps)
        if not self.training:
            return factor * torch.rsqrt(self.running_var + self.eps)
        items = self.total(count.sum()).clamp(min=1)
        left = self.total((count * var * factor.square()).sum(0)) / items  # variance behind the context norm, (1, C)
        if len(var) == 0:  # an empty batch says nothing about others
            return factor
        with torch.no_grad():
            unbiased = left * (items / (items - 1).clamp(min=1))
            self.running_var.lerp_(unbiased[0].to(self.running_var.dtype), self.momentum)
        return factor * torch.rsqrt(left + self.eps)

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes of a run; here there is one."""
        return value


def context_norm(x: Tensor, mask: Tensor | None = None, eps: float = 1e-3) -> Tensor:
    """Each channel of each set with mean 0 and variance 1 over the set's items, (B, N, C) -> (B, N, C).

    ``mask`` (B, N) is true where there is an item. What comes out where there is none is 0.
    """
    return _normalize(x, mask, lambda var, count: torch.rsqrt(var + eps))


def _normalize(x: Tensor, mask: Tensor | None, factor: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """``(x - mean) * factor(var, count)`` of each set and channel; half precision is computed in float32."""
    work = x.to(torch.promote_types(x.dtype, torch.float32))
    if mask is None:
        there, count = None, work.new_full((x.shape[0], 1, 1), x.shape[1]).clamp(min=1)
    else:
        there = mask[..., None].to(work.dtype)  # (B, N, 1)
        count = there.sum(1, keepdim=True).clamp(min=1)
    plain = transforms_active() or tracing()  # which go through PyTorch's own operations, and forward mode only there
    centred, var = (_Centred.forward if plain else _Centred.apply)(work, there, count)
    return (centred * factor(var, count)).to(x.dtype)


class _Centred(torch.autograd.Function):
    """Items without their set's mean (B, N, C), and their variance (B, 1, C), in few passes over the items.

    With gradients g of the centred items c and g_var of the variance, that of the items is
    ``g - mean(g) + 2 / count * g_var * c``.
    """

    @staticmethod
    def forward(x: Tensor, there: Tensor | None, count: Tensor) -> tuple[Tensor, Tensor]:
        if there is None:
            centred = x - x.sum(1, keepdim=True) / count
        else:
            centred = (x - (x * there).sum(1, keepdim=True) / count) * there
        return centred, centred.square().sum(1, keepdim=True) / count

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[0], inputs[1], inputs[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        centred, there, count = ctx.saved_tensors
        g = grads[0] if there is None else grads[0] * there
        out = torch.addcmul(g, centred, 2 / count * grads[1])
        out -= g.sum(1, keepdim=True) / count
        return out if there is None else out * there, None, None
