"""RED30 as its authors publish it."""

from __future__ import annotations

from n3net.weights.importers.caffe import Layer
from n3net.weights.importers.content import Imported, Importer, State, level_in, tensor


def recognize(layers: list[Layer], name: str) -> Imported | None:
    """As many convolutions as transposed ones. Their program hands Caffe images with rows and columns swapped."""
    down = [layer for layer in layers if layer.type == "Convolution" and layer.blobs]
    up = [layer for layer in layers if layer.type == "Deconvolution" and layer.blobs]
    if not up or len(down) != len(up) or any(len(layer.blobs) != 2 for layer in (*down, *up)):
        return None
    ours: State = {}
    for kind, found in (("down", down), ("up", up)):
        for i, layer in enumerate(found):
            ours[f"net.{kind}.{i}.weight"] = tensor(layer.blobs[0].swapaxes(2, 3))
            ours[f"net.{kind}.{i}.bias"] = tensor(layer.blobs[1]).flatten()
    first = ours["net.down.0.weight"]
    config = {"channels": first.shape[1], "depth": 2 * len(down), "features": len(first)}
    return Imported("red30", config, ours, "the authors' RED30", "non-commercial (ved27/RED-net)", level_in(name))


IMPORTERS = [Importer("caffe", ("red30",), "ved27/RED-net (.caffemodel)", recognize)]
