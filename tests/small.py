"""Small networks in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from n3net import weights
from n3net.models import create


def save_small(path: Path, name: str = "n3net", sigma: Any = 25, **config: Any) -> Path:
    """A denoiser of a few weights, said to be trained for noise of σ = ``sigma``."""
    torch.manual_seed(0)
    model = create(name, features=4, depth=2, **config)
    return weights.save(path, model, {"training": {"sigma": sigma}})
