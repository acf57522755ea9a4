"""What networks for correspondences are trained on: a balanced cross entropy, and the essential matrix they imply."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from n3net.correspondence.geometry import weighted_eight_point

LEAST = 8  # matches of positive weight that determine an essential matrix


def balanced_cross_entropy(logits: Tensor, labels: Tensor, mask: Tensor | None = None, wrong: float = 0.5) -> Tensor:
    """Half the mean over right matches and half that over wrong ones, (B, N), (B, N) bool -> (B,).

    Where a pair has matches of one kind only, the other half is 0. ``mask`` is true where there is a match; another
    share than half for the ``wrong`` ones moves the point between precision and recall where a logit is 0.
    """
    mask = torch.ones_like(labels) if mask is None else mask
    losses = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")
    means = []
    for kind in (labels & mask, ~labels & mask):
        means.append(losses.masked_fill(~kind, 0).sum(1) / kind.sum(1).clamp(min=1))
    return (1 - wrong) * means[0] + wrong * means[1]


def match_weights(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Weights for the eight-point algorithm, 0 to 1: ``relu(tanh(logit))``."""
    weights = torch.relu(torch.tanh(logits))
    return weights if mask is None else weights.masked_fill(~mask, 0)


def essential_loss(matches: Tensor, weights: Tensor, essential: Tensor) -> Tensor:
    """``min(|E' - E|², |E' + E|²)`` of the weighted matches' own essential matrix E' and the true one, -> (B,).

    Args:
        matches: x0, y0, x1, y1, (B, N, 4) or more.
        weights: (B, N).
        essential: of Frobenius norm 1, (B, 3, 3).

    It is 0, and has no gradient, where fewer than eight weights are positive.
    """
    enough = (weights > 0).sum(1) >= LEAST
    found = weighted_eight_point(matches[..., :2], matches[..., 2:4], weights)
    truth = essential.to(found.dtype)
    error = torch.minimum((found - truth).square().sum((1, 2)), (found + truth).square().sum((1, 2)))
    return torch.where(enough, error, 0).to(weights.dtype)
