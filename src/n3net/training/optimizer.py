"""Optimizers and the average of the weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from n3net.training.config import OptimizerConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """An optimizer with weight decay on what should decay, see :func:`parameter_groups`."""
    groups = parameter_groups(model, config.weight_decay)
    if config.name == "sgd":
        return torch.optim.SGD(groups, config.lr, config.momentum)
    if config.name == "muon":
        return Muon(groups, config.lr, config.betas, momentum=config.momentum)
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(groups, config.lr, config.betas)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Parameters that decay, weights of convolutions and linear layers and scales of norms, and those that do not."""
    decay = [p for name, p in model.named_parameters() if p.requires_grad and name.rsplit(".", 1)[-1] == "weight"]
    chosen = {id(p) for p in decay}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in chosen]
    groups: list[dict[str, object]] = [{"params": decay, "weight_decay": weight_decay}]
    return [*groups, {"params": rest, "weight_decay": 0.0}] if rest else groups


class Muon(torch.optim.Adam):
    """Momentum whose direction is made orthogonal, for the weights of layers; Adam for all other parameters.

    A step then turns all directions of a weight matrix equally far, not only those with large gradients, which needs
    fewer steps than Adam (K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024). The
    root mean square of a matrix's step is the learning rate. Matrices do not decay.
    """

    def __init__(
        self, params: list[dict[str, object]], lr: float, betas: tuple[float, float], momentum: float = 0.95
    ) -> None:
        super().__init__(params, lr, betas)
        self.momentum = momentum

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            alike: dict[tuple[torch.Size, torch.dtype, torch.device], list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None and is_matrix(p):
                    alike.setdefault((p.shape, p.dtype, p.device), []).append(p)
            for matrices in alike.values():
                self._step(matrices, group["lr"])
        super().step()
        return loss

    def _step(self, matrices: list[Tensor], lr: float) -> None:
        """For matrices of one shape, all at once."""
        means = [self.state[p].setdefault("mean", torch.zeros_like(p)) for p in matrices]
        gradients = [p.grad for p in matrices if p.grad is not None]
        torch._foreach_lerp_(means, gradients, 1 - self.momentum)
        directions = torch._foreach_lerp(gradients, means, self.momentum)  # Nesterov's momentum
        steps = orthogonal(torch.stack([d.flatten(1) for d in directions]))  # (matrices, rows, columns)
        length = lr * math.sqrt(max(steps.shape[1:]))
        torch._foreach_add_(matrices, [step.view_as(p) for step, p in zip(steps, matrices, strict=True)], alpha=-length)
        for p in matrices:
            p.grad = None  # done: Adam passes over it

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As any optimizer's: Adam's own looks for its step count in all states, and those of matrices have none."""
        torch.optim.Optimizer.__setstate__(self, state)
        for p, own in self.state.items():  # in the layout of the parameter, also if it was another when it was saved
            for name, value in own.items():
                if isinstance(value, Tensor) and value.shape == p.shape and value.stride() != p.stride():
                    own[name] = torch.empty_like(p, dtype=value.dtype).copy_(value)


def is_matrix(parameter: Tensor) -> bool:
    """Whether a parameter is the weight of a layer with enough inputs and outputs to speak of directions."""
    return parameter.dim() >= 2 and min(len(parameter), parameter[0].numel()) >= 16


def orthogonal(matrices: Tensor) -> Tensor:
    """Nearly the nearest matrices with orthonormal rows or columns: singular values near 1. (B, m, n) -> (B, m, n).

    Five steps of the Newton-Schulz iteration with the coefficients of Jordan et al.
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.mT).mT
    norms = torch.linalg.matrix_norm(matrices, keepdim=True)  # (B, 1, 1)
    x = matrices / norms.clamp_min(torch.finfo(matrices.dtype).tiny)
    for _ in range(5):
        gram = x @ x.mT  # (B, m, m)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x


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
        pairs = list(zip(_state(self.model), _state(model), strict=True))
        floats = [(mean, value.to(mean.dtype)) for mean, value in pairs if mean.is_floating_point()]
        torch._foreach_lerp_([mean for mean, _ in floats], [value for _, value in floats], weight)
        for mean, value in pairs:
            if not mean.is_floating_point():
                mean.copy_(value)

    @torch.no_grad()
    def freeze_norms(self, model: nn.Module) -> None:
        """Let the norms of a model that is trained use the averaged statistics instead of those of its batches."""
        for name, norm in model.named_modules():
            statistics = {key: b for key, b in norm.named_buffers(recurse=False) if key.startswith("running_")}
            for key, value in statistics.items():
                value.copy_(self.model.get_submodule(name).get_buffer(key))
            if statistics:
                norm.eval()


def _state(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]
