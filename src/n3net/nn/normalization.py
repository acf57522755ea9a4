"""Normalisation of distances."""

from __future__ import annotations

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
