"""NLNet and UNLNet as their author publishes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from n3net.models.nlnet import dct_atoms
from n3net.weights.importers.content import Imported, Importer, State, from_matlab, tensor
from n3net.weights.importers.matlab import layers

LICENCE = "2-clause BSD, solely for non-commercial purposes (Skoltech, {})"


def nlnet(content: dict[str, Any], name: str) -> Imported | None:
    """Stages ``nlcf`` for gray images, ``cnlcf`` for colour ones."""
    stages = [layer for layer in layers(content) if layer["type"] in ("nlcf", "cnlcf")]
    if not stages:
        return None
    channels = 3 if stages[0]["type"] == "cnlcf" else 1
    ours: State = {}
    for i, stage in enumerate(stages):
        mixing, _, group, _, radial, mix = stage["weights"]
        key = f"net.stages.{i}"
        ours[f"{key}.mixing"] = tensor(mixing)
        ours[f"{key}.weights"] = tensor(group).flatten()
        ours[f"{key}.shrinkage.weights"] = tensor(_planes_first(radial))
        ours[f"{key}.mix"] = tensor(mix).reshape(())
    size = _size(stages)
    group = len(ours["net.stages.0.weights"])
    config = {"channels": channels, "patch_size": size, "stages": len(stages), "group": group}
    licence = LICENCE.format("cig-skoltech/NLNet")
    return Imported("nlnet", config, ours, "the author's NLNet", licence, _noise(content))


def unlnet(content: dict[str, Any], name: str) -> Imported | None:
    """Stages with free filters; those of the UNet have no weights of neighbours."""
    stages = [layer for layer in layers(content) if layer["type"] in ("unlnet", "unet")]
    if not stages:
        return None
    ours: State = {}
    for i, stage in enumerate(stages):
        given = stage["weights"]
        local = len(given) == 6
        kernels, scales, group, radial, slack = (
            (given[0], given[2], np.ones(1), given[4], given[5]) if local else (*given[:3], given[6], given[7])
        )
        key = f"net.stages.{i}"
        ours[f"{key}.kernels"] = from_matlab(kernels)
        ours[f"{key}.scales"] = tensor(scales).flatten()
        ours[f"{key}.weights"] = tensor(group).flatten()
        ours[f"{key}.shrinkage.weights"] = tensor(radial)
        ours[f"{key}.slack"] = tensor(slack).reshape(())
    first = ours["net.stages.0.kernels"]
    config = {
        "channels": first.shape[1],
        "patch_size": first.shape[-1],
        "filters": len(first),
        "stages": len(stages),
        "group": len(ours["net.stages.0.weights"]),
    }
    what = "UNLNet" if config["group"] > 1 else "UNet, the UNLNet without neighbours"
    licence = LICENCE.format("cig-skoltech/UDNet")
    return Imported("unlnet", config, ours, f"the author's {what}", licence, _noise(content))


def _size(stages: list[dict[str, Any]]) -> int:
    """Of the filters, which all stages mix from the same cosines."""
    found = [from_matlab(stage["filters"][0]) for stage in stages]  # (M, 1, P, P) each
    ours = dct_atoms(min(found[0].shape[-1], 15))[1:, None].float()
    if any(atoms.shape != ours.shape or not torch.allclose(atoms, ours, atol=1e-5) for atoms in found):
        raise ValueError("its filters are not mixed from cosines")
    return int(ours.shape[-1])


def _planes_first(radial: NDArray[Any]) -> NDArray[Any]:
    """Weights of functions, (M, J) or (M, J, C) -> (C M, J)."""
    return radial if radial.ndim == 2 else radial.transpose(2, 0, 1).reshape(-1, radial.shape[1])


def _noise(content: dict[str, Any]) -> dict[str, Any]:
    """The noise level of the training, or the lowest and the highest one."""
    levels = sorted(float(level) for level in np.ravel(content["net"]["meta"]["trainOpts"]["noise_std"]))
    if len(levels) == 1:
        return {"sigma": levels[0]}
    return {"sigma": [levels[0], levels[-1]]}


IMPORTERS = [
    Importer("matlab", ("nlnet",), "cig-skoltech/NLNet (.mat)", nlnet),
    Importer("matlab", ("unlnet",), "cig-skoltech/UDNet (.mat)", unlnet),
]
