"""Differentiable k-nearest-neighbour selection for PyTorch, and networks built on it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from n3net.version import __version__

if TYPE_CHECKING:
    from n3net import models, nn, weights
    from n3net.correspondence.matching import match
    from n3net.neighbors.nearest import nearest
    from n3net.restoration.denoising import denoise
    from n3net.restoration.upscaling import upscale
    from n3net.selection import select
    from n3net.weights.store import load

__all__ = ["__version__", "denoise", "load", "match", "models", "nearest", "nn", "select", "upscale", "weights"]

# Public names are imported when they are first used, so that `n3net --help` does not wait for torch.
_HOME = {
    "denoise": "n3net.restoration.denoising",
    "load": "n3net.weights.store",
    "match": "n3net.correspondence.matching",
    "nearest": "n3net.neighbors.nearest",
    "select": "n3net.selection",
    "upscale": "n3net.restoration.upscaling",
}
_MODULES = ("models", "nn", "weights")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"n3net.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'n3net' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
