"""Optimizers and the average of the weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from n3net.training.config import OptimizerConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """An optimizer with weight decay on what should decay, see :func:`parameter_groups`."""
    groups = parameter_groups(model, config.weight_decay)
    if config.name == "sgd":
        return torch.optim.SGD(groups, config.lr, config.momentum)
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(groups, config.lr, config.betas)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Parameters that decay, weights of convolutions and linear layers and scales of norms, and those that do not."""
    decay = [p for name, p in model.named_parameters() if p.requires_grad and name.rsplit(".", 1)[-1] == "weight"]
    chosen = {id(p) for p in decay}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in chosen]
    groups: list[dict[str, object]] = [{"params": decay, "weight_decay": weight_decay}]
    return [*groups, {"params": rest, "weight_decay": 0.0}] if rest else groups


class Average:
    """Exponential moving average of a model: its parameters, and the running statistics of its norms.

    The decay grows with the steps, so that the average forgets the first weights soon.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """After step number ``step``, counted from 1."""
        weight = 1 - min(self.decay, step / (step + 9))
        for mean, value in zip(_state(self.model), _state(model), strict=True):
            if mean.is_floating_point():
                mean.lerp_(value.to(mean.dtype), weight)
            else:
                mean.copy_(value)


def _state(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]
