"""Batch statistics over all processes, on any device, so that the number of processes does not change a run."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from n3net.nn import DistanceNorm, SetNorm


def synchronize(model: nn.Module) -> nn.Module:
    """Replace the batch norms and the norms of distances of a model; parameters and names stay."""
    for name, child in model.named_children():
        if isinstance(child, _BatchNorm):
            setattr(model, name, SyncedBatchNorm(child))
        elif isinstance(child, DistanceNorm):
            setattr(model, name, SyncedDistanceNorm(child))
        elif isinstance(child, SetNorm):
            setattr(model, name, SyncedSetNorm(child))
        else:
            synchronize(child)
    return model


class SyncedBatchNorm(nn.Module):
    """A batch norm whose statistics are those of the batches of all processes together."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.eps, self.momentum = norm.eps, 0.1 if norm.momentum is None else norm.momentum
        self.weight, self.bias = norm.weight, norm.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        out, mean, var, count = _normalize(x, self.weight, self.bias, self.eps)
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_((var * count / (count - 1)).to(self.running_var.dtype), self.momentum)
        return out


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, ...]:
        dims, view = _dims(x)
        count = _sum(x.new_tensor([x.numel() / x.shape[1]], dtype=torch.float32))
        mean = _sum(x.float().sum(dims)) / count  # (C,)
        var = _sum((x.float() - mean.view(view)).square().sum(dims)) / count  # (C,)
        rstd = torch.rsqrt(var + eps)
        normal = ((x.float() - mean.view(view)) * rstd.view(view)).to(x.dtype)
        ctx.save_for_backward(normal, weight, rstd, count)
        ctx.mark_non_differentiable(mean, var, count)
        return normal * weight.view(view) + bias.view(view), mean, var, count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        normal, weight, rstd, count = ctx.saved_tensors
        g = grads[0]
        dims, view = _dims(g)
        g_bias, g_weight = g.float().sum(dims), (g * normal).float().sum(dims)  # of this process
        total = _sum(torch.stack([g_bias, g_weight])) / count  # (2, C)
        centred = g - total[0].view(view) - normal * total[1].view(view)
        return (centred * (weight * rstd).view(view)).to(g.dtype), g_weight, g_bias, None


class SyncedDistanceNorm(DistanceNorm):
    """A norm of distances whose variance is that of the batches of all processes together."""

    def __init__(self, norm: DistanceNorm) -> None:
        super().__init__(norm.eps, norm.momentum)
        self.weight, self.running_var = norm.weight, norm.running_var

    def forward(self, distances: Tensor, candidates: Tensor) -> Tensor:
        if not self.training:
            return super().forward(distances, candidates)
        count = _sum(candidates.expand_as(distances).sum().to(distances.dtype)).clamp(min=1)
        mean = _sum_with_gradient(distances.sum()) / count
        var = _sum_with_gradient(torch.where(candidates, distances - mean, 0).square().sum()) / count
        with torch.no_grad():
            unbiased = var * (count / (count - 1).clamp(min=1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return self.weight * torch.rsqrt(var + self.eps)


class SyncedSetNorm(SetNorm):
    """A norm of sets whose variance behind the context norm is that of the batches of all processes together."""

    def __init__(self, norm: SetNorm) -> None:
        super().__init__(len(norm.running_var), norm.eps, norm.momentum)
        self.running_var = norm.running_var

    def total(self, value: Tensor) -> Tensor:
        return _sum_with_gradient(value)


class _Sum(torch.autograd.Function):
    """Sum over processes; the gradient of the sum of all losses is the sum of what arrives at each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _sum(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _sum(grads[0])


def _normalize(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out: tuple[Tensor, Tensor, Tensor, Tensor] = _Normalize.apply(x, weight, bias, eps)
    return out


def _sum_with_gradient(x: Tensor) -> Tensor:
    out: Tensor = _Sum.apply(x)
    return out


def _sum(x: Tensor) -> Tensor:
    x = x.clone()
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(x)
    return x


def _dims(x: Tensor) -> tuple[list[int], list[int]]:
    return [i for i in range(x.dim()) if i != 1], [-1 if i == 1 else 1 for i in range(x.dim())]
