"""DnCNN as several programs save it; all of them predict the noise, to subtract."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from n3net.errors import UserError
from n3net.weights.importers.content import Imported, Importer, State, from_matlab, level_in, tensor
from n3net.weights.importers.matlab import layers


def kair(theirs: State, name: str) -> Imported | None:
    """DnCNN of KAIR: ``model.N``, convolutions with biases and ReLUs."""
    if "model.0.weight" not in theirs or "model.0.bias" not in theirs:
        return None
    if any(value.dim() != 4 for key, value in theirs.items() if key.endswith("weight")):
        return None
    ours = {f"net.layers.{key.removeprefix('model.')}": value for key, value in theirs.items()}
    depth = sum(key.endswith("weight") for key in ours)
    config = _config(theirs["model.0.weight"], depth, norm=False)
    _negate(ours, 2 * (depth - 1))
    return Imported("dncnn-17", config, ours, "KAIR's DnCNN", "MIT (cszn/KAIR)", level_in(name))


def saoyan(theirs: State, name: str) -> Imported | None:
    """DnCNN of SaoYan/DnCNN-PyTorch: ``dncnn.N``, bias-free convolutions and batch norms."""
    if "dncnn.0.weight" not in theirs or "dncnn.3.running_var" not in theirs:
        return None
    ours = {f"net.layers.{key.removeprefix('dncnn.')}": value for key, value in theirs.items()}
    convs = [key for key, value in ours.items() if value.dim() == 4]
    for key in (convs[0], convs[-1]):  # ours has biases where no batch norm follows
        ours[key.replace("weight", "bias")] = torch.zeros(ours[key].shape[0])
    config = _config(theirs["dncnn.0.weight"], len(convs), first_norm=False)
    _negate(ours, 3 * len(convs) - 4)
    return Imported("dncnn-17", config, ours, "SaoYan's DnCNN", "GPL-3.0 (SaoYan/DnCNN-PyTorch)", level_in(name))


def matconvnet(content: dict[str, Any], name: str) -> Imported | None:
    """DnCNN of its authors: convolutions and ReLUs, batch norm merged."""
    found = layers(content)
    if not found or {layer["type"] for layer in found} != {"conv", "relu"}:
        return None
    convs = [layer["weights"] for layer in found if layer["type"] == "conv"]
    ours = {}
    for i, (weight, bias) in enumerate(convs):
        ours[f"net.layers.{2 * i}.weight"] = from_matlab(weight)
        ours[f"net.layers.{2 * i}.bias"] = tensor(bias).flatten()
    config = _config(ours["net.layers.0.weight"], len(convs), norm=False)
    _negate(ours, 2 * (len(convs) - 1))
    return Imported("dncnn-17", config, ours, "the authors' DnCNN", "not stated (cszn/DnCNN)", level_in(name))


def _config(first: Tensor, depth: int, **config: Any) -> dict[str, Any]:
    """Of a DnCNN whose first convolution has such weights."""
    if first.dim() != 4 or first.shape[1] not in (1, 3):
        raise UserError(f"expected a first convolution of 1 or 3 channels, got shape {tuple(first.shape)}")
    return {"channels": first.shape[1], "depth": depth, "features": first.shape[0], **config}


def _negate(ours: State, layer: int) -> None:
    """A network that predicts the noise, to subtract, becomes one whose output is added."""
    for part in ("weight", "bias"):
        if f"net.layers.{layer}.{part}" in ours:
            ours[f"net.layers.{layer}.{part}"] = -ours[f"net.layers.{layer}.{part}"]


IMPORTERS = [
    Importer("torch", ("dncnn-17",), "cszn/KAIR (.pth)", kair),
    Importer("torch", ("dncnn-17",), "SaoYan/DnCNN-PyTorch (.pth)", saoyan),
    Importer("matlab", ("dncnn-17",), "cszn/DnCNN (.mat)", matconvnet),
]
