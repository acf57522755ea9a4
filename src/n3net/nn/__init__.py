"""Layers: the N3 block for sets and for images."""

from n3net.nn.blocks import N3Block, N3Block2d
from n3net.nn.normalization import DistanceNorm, QueryNorm, SetNorm, context_norm
from n3net.nn.options import PRESETS, N3Options

__all__ = ["PRESETS", "DistanceNorm", "N3Block", "N3Block2d", "N3Options", "QueryNorm", "SetNorm", "context_norm"]
