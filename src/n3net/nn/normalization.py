"""Normalisation of distances, and of sets whose items a mask counts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


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
        """The factor of a batch: distances (B, Qh, Qw, M), mask of candidates (Qh, Qw, M) -> scalar."""
        count = candidates.sum() * distances.shape[0]
        mean = distances.sum() / count  # distances are 0 where there is no candidate
        var = torch.where(candidates, distances - mean, 0).square().sum() / count
        if self.training:
            with torch.no_grad():
                unbiased = var * (count / (count - 1).clamp(min=1))
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return self.weight * torch.rsqrt(var + self.eps)


class SetBatchNorm(nn.Module):
    """A batch norm without affine parameters over the items of all sets, (B, N, C) -> (B, N, C).

    The defaults are CNNet's.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-3, momentum: float = 0.01) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """``mask`` (B, N) is true where there is an item; others have no part in the statistics."""
        if not self.training:
            return (x - self.running_mean) * torch.rsqrt(self.running_var + self.eps)
        out, mean, var, count = self.normalize(x, mask)
        with torch.no_grad():
            unbiased = var * (count / (count - 1).clamp(min=1))
            self.running_mean.lerp_(mean.flatten().to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.flatten().to(self.running_var.dtype), self.momentum)
        return out

    def normalize(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The output, mean and variance (1, 1, C), and the number of items."""
        return _normalize(x, mask, (0, 1), self.eps)


def context_norm(x: Tensor, mask: Tensor | None = None, eps: float = 1e-3) -> Tensor:
    """Each channel of each set with mean 0 and variance 1 over the set's items, (B, N, C) -> (B, N, C).

    ``mask`` (B, N) is true where there is an item. What comes out where there is none is finite and means nothing.
    """
    return _normalize(x, mask, (1,), eps)[0]


def _normalize(
    x: Tensor, mask: Tensor | None, dims: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out: tuple[Tensor, Tensor, Tensor, Tensor] = _Normalize.apply(x, mask, dims, eps)
    return out


class _Normalize(torch.autograd.Function):
    """``(x - mean) / sqrt(var + eps)`` over some dimensions of (B, N, C); it keeps one tensor for the gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mask: Tensor | None, dims: tuple[int, ...], eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if mask is None:
            count = x.new_tensor(float(torch.Size(x.shape[d] for d in dims).numel()))
            mean = x.mean(dims, keepdim=True)
            out = x - mean
        else:
            there = mask[..., None].to(x.dtype)  # (B, N, 1)
            count = there.sum(dims, keepdim=True).clamp(min=1)  # (B, 1, 1) or (1, 1, 1)
            mean = (x * there).sum(dims, keepdim=True) / count
            out = (x - mean) * there
        var = out.square().sum(dims, keepdim=True) / count
        rstd = torch.rsqrt(var + eps)
        out *= rstd
        ctx.save_for_backward(out, rstd, count, mask)
        ctx.dims = dims
        ctx.mark_non_differentiable(mean, var, count)
        return out, mean, var, count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        out, rstd, count, mask = ctx.saved_tensors
        g = grads[0] if mask is None else grads[0] * mask[..., None]
        mean = g.sum(ctx.dims, keepdim=True) / count
        along = (g * out).sum(ctx.dims, keepdim=True) / count
        back = torch.addcmul(g - mean, out, along, value=-1).mul_(rstd)
        return back if mask is None else back * mask[..., None], None, None, None
