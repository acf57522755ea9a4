"""Methods that learn nothing, against the programs of others."""

from __future__ import annotations

import torch

from n3net.bench.harness import Round
from n3net.bench.measure import ratio
from n3net.errors import UserError
from n3net.methods.bm3d import bm3d

SIGMA = 25.0


def bm3d_over_package(size: int = 128) -> Round:
    """Gray, both rounds, each with as many threads as it takes."""
    try:
        import bm3d as package
    except ImportError as error:
        raise UserError("needs the package bm3d (for non-commercial use): pip install 'n3net[bm3d]'") from error
    clean = torch.linspace(0, 20, size).sin().outer(torch.linspace(0, 3, size).cos()) / 4 + 0.5
    noisy = clean + SIGMA / 255 * torch.randn(size, size, generator=torch.Generator().manual_seed(0))
    pixels = noisy.double().numpy()
    return ratio("n3net", lambda: bm3d(noisy[None], SIGMA), "package", lambda: package.bm3d(pixels, SIGMA / 255))
