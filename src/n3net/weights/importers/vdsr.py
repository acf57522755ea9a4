"""VDSR, as its authors' weights were converted, and as Caffe trained it again."""

from __future__ import annotations

from typing import Any

from n3net.weights.importers.caffe import Layer
from n3net.weights.importers.content import Imported, Importer, State, from_matlab, tensor

TRAINING = {"factors": [2, 3, 4]}
LICENCE = "{} (huangzehao/caffe-vdsr)"


def matlab(content: dict[str, Any], name: str) -> Imported | None:
    """A struct with cells of weights and of biases."""
    model = content.get("model")
    weights, biases = (model.get(key) for key in ("weight", "bias")) if isinstance(model, dict) else (None, None)
    if not isinstance(weights, list) or not isinstance(biases, list) or len(weights) != len(biases) or len(weights) < 2:
        return None
    ours: State = {}
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        ours[f"net.layers.{2 * i}.weight"] = from_matlab(weight)
        ours[f"net.layers.{2 * i}.bias"] = tensor(bias).flatten()
    return Imported("vdsr", _config(ours), ours, "the authors' VDSR, converted", LICENCE.format("not stated"), TRAINING)


def caffe(layers: list[Layer], name: str) -> Imported | None:
    """Convolutions only, one channel in and one out. Their files of training data had rows and columns swapped."""
    convs = [layer for layer in layers if layer.blobs]
    if len(convs) < 2 or any(layer.type != "Convolution" or len(layer.blobs) != 2 for layer in convs):
        return None
    if convs[0].blobs[0].shape[1] != 1 or len(convs[-1].blobs[0]) != 1:
        return None
    ours: State = {}
    for i, layer in enumerate(convs):
        ours[f"net.layers.{2 * i}.weight"] = tensor(layer.blobs[0].swapaxes(2, 3))
        ours[f"net.layers.{2 * i}.bias"] = tensor(layer.blobs[1]).flatten()
    return Imported("vdsr", _config(ours), ours, "VDSR as Caffe trained it", LICENCE.format("MIT"), TRAINING)


def _config(ours: State) -> dict[str, Any]:
    return {"depth": len(ours) // 2, "features": len(ours["net.layers.0.weight"])}


IMPORTERS = [
    Importer("matlab", ("vdsr",), "huangzehao/caffe-vdsr (.mat)", matlab),
    Importer("caffe", ("vdsr",), "huangzehao/caffe-vdsr (.caffemodel)", caffe),
]
