"""MemNet as its authors publish it."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from n3net.errors import UserError
from n3net.weights.importers.caffe import Layer
from n3net.weights.importers.content import Imported, Importer, State, tensor


def recognize(layers: list[Layer], name: str) -> Imported | None:
    """Layers by name: ``convMM_RR_a`` and ``_b`` of unit RR of block MM, ``conv_transition_MM``, ``conv_end_MM``."""
    found = {layer.name: layer.blobs for layer in layers if layer.blobs}
    units = [re.fullmatch(r"conv(\d+)_(\d+)_a", key) for key in found]
    numbers = [(int(match[1]), int(match[2])) for match in units if match]
    if not numbers or "conv1" not in found or "conv_transition_01" not in found:
        return None
    blocks, count = (max(values) for values in zip(*numbers, strict=True))
    file = _File(found, name)
    file.norm("bn_conv1", "scale_conv1", "net.first.0")
    file.conv("conv1", "net.first.2")
    for m in range(1, blocks + 1):
        ours = f"net.blocks.{m - 1}"
        for r in range(1, count + 1):
            for i, part in enumerate("ab"):
                theirs = f"conv{m:02}_{r:02}_{part}"
                file.norm(f"bn_{theirs}", f"scale_{theirs}", f"{ours}.units.{r - 1}.{i}.0")
                file.conv(theirs, f"{ours}.convolutions.{i}")
        file.norm(f"bn_conv_transition_{m:02}", f"scale_conv_transition_{m:02}", f"{ours}.gate.0")
        file.conv(f"conv_transition_{m:02}", f"{ours}.gate.2")
        file.norm(f"bn_conv_end_{m:02}", f"scale_conv_end_{m:02}", f"net.last_norms.{m - 1}.0")
        file.conv(f"conv_end_{m:02}", "net.last")
    weights = [file.blobs(f"weight_output_end_{m:02}", 1)[0].ravel() for m in range(1, blocks + 1)]
    file.ours["net.weights"] = tensor(np.concatenate(weights))
    features = len(file.ours["net.first.2.weight"])
    config, licence = {"blocks": blocks, "units": count, "features": features}, "not stated (tyshiwo/MemNet)"
    return Imported("memnet", config, file.ours, "the authors' MemNet", licence, {"factors": [2, 3, 4]})


class _File:
    """Arrays of a file by layer, and those that have our names already."""

    def __init__(self, found: dict[str, list[NDArray[np.float32]]], name: str) -> None:
        self.found, self.name = found, name
        self.ours: State = {}

    def blobs(self, layer: str, count: int) -> list[NDArray[np.float32]]:
        blobs = self.found.get(layer, [])
        if len(blobs) != count:
            raise UserError(f"{self.name}: looks like a MemNet, but {layer} has {len(blobs)} arrays, expected {count}")
        return blobs

    def conv(self, layer: str, ours: str) -> None:
        """A convolution; one that stands in several places must be the same everywhere."""
        for part, blob in zip(("weight", "bias"), self.blobs(layer, 2), strict=True):
            value = tensor(blob if part == "weight" else blob.ravel())
            before = self.ours.setdefault(f"{ours}.{part}", value)
            if before.shape != value.shape or not bool((before == value).all()):
                raise UserError(f"{self.name}: looks like a MemNet, but {layer} does not share its weights")

    def norm(self, statistics: str, scale: str, ours: str) -> None:
        """A batch norm; Caffe's mean and variance are sums, and a third array says of how many."""
        mean, variance, count = self.blobs(statistics, 3)
        total = float(count.ravel()[0]) or 1.0
        weight, bias = self.blobs(scale, 2)
        parts = {"running_mean": mean / total, "running_var": variance / total, "weight": weight, "bias": bias}
        self.ours |= {f"{ours}.{part}": tensor(value).flatten() for part, value in parts.items()}


IMPORTERS = [Importer("caffe", ("memnet", "memnet-10"), "tyshiwo/MemNet (.caffemodel)", recognize)]
