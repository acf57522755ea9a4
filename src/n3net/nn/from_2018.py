"""Weights of N3 blocks that were trained with the files of 2018."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_NETS = {"embedcnn": "embedding", "tempcnn": "temperature"}
_INSIDE = "n3aggregation.aggregation.nnn."


def from_2018(theirs: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """The state dict of an ``N3Block`` of 2018 as one of :class:`n3net.nn.N3Block2d` with ``"reference-2018"``.

    Without ``distance_bn`` there, give our block ``normalize=False``. A block with one temperature for all, without
    ``external_temp``, gets a net that predicts this number.

    Args:
        theirs: names and tensors of the block, or of a network that it is a part of.
        prefix: where the block is in the network, such as ``"nls.0."``; everything else is left out.

    Example:
        >>> theirs = {"nls.0.embedcnn.0.weight": torch.zeros(64, 8, 3, 3), "nls.1.embedcnn.0.weight": torch.zeros(1)}
        >>> list(from_2018(theirs, "nls.0."))
        ['embedding.0.weight']
    """
    own = {key.removeprefix(prefix): value for key, value in theirs.items() if key.startswith(prefix)}
    if not any(key.startswith("embedcnn.") for key in own):
        some = ", ".join(list(theirs)[:3])
        raise ValueError(f"theirs: expected tensors named {prefix}embedcnn. ... of a block of 2018, got {some} ...")
    ours: dict[str, Tensor] = {}
    for key, value in own.items():
        net, _, rest = key.partition(".")
        if net in _NETS:
            ours[f"{_NETS[net]}.{rest}"] = value
        elif key in (f"{_INSIDE}bn.weight", f"{_INSIDE}bn.running_var"):  # its shift does not change a selection
            ours[f"normalization.{key.rpartition('.')[2]}"] = value.squeeze()
        elif key == f"{_INSIDE}log_temp":
            ours |= _constant(own, value)
        elif not key.startswith(f"{_INSIDE}bn."):
            raise ValueError(f"theirs: {prefix}{key} is nothing that a block of 2018 has")
    return ours


def _constant(own: Mapping[str, Tensor], value: Tensor) -> dict[str, Tensor]:
    """A temperature net like the embedding net whose output is a number everywhere."""
    net = {key.removeprefix("embedcnn."): x for key, x in own.items() if key.startswith("embedcnn.")}
    last = max(int(key.partition(".")[0]) for key in net)
    out = {}
    for key, x in net.items():
        layer, _, name = key.partition(".")
        ones = name == "running_var" or (name == "weight" and x.dim() == 1)
        like = x[:1] if int(layer) == last else x
        out[f"temperature.{key}"] = torch.ones_like(like) if ones else torch.zeros_like(like)
    out[f"temperature.{last}.bias"] = value.reshape(1).clone()
    return out
