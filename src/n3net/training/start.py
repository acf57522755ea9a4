"""Where training starts from."""

from __future__ import annotations

import torch
from torch import nn

from n3net.models import DnCNN


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
