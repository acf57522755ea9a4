"""N3Net as its authors published it in 2018."""

from __future__ import annotations

from n3net.nn.from_2018 import from_2018
from n3net.weights.importers.content import Imported, Importer, State, level_in

LICENCE = "non-commercial, no redistribution (TU Darmstadt, visinf/n3net)"


def recognize(theirs: State, name: str) -> Imported | None:
    """N3Net for denoising: ``blocks.I`` are DnCNNs, ``nls.I`` are N3 blocks."""
    if "blocks.0.conv1.weight" not in theirs or "nls.0.embedcnn.0.weight" not in theirs:
        return None
    ours = {}
    for key, value in theirs.items():
        kind, index, part, *rest = key.split(".")
        if kind == "blocks" and part == "bn1":
            continue  # saved, but never applied
        if kind == "blocks":
            layer = {"conv1": 0, "conv2": 14, "convf": 14}.get(part, 14) if part != "layer1" else 2 + int(rest[0])
            ours[f"net.stages.{index}.layers.{layer}.{rest[-1]}"] = value
    for index in {key.split(".")[1] for key in theirs if key.startswith("nls.")}:
        block = from_2018(theirs, f"nls.{index}.")
        ours |= {f"net.blocks.{index}.{key}": value for key, value in block.items()}
    config = {"options": "reference-2018", "first_norm": False}
    return Imported("n3net", config, ours, "the authors' N3Net of 2018", LICENCE, level_in(name))


IMPORTERS = [Importer("torch", ("n3net",), "visinf/n3net (.t7)", recognize)]
