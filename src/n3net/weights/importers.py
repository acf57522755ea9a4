"""Public weights of other programs, under our names.

Each importer looks at a state dict, and says what it is or that it does not know it. A new one is a function and its
place in ``IMPORTERS``.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.models.registry import create

State = dict[str, Tensor]

AUTHORS_LICENCE = "non-commercial, no redistribution (TU Darmstadt, visinf/n3net)"


def import_file(path: str | Path) -> tuple[nn.Module, dict[str, Any]]:
    """A file of another program -> a model of ours in eval mode, and metadata for :func:`n3net.weights.save`."""
    path = Path(path)
    state = _read(path)
    for importer in IMPORTERS:
        result = importer(state)
        if result is None:
            continue
        model, ours, metadata = result
        target = model.state_dict()
        for name, value in target.items():
            if name not in ours and not name.endswith("num_batches_tracked"):
                raise UserError(f"{path}: looks like {metadata['source']}, but {name} is missing")
            if name in ours and ours[name].shape != value.shape:
                raise UserError(
                    f"{path}: looks like {metadata['source']}, but {name} is {tuple(ours[name].shape)}, expected "
                    f"{tuple(value.shape)}"
                )
        unknown = [name for name in ours if name not in target]
        if unknown:
            raise UserError(f"{path}: looks like {metadata['source']}, but has a {unknown[0]}, which that has not")
        model.load_state_dict(ours, strict=False)
        metadata["training"] = {"imported": metadata.pop("source"), "file": path.name}
        return model.eval(), metadata
    names = ", ".join(list(state)[:3])
    raise UserError(
        f"{path}: no known architecture (its first tensors are {names}); n3net imports the authors' N3Net (.t7), "
        "KAIR's and SaoYan's DnCNN (.pth)"
    )


def _read(path: Path) -> State:
    """The tensors of a file written by torch.save, without executing anything in it."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                broken = file.testzip()  # torch does not look at the checksums
            if broken is not None:
                raise UserError(f"{path}: damaged, {broken!r} in it does not match its checksum; get it again")
        content = torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path}: refused: the file is broken, or holds code beside tensors, which n3net never runs"
        ) from error
    except (UserError, MemoryError):
        raise
    except Exception as error:  # torch raises whatever the bytes of a broken file lead to
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: broken or truncated, torch cannot read it ({reason})") from error
    for key in ("net", "state_dict", "params"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(isinstance(v, Tensor) for v in content.values()):
        raise UserError(f"{path}: expected a dictionary of tensors, got {type(content).__name__}")
    for name, value in content.items():
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise UserError(f"{path}: refused: {name} claims to be {tuple(value.shape)}, more than the file holds")
        if not bool(torch.isfinite(value).all()):
            raise UserError(f"{path}: refused: {name} holds values that are no numbers")
    return {str(name).removeprefix("module."): value.float() for name, value in content.items()}


def _authors_n3net(theirs: State) -> tuple[nn.Module, State, dict[str, Any]] | None:
    """N3Net for denoising as published in 2018: ``blocks.I`` are DnCNNs, ``nls.I`` are N3 blocks."""
    if "blocks.0.conv1.weight" not in theirs or "nls.0.embedcnn.0.weight" not in theirs:
        return None
    ours = {}
    for name, value in theirs.items():
        kind, index, part, *rest = name.split(".")
        if kind == "blocks" and part == "bn1":
            continue  # saved, but never applied
        if kind == "blocks":
            layer = {"conv1": 0, "conv2": 14, "convf": 14}.get(part, 14) if part != "layer1" else 2 + int(rest[0])
            ours[f"net.stages.{index}.layers.{layer}.{rest[-1]}"] = value
        elif part == "n3aggregation":
            if rest[-1] in ("weight", "running_var"):  # its shift does not change a selection
                ours[f"net.blocks.{index}.normalization.{rest[-1]}"] = value.squeeze()
        else:
            net = {"embedcnn": "embedding", "tempcnn": "temperature"}.get(part, part)
            ours[f"net.blocks.{index}.{net}.{'.'.join(rest)}"] = value
    model = create("n3net", options="reference-2018", first_norm=False)
    return model, ours, {"source": "the authors' N3Net of 2018", "licence": AUTHORS_LICENCE}


def _kair_dncnn(theirs: State) -> tuple[nn.Module, State, dict[str, Any]] | None:
    """DnCNN of KAIR: ``model.N``, convolutions with biases and ReLUs; it predicts the noise."""
    if "model.0.weight" not in theirs or "model.0.bias" not in theirs:
        return None
    if any(value.dim() != 4 for name, value in theirs.items() if name.endswith("weight")):
        return None
    ours = {f"net.layers.{name.removeprefix('model.')}": value for name, value in theirs.items()}
    depth = sum(name.endswith("weight") for name in ours)
    model = _dncnn(theirs["model.0.weight"], depth, norm=False)
    _negate(ours, 2 * (depth - 1))
    return model, ours, {"source": "KAIR's DnCNN", "licence": "MIT (cszn/KAIR)"}


def _saoyan_dncnn(theirs: State) -> tuple[nn.Module, State, dict[str, Any]] | None:
    """DnCNN of SaoYan/DnCNN-PyTorch: ``dncnn.N``, bias-free convolutions and batch norms; it predicts the noise."""
    if "dncnn.0.weight" not in theirs or "dncnn.3.running_var" not in theirs:
        return None
    ours = {f"net.layers.{name.removeprefix('dncnn.')}": value for name, value in theirs.items()}
    convs = [name for name, value in ours.items() if value.dim() == 4]
    for name in (convs[0], convs[-1]):  # ours has biases where no batch norm follows
        ours[name.replace("weight", "bias")] = torch.zeros(ours[name].shape[0])
    model = _dncnn(theirs["dncnn.0.weight"], len(convs), first_norm=False)
    _negate(ours, 3 * len(convs) - 4)
    return model, ours, {"source": "SaoYan's DnCNN", "licence": "GPL-3.0 (SaoYan/DnCNN-PyTorch)"}


def _dncnn(first: Tensor, depth: int, **config: Any) -> nn.Module:
    if first.dim() != 4 or first.shape[1] not in (1, 3):
        raise UserError(f"expected a first convolution of 1 or 3 channels, got shape {tuple(first.shape)}")
    return create("dncnn-17", channels=first.shape[1], depth=depth, features=first.shape[0], **config)


def _negate(ours: State, layer: int) -> None:
    """A network that predicts the noise, to subtract, becomes one whose output is added."""
    for part in ("weight", "bias"):
        if f"net.layers.{layer}.{part}" in ours:
            ours[f"net.layers.{layer}.{part}"] = -ours[f"net.layers.{layer}.{part}"]


IMPORTERS: list[Callable[[State], tuple[nn.Module, State, dict[str, Any]] | None]] = [
    _authors_n3net,
    _kair_dncnn,
    _saoyan_dncnn,
]
