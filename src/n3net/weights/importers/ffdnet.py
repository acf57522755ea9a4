"""FFDNet as its authors publish it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from n3net.errors import UserError
from n3net.weights.importers.content import Imported, Importer, from_matlab, tensor
from n3net.weights.importers.matlab import layers


def recognize(content: dict[str, Any], name: str) -> Imported | None:
    """Convolutions between two layers that rearrange pixels; batch norm merged."""
    found = layers(content)
    if not found or found[0]["type"] != "SubP" or found[-1]["type"] != "SubP":
        return None
    convs = [layer["weights"] for layer in found if layer["type"] == "conv"]
    weights = [from_matlab(weight) for weight, _ in convs]
    channels, features = len(weights[-1]) // 4, len(weights[0])
    if channels not in (1, 3) or weights[0].shape[1] != 4 * channels + 1:
        raise UserError(
            f"{name}: an FFDNet from {weights[0].shape[1]} to {len(weights[-1])} channels; n3net knows those from 5 to "
            "4 (gray) and from 13 to 12 (colour)"
        )
    order = our_order(channels)
    weights[0] = torch.cat([weights[0][:, order], weights[0][:, -1:]], 1)
    weights[-1] = weights[-1][order]
    biases = [tensor(bias).flatten() for _, bias in convs]
    biases[-1] = biases[-1][order]
    ours = {f"net.layers.{2 * i}.weight": weight for i, weight in enumerate(weights)}
    ours |= {f"net.layers.{2 * i}.bias": bias for i, bias in enumerate(biases)}
    config = {"channels": channels, "depth": len(convs), "features": features, "norm": False}
    clipped = "clip" in name.lower()  # nothing in the file tells
    source = "the authors' FFDNet" + (" for images that were clipped" if clipped else "")
    training = {"sigma": [0.0, 75.0], **({"clipped": True} if clipped else {})}
    return Imported("ffdnet", config, ours, source, "not stated (cszn/FFDNet)", training)


def our_order(channels: int) -> Tensor:
    """Where their file has what our channel of this number holds, of the four small images of each colour.

    Theirs go down the columns first, ours along the rows.
    """
    return torch.tensor([4 * c + 2 * x + y for c in range(channels) for y in range(2) for x in range(2)])


IMPORTERS = [Importer("matlab", ("ffdnet",), "cszn/FFDNet (.mat)", recognize)]
