"""Layers: the N3 block for sets, sequences and images."""

from n3net.nn.from_2018 import from_2018
from n3net.nn.images import N3Block2d
from n3net.nn.normalization import DistanceNorm, QueryNorm, SetNorm, context_norm
from n3net.nn.options import PRESETS, N3Options
from n3net.nn.sequences import N3Block1d
from n3net.nn.sets import N3Block

__all__ = [
    "PRESETS",
    "DistanceNorm",
    "N3Block",
    "N3Block1d",
    "N3Block2d",
    "N3Options",
    "QueryNorm",
    "SetNorm",
    "context_norm",
    "from_2018",
]
