"""Networks made ready for inference."""

from __future__ import annotations

import os
from weakref import WeakKeyDictionary

import torch
from torch import nn

from n3net.errors import UserError
from n3net.models.folding import fold_batch_norm
from n3net.nn.convolutions import fuse

_PREPARED: WeakKeyDictionary[nn.Module, tuple[str, bool]] = WeakKeyDictionary()  # what prepare returned, and for what


def prepare(model: nn.Module, device: str | torch.device = "cpu", fast: bool | None = None) -> nn.Module:
    """A copy of the model for inference: in eval mode, batch norm folded, channels last.

    With ``fast``, its 3 x 3 convolutions are the compiled kernel's where that can run, otherwise PyTorch's. By default
    they are, unless the environment has ``N3NET_CONVOLUTIONS=torch``. What is ready already is returned as it is, so
    that a network that was prepared once can be given to all that take one.
    """
    fast = os.environ.get("N3NET_CONVOLUTIONS") != "torch" if fast is None else fast
    if _PREPARED.get(model) == (str(device), fast):
        return model
    folded = fold_batch_norm(model).to(device).requires_grad_(False)
    folded.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    ready = fuse(folded) if fast else folded
    _PREPARED[ready] = str(device), fast
    return ready


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {device} cannot be used: {str(error).splitlines()[0]}") from None
