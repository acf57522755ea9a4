"""MDSR and EDSR of EDSR-PyTorch."""

from __future__ import annotations

import math
import re
from typing import Any

from n3net.models.edsr import FACTORS
from n3net.weights.importers.content import Imported, Importer, State

LICENCE = "MIT (sanghyun-son/EDSR-PyTorch)"
WIDE = 256  # features from which on EDSR's residual blocks are scaled


def recognize(theirs: State, name: str) -> Imported | None:
    """``head``, ``body`` and ``tail``, in MDSR also ``pre_process`` and ``upsample`` for each factor."""
    if "head.0.weight" not in theirs or "body.0.body.0.weight" not in theirs:
        return None
    blocks = 1 + max(int(match[1]) for key in theirs if (match := re.match(r"body\.(\d+)\.body\.", key)))
    features, many = len(theirs["head.0.weight"]), "pre_process.0.0.body.0.weight" in theirs
    factor = 2 if many else _factor(theirs)
    names = {f"body.{blocks}": "body_end", "head.0": "head", f"tail.{0 if many else 1}": "tail"}
    ours: State = {}
    for key, value in theirs.items():
        layer, _, part = key.rpartition(".")
        if layer in ("sub_mean", "add_mean"):
            continue  # the mean of DIV2K's colours, which is ours, too
        match = re.fullmatch(r"(pre_process|upsample|body|tail)\.(.*)", layer)
        if layer in names:
            new = names[layer]
        elif match and match[1] == "body":
            new = f"body.{match[2].replace('.body.', '.layers.')}"
        elif match and match[1] == "pre_process":
            index, _, rest = match[2].partition(".")
            new = f"pre.{FACTORS[int(index)]}.{rest.replace('.body.', '.layers.')}"
        elif match and match[1] == "upsample":
            index, _, rest = match[2].partition(".")
            new = f"enlarge.{FACTORS[int(index)]}.{rest}"
        elif match and match[2].startswith("0."):
            new = f"enlarge.{factor}.{match[2].removeprefix('0.')}"
        else:
            new = layer
        ours[f"net.{new}.{part}"] = value
    if many:
        config: dict[str, Any] = {"blocks": blocks, "features": features}
        return Imported("mdsr", config, ours, "MDSR of EDSR-PyTorch", LICENCE, {"factors": list(FACTORS)})
    scale = 0.1 if features >= WIDE else 1.0
    config = {"factor": factor, "blocks": blocks, "features": features, "scale": scale}
    return Imported("edsr", config, ours, "EDSR of EDSR-PyTorch", LICENCE, {"factors": [factor]})


def _factor(theirs: State) -> int:
    """EDSR's factor: twice by 2, or the root of how many times wider its only convolution makes the image."""
    if "tail.0.2.weight" in theirs:
        return 4
    first = theirs.get("tail.0.0.weight")
    return 2 if first is None or first.dim() != 4 else math.isqrt(len(first) // max(first.shape[1], 1))


IMPORTERS = [
    Importer("torch", ("mdsr", "mdsr-baseline", "edsr", "edsr-baseline"), "sanghyun-son/EDSR-PyTorch (.pt)", recognize)
]
