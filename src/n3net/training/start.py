"""Where training starts from."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from n3net.errors import UserError
from n3net.models import DnCNN
from n3net.models.interface import Recipe


def start_from(start: str, model: nn.Module) -> dict[str, Any] | None:
    """Give a new model its first weights.

    Args:
        start: ``random``, ``identity``, or trained weights by name or path.

    Returns:
        The training record of the weights, if it starts from some.
    """
    if start == "random":
        return None
    if start == "identity":
        start_at_identity(model)
        return None
    from n3net.weights import load

    net: Any = model
    trained: Any = load(start)
    if trained.recipe != net.recipe:
        raise UserError(f"start: {start} is {_said(trained.recipe)}, the config's model {_said(net.recipe)}")
    model.load_state_dict(trained.state_dict())
    record = dict(trained.record.get("training", {}))
    record.pop("config", None)
    return record


@torch.no_grad()
def start_at_identity(model: nn.Module) -> None:
    """Let every DnCNN hand on at first the channels that it skips, so that a denoiser begins with its input.

    The last convolution keeps its random weights in the channels without skip connection, which N3 blocks match on.
    """
    for module in model.modules():
        if isinstance(module, DnCNN):
            last = module.layers[-1]
            assert isinstance(last, nn.Conv2d)
            assert last.bias is not None
            last.weight[: module.skip] = 0
            last.bias[: module.skip] = 0


def _said(recipe: Recipe) -> str:
    return f"{recipe.name} ({', '.join(f'{key} {value}' for key, value in recipe.config.items())})"
