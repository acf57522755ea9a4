"""Whether a file of weights is whole and does what it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from n3net.errors import UserError
from n3net.models import CNNet, ColorUpscaler, Upscaler
from n3net.models.raw import RawDenoiser
from n3net.weights.store import load


def verify(name_or_path: str | Path) -> None:
    """Load (header, architecture, checksum, numbers that are none), and try the model."""
    model: Any = load(name_or_path)
    with torch.inference_mode():
        out = _tried(model)
    if out is not None and not bool(torch.isfinite(out).all()):
        raise UserError("its output holds values that are no numbers")


def _tried(model: Any) -> Tensor | None:
    """What a model makes of a small picture, or of a few matches; None where neither is its input."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(model, CNNet):
        out: Tensor = model(torch.rand(1, 60, model.in_channels, generator=generator))
        return out
    if isinstance(model, RawDenoiser):
        plane: Tensor = model(torch.rand(1, 1, 60, 60, generator=generator), 1e-2, 1e-4)
        return plane
    if isinstance(model, ColorUpscaler):
        large: Tensor = model(torch.rand(1, 3, 24, 24, generator=generator), model.factors[0])
        return large
    if isinstance(model, Upscaler):
        restored: Tensor = model(torch.rand(1, 1, 60, 60, generator=generator))
        return restored
    if not hasattr(model, "noise_map"):
        return None
    ramp = torch.linspace(0, 1, 60).expand(1, model.channels, 60, 60)
    denoised: Tensor = model(ramp + 0.1 * torch.randn(ramp.shape, generator=generator), sigma=25.0)
    return denoised
