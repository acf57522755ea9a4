"""Whether a file of weights is whole and does what it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from n3net.errors import UserError
from n3net.weights.store import load


def verify(name_or_path: str | Path) -> None:
    """Load (header, architecture, checksum), look for numbers that are none, and denoise a small picture."""
    model: Any = load(name_or_path)
    for name, tensor in model.state_dict().items():
        if not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{name} holds values that are no numbers")
    if not hasattr(model, "noise_map"):
        return
    with torch.inference_mode():
        ramp = torch.linspace(0, 1, 60).expand(1, model.channels, 60, 60)
        noisy = ramp + 0.1 * torch.randn(ramp.shape, generator=torch.Generator().manual_seed(0))
        out = model(noisy, sigma=25.0)
    if not bool(torch.isfinite(out).all()):
        raise UserError("its output holds values that are no numbers")
