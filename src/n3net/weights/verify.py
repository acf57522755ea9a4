"""Whether a file of weights is whole and does what it should."""

from __future__ import annotations

from pathlib import Path

import torch

from n3net.errors import UserError
from n3net.weights.store import load


def verify(name_or_path: str | Path) -> None:
    """Load (header, architecture, checksum, numbers that are none), and try the model."""
    model = load(name_or_path)
    with torch.inference_mode():
        out = model.example(torch.Generator().manual_seed(0))
    if not bool(torch.isfinite(out).all()):
        raise UserError("its output holds values that are no numbers")
