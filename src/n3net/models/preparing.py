"""Networks made ready for inference."""

from __future__ import annotations

import os

import torch
from torch import nn

from n3net.models.folding import fold_batch_norm
from n3net.nn.convolutions import fuse


def prepare(model: nn.Module, device: str | torch.device = "cpu", fast: bool | None = None) -> nn.Module:
    """A copy of the model for inference: in eval mode, batch norm folded, channels last.

    With ``fast``, its 3 x 3 convolutions are the compiled kernel's where that can run, otherwise PyTorch's. By default
    they are, unless the environment has ``N3NET_CONVOLUTIONS=torch``.
    """
    fast = os.environ.get("N3NET_CONVOLUTIONS") != "torch" if fast is None else fast
    folded = fold_batch_norm(model).to(device).requires_grad_(False)
    folded.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return fuse(folded) if fast else folded
