"""Files of other programs: made up in their forms, broken, hostile, and compared with other readers."""

from __future__ import annotations

import itertools
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from n3net import weights
from n3net.errors import UserError
from n3net.models import create
from n3net.weights.folder import weights_of
from n3net.weights.importers import caffe, kind_of, matlab
from n3net.weights.importers.ffdnet import our_order

# Caffe: a writer of what is read.


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def entry(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def blob(array: Any, old: bool = False) -> bytes:
    values = np.asarray(array, "<f4")
    if old:
        sizes = (1,) * (4 - values.ndim) + values.shape
        shape = b"".join(varint(i << 3) + varint(size) for i, size in enumerate(sizes, start=1))
        return shape + b"".join(varint(5 << 3 | 5) + value.tobytes() for value in values.ravel())
    return entry(7, entry(1, b"".join(map(varint, values.shape)))) + entry(5, values.tobytes())


def caffemodel(path: Path, layers: list[tuple[str, str, list[Any]]]) -> Path:
    content = entry(1, b"net")
    for name, kind, blobs in layers:
        content += entry(
            100, entry(1, name.encode()) + entry(2, kind.encode()) + b"".join(entry(7, blob(b)) for b in blobs)
        )
    path.write_bytes(content)
    return path


def test_caffe_layers_in_both_forms(tmp_path: Path) -> None:
    array = np.arange(24.0).reshape(2, 3, 2, 2)
    old = entry(1, b"net") + entry(2, entry(4, b"a") + varint(5 << 3) + varint(4) + entry(6, blob(array, old=True)))
    (tmp_path / "old.caffemodel").write_bytes(old)
    new = caffemodel(tmp_path / "new.caffemodel", [("a", "Convolution", [array]), ("b", "ReLU", [])])
    for path, count in ((tmp_path / "old.caffemodel", 1), (new, 2)):
        layers = caffe.read(path)
        assert len(layers) == count
        assert (layers[0].name, layers[0].type) == ("a", "Convolution")
        assert np.array_equal(layers[0].blobs[0], array)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x0a", "ends within"),
        (b"\x0a\x05ab", "5 bytes are announced"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "are announced"),
        (entry(1, b"n") + b"\x0b", "type 3"),
        (entry(100, entry(7, entry(7, entry(1, varint(2**40))) + entry(5, b"1234"))), "with 1 numbers"),
        (entry(100, entry(7, entry(7, entry(1, varint(1) * 9)) + entry(5, b"1234"))), "9 axes"),
        (entry(100, entry(7, entry(8, b"12345678"))), "double"),
        (entry(2, b"") * 20_000, "more than 10000 layers"),
    ],
)
def test_broken_caffe_files(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.caffemodel").write_bytes(content)
    with pytest.raises(UserError, match=words):
        weights.import_file(tmp_path / "x.caffemodel")


STARTS = [b"\x0a\x03net", b"MATLAB 5.0 MAT-file", b"PK\x03\x04", b"\x80"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), start=st.sampled_from(STARTS))
@pytest.mark.filterwarnings("ignore")  # torch's, of what it finds
def test_any_bytes_give_an_answer_in_words(tmp_path: Path, data: bytes, start: bytes) -> None:
    content = start.ljust(124) + b"\x00\x01IM" if start.startswith(b"MATLAB") else start
    (tmp_path / "x").write_bytes(content + data)
    with pytest.raises(UserError):
        weights.import_file(tmp_path / "x")


def conv_layers(net: list[nn.Module], names: str = "conv{}", swap: bool = True) -> list[tuple[str, str, list[Any]]]:
    out: list[tuple[str, str, list[Any]]] = []
    for i, layer in enumerate(net):
        kind = "Deconvolution" if isinstance(layer, nn.ConvTranspose2d) else "Convolution"
        weight = layer.weight.detach().numpy()
        out.append((names.format(i), kind, [weight.swapaxes(2, 3) if swap else weight, layer.bias.detach().numpy()]))
    return out


def test_vdsr_of_caffe(tmp_path: Path) -> None:
    model = create("vdsr", depth=3, features=4).eval()
    convs = [layer for layer in model.net.layers if isinstance(layer, nn.Conv2d)]
    imported, metadata = weights.import_file(caffemodel(tmp_path / "x.caffemodel", conv_layers(convs)))
    assert imported.recipe.name == "vdsr"
    assert metadata["training"]["factors"] == [2, 3, 4]
    x = torch.rand(1, 1, 9, 8)
    torch.testing.assert_close(imported(x), model(x))


def test_red30_of_caffe(tmp_path: Path) -> None:
    model = create("red30", depth=6, features=4).eval()
    nn.init.normal_(model.net.up[2].weight)
    path = caffemodel(tmp_path / "noise50.caffemodel", conv_layers([*model.net.down, *model.net.up]))
    imported, metadata = weights.import_file(path)
    assert imported.recipe.name == "red30"
    assert metadata["training"]["sigma"] == 50
    x = torch.rand(1, 1, 9, 8)
    torch.testing.assert_close(imported(x), model(x))


def memnet_layers(net: Any) -> list[tuple[str, str, list[Any]]]:
    """As Caffe would have written them: shared convolutions again and again, statistics as sums."""
    layers: list[tuple[str, str, list[Any]]] = []

    def norm(name: str, bn: Any) -> None:
        total = 7.0
        sums = [bn.running_mean.numpy() * total, bn.running_var.numpy() * total, np.array([total])]
        layers.append((f"bn_{name}", "BatchNorm", sums))
        layers.append((f"scale_{name}", "Scale", [bn.weight.detach().numpy(), bn.bias.detach().numpy()]))

    def conv(name: str, layer: Any) -> None:
        layers.extend(conv_layers([layer], name, swap=False))

    norm("conv1", net.first[0])
    conv("conv1", net.first[2])
    for m, block in enumerate(net.blocks, start=1):
        for r, unit in enumerate(block.units, start=1):
            for i, part in enumerate("ab"):
                norm(f"conv{m:02}_{r:02}_{part}", unit[i][0])
                conv(f"conv{m:02}_{r:02}_{part}", block.convolutions[i])
        norm(f"conv_transition_{m:02}", block.gate[0])
        conv(f"conv_transition_{m:02}", block.gate[2])
        norm(f"conv_end_{m:02}", net.last_norms[m - 1][0])
        conv(f"conv_end_{m:02}", net.last)
        layers.append((f"weight_output_end_{m:02}", "Scale", [net.weights[m - 1 : m].detach().numpy()]))
    return layers


def test_memnet_of_caffe(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = create("memnet", blocks=2, units=2, features=3).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
    layers = memnet_layers(model.net)
    imported, _ = weights.import_file(caffemodel(tmp_path / "x.caffemodel", layers))
    assert imported.recipe.config["blocks"] == imported.recipe.config["units"] == 2
    x = torch.rand(1, 1, 9, 8)
    torch.testing.assert_close(imported(x), model(x))
    changed = [(n, k, [b[0] + 1, *b[1:]] if n == "conv01_02_a" else b) for n, k, b in layers]
    with pytest.raises(UserError, match="does not share"):
        weights.import_file(caffemodel(tmp_path / "y.caffemodel", changed))
    with pytest.raises(UserError, match="conv_end_02 has 0 arrays"):
        weights.import_file(caffemodel(tmp_path / "z.caffemodel", [x for x in layers if x[0] != "conv_end_02"]))


# MATLAB


def matlab_weight(layer: nn.Conv2d) -> Any:
    """(out, in, rows, columns) -> (rows, columns, in, out); MATLAB drops a last axis of 1."""
    array = layer.weight.detach().numpy().transpose(2, 3, 1, 0)
    return array[..., 0] if array.shape[3] == 1 else array


def save_v5(path: Path, content: dict[str, Any], compressed: bool = True) -> Path:
    scipy = pytest.importorskip("scipy.io")
    scipy.savemat(path, content, do_compression=compressed)
    return path


def save_v73(path: Path, content: dict[str, Any]) -> Path:
    """As MATLAB writes structs, cells, text and numbers into HDF5."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        references, numbers = file.create_group("#refs#"), itertools.count()

        def put(parent: Any, name: str, value: Any) -> None:
            if isinstance(value, dict):
                group = parent.create_group(name)
                for key, part in value.items():
                    put(group, key, part)
            elif isinstance(value, list):
                found = []
                for part in value:
                    key = f"r{next(numbers)}"
                    put(references, key, part)
                    found.append(references[key].ref)
                parent.create_dataset(name, data=np.array(found, object)[:, None], dtype=h5py.ref_dtype)
            elif isinstance(value, str):
                dataset = parent.create_dataset(name, data=np.array([[ord(c)] for c in value], "u2"))
                dataset.attrs["MATLAB_class"] = np.bytes_(b"char")
            else:
                parent.create_dataset(name, data=np.asarray(value).T)

        for name, value in content.items():
            put(file, name, value)
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


def in_cells(value: Any) -> Any:
    """Lists as arrays of objects, which scipy writes as cells."""
    if isinstance(value, dict):
        return {key: in_cells(part) for key, part in value.items()}
    if isinstance(value, list):
        out = np.empty((1, len(value)), object)
        for i, part in enumerate(value):
            out[0, i] = in_cells(part)
        return out
    return value


def saved(path: Path, content: dict[str, Any], version: str) -> Path:
    return save_v73(path, content) if version == "7.3" else save_v5(path, in_cells(content), version == "5 compressed")


VERSIONS = ["5", "5 compressed", "7.3"]


@pytest.mark.parametrize("version", VERSIONS)
def test_matlab_values(tmp_path: Path, version: str) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    content = {"a": {"numbers": array, "text": "conv", "cells": [array[0], "x", {"deep": np.int16([[7]])}]}}
    found = matlab.read(saved(tmp_path / "x.mat", content, version))["a"]
    assert np.array_equal(found["numbers"], array)
    assert found["text"] == "conv"
    assert np.array_equal(found["cells"][0], array[0])
    assert found["cells"][1] == "x"
    assert found["cells"][2]["deep"] == 7


def simple_net(types: list[Any]) -> dict[str, Any]:
    return {"net": {"layers": types}}


@pytest.mark.parametrize("version", VERSIONS)
def test_dncnn_of_matlab(tmp_path: Path, version: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 1, 3, padding=1),
    )
    layers: list[Any] = []
    for layer in net:
        conv = isinstance(layer, nn.Conv2d)
        parts = {"weights": [matlab_weight(layer), layer.bias.detach().numpy()[:, None]]} if conv else {}
        layers.append({"type": "conv" if conv else "relu", **parts})
    model, metadata = weights.import_file(saved(tmp_path / "sigma=15.mat", simple_net(layers), version))
    assert metadata["training"]["sigma"] == 15
    x = torch.rand(1, 1, 9, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(x), x - net(x))


@pytest.mark.parametrize("channels", [1, 3])
def test_ffdnet_of_matlab(tmp_path: Path, channels: int) -> None:
    """Small images column first, and the noise level last."""
    torch.manual_seed(0)
    first, last = nn.Conv2d(4 * channels + 1, 4, 3, padding=1), nn.Conv2d(4, 4 * channels, 3, padding=1)
    layers: list[Any] = [{"type": "SubP"}, {"type": "concat"}]
    for layer in (first, last):
        layers.append({"type": "conv", "weights": [matlab_weight(layer), layer.bias.detach().numpy()[:, None]]})
        layers.append({"type": "relu"})
    layers[-1] = {"type": "SubP"}
    model, metadata = weights.import_file(save_v73(tmp_path / "FFDNet_Clip.mat", simple_net(layers)))
    assert metadata["training"] == {
        "imported": "the authors' FFDNet for images that were clipped", "file": "FFDNet_Clip.mat",
        "sigma": [0.0, 75.0], "clipped": True,
    }  # fmt: skip
    x = torch.rand(1, channels, 8, 6)
    places = [(0, 0), (1, 0), (0, 1), (1, 1)]
    small = torch.stack([x[:, c, i::2, j::2] for c in range(channels) for i, j in places], 1)
    told = torch.cat([small, torch.full_like(small[:, :1], 30 / 255)], 1)
    with torch.no_grad():
        made = last(first(told).relu())
        expected = torch.empty_like(x)
        for c in range(channels):
            for n, (i, j) in enumerate(places):
                expected[:, c, i::2, j::2] = made[:, 4 * c + n]
        torch.testing.assert_close(model(x, 30.0), expected)
    assert sorted(our_order(channels).tolist()) == list(range(4 * channels))


def nlnet_content(net: Any, channels: int, sigma: Any) -> dict[str, Any]:
    layers: list[Any] = []
    empty = np.zeros((0, 0))
    for stage in net.stages:
        radial = stage.shrinkage.weights.detach().numpy()
        if channels == 3:
            radial = radial.reshape(3, -1, 51).transpose(1, 2, 0)
        given = [
            stage.mixing.detach().numpy(),
            empty,
            stage.weights.detach().numpy()[None],
            empty,
            radial,
            np.float32([[0.1]]),
        ]
        atoms = stage.atoms.numpy().transpose(2, 3, 1, 0)
        layers.append({"type": "nlcf" if channels == 1 else "cnlcf", "filters": [atoms], "weights": given})
    layers.append({"type": "clip"})
    return {"net": {"layers": layers, "meta": {"trainOpts": {"noise_std": np.float64(sigma)}}}}


@pytest.mark.parametrize("channels", [1, 3])
def test_nlnet_of_matlab(tmp_path: Path, channels: int) -> None:
    torch.manual_seed(0)
    model = create("nlnet", channels=channels, patch_size=3, stages=2, group=3)
    for stage in model.net.stages:
        nn.init.normal_(stage.mixing)
        nn.init.uniform_(stage.weights)
        nn.init.normal_(stage.shrinkage.weights, std=1e-3)
        nn.init.constant_(stage.mix, 0.1)
    path = saved(tmp_path / "x.mat", nlnet_content(model.net, channels, [[25]]), "5 compressed")
    imported, metadata = weights.import_file(path)
    assert metadata["training"]["sigma"] == 25
    x = torch.rand(1, channels, 20, 21)
    with torch.no_grad():
        torch.testing.assert_close(imported(x), model(x))
    broken = nlnet_content(model.net, channels, [[25]])
    broken["net"]["layers"][1]["filters"][0] = np.ones((3, 3, 1, 8))
    with pytest.raises(UserError, match="cosines"):
        weights.import_file(saved(tmp_path / "y.mat", broken, "5"))
    del broken["net"]["layers"][1]["filters"]
    with pytest.raises(UserError, match="not all of them are there"):
        weights.import_file(saved(tmp_path / "z.mat", broken, "5"))


@pytest.mark.parametrize("group", [1, 3])
def test_unlnet_of_matlab(tmp_path: Path, group: int) -> None:
    torch.manual_seed(0)
    model = create("unlnet", channels=3, patch_size=3, filters=7, stages=2, group=group)
    layers: list[Any] = []
    empty = np.zeros((0, 0))
    for stage in model.net.stages:
        nn.init.normal_(stage.kernels)
        nn.init.uniform_(stage.weights)
        nn.init.uniform_(stage.scales)
        kernels = stage.kernels.detach().numpy().transpose(2, 3, 1, 0)
        scales, radial = stage.scales.detach().numpy()[None], stage.shrinkage.weights.detach().numpy()
        slack = np.float32([[0.3]])
        nn.init.constant_(stage.slack, 0.3)
        full = [kernels, scales, stage.weights.detach().numpy()[None], empty, empty, empty, radial, slack]
        local = [kernels, empty, scales, empty, radial, slack]
        layers.append({"type": "unlnet" if group > 1 else "unet", "weights": full if group > 1 else local})
    content = {"net": {"layers": layers, "meta": {"trainOpts": {"noise_std": np.float64([[5, 9, 13]])}}}}
    imported, metadata = weights.import_file(saved(tmp_path / "x.mat", content, "5"))
    assert metadata["training"]["sigma"] == [5, 13]
    x = torch.rand(1, 3, 20, 21)
    with torch.no_grad():
        torch.testing.assert_close(imported(x, 9.0), model(x, 9.0))


def test_a_truncated_matlab_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.mat", simple_net([{"type": "conv", "weights": [np.ones((3, 3)), np.ones(1)]}]), "5")
    content = path.read_bytes()
    for size in range(20, len(content), 37):
        path.write_bytes(content[:size])
        with pytest.raises(UserError, match=r"broken|no known"):
            weights.import_file(path)


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + b"\0" * (-len(content) % 8)


def matrix(kind: int, shape: tuple[int, ...], rest: bytes, name: bytes = b"net") -> bytes:
    parts = element(6, struct.pack("<II", kind, 0)) + element(5, struct.pack(f"<{len(shape)}i", *shape))
    return element(14, parts + element(1, name) + rest)


HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (matrix(6, (2**30, 2**30), element(9, b"\0" * 8)), "1073741824"),
        (matrix(1, (2**30, 2**30), b""), "things in 0 bytes"),
        (matrix(2, (1, 1), element(5, struct.pack("<i", 0)) + element(1, b"abc")), "letters"),
        (struct.pack("<II", 14, 2**31), "bytes where"),
        (element(14, element(6, b"")), "without a class"),
        (matrix(6, (-1, 5), element(9, b"")), "shape"),
        (matrix(6, (1, 1), element(99, b"12345678")), "type 99"),
        (element(15, b"no zlib")[: 8 + 7], "broken"),
    ],
)
def test_hostile_matlab_files(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.mat").write_bytes(HEADER + content)
    with pytest.raises(UserError, match=words):
        weights.import_file(tmp_path / "x.mat")


def test_cells_within_cells_and_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = matrix(6, (1, 1), element(9, b"\0" * 8))
    for _ in range(100):
        deep = matrix(1, (1, 1), deep)
    (tmp_path / "x.mat").write_bytes(HEADER + deep)
    with pytest.raises(UserError, match="within cells"):
        weights.import_file(tmp_path / "x.mat")
    packed = zlib.compress(element(14, b"\0" * 3_000_000))
    monkeypatch.setattr(matlab, "LARGEST", 1_000_000)
    (tmp_path / "x.mat").write_bytes(HEADER + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(UserError, match="unfolds to more"):
        weights.import_file(tmp_path / "x.mat")
    monkeypatch.setattr(matlab, "LARGEST", 100)
    with pytest.raises(UserError, match="refused"):
        weights.import_file(tmp_path / "x.mat")


@pytest.mark.parametrize("trick", ["size", "chunk", "cycle", "bomb", "outside", "virtual", "link", "text"])
def test_hostile_hdf5_files(tmp_path: Path, trick: str) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.mat"
    (tmp_path / "secret").write_bytes(b"\0" * 80)
    with h5py.File(path, "w") as file:
        net = file.create_group("net")
        if trick == "size":
            net.create_dataset("layers", (2**35,), "f4", chunks=(1024,))
        elif trick == "chunk":
            net.create_dataset("layers", (4,), "f4", chunks=(2**29,), maxshape=(None,))
        elif trick == "cycle":
            net.create_dataset("layers", data=[net.ref], dtype=h5py.ref_dtype)
        elif trick == "bomb":
            before = net.create_dataset("leaf", data=[1.0])
            for i in range(30):
                before = net.create_dataset(f"{i:02}", data=[before.ref] * 2, dtype=h5py.ref_dtype)
        elif trick == "outside":
            net.create_dataset("layers", (10,), "f8", external=[(str(tmp_path / "secret"), 0, 80)])
        elif trick == "virtual":
            layout = h5py.VirtualLayout((10,), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (10,))
            net.create_virtual_dataset("layers", layout)
        elif trick == "link":
            net["layers"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/")
        else:
            net.create_dataset("layers", data=["a", "b"])
    with pytest.raises(UserError) as error:
        weights.import_file(path)
    assert ("no known" if trick == "text" else "broken") in str(error.value)


def test_a_file_cannot_ask_for_a_network_that_it_does_not_hold(tmp_path: Path) -> None:
    """Two convolutions of 1024 channels between 200 that are not there: refused before anything is made."""
    layers: list[Any] = [("a", "Convolution", [np.zeros((1024, 1, 1, 1)), np.zeros(1024)])]
    layers += [(f"b{i}", "Convolution", [np.zeros((1, 1, 1, 1)), np.zeros(1)]) for i in range(200)]
    with pytest.raises(UserError, match="expected"):
        weights.import_file(caffemodel(tmp_path / "x.caffemodel", layers))


# EDSR-PyTorch


def edsr_names(key: str, many: bool, factor: int, blocks: int) -> str:
    """Our name -> theirs."""
    key = key.removeprefix("net.")
    for ours, theirs in {
        "head": "head.0",
        "body_end": f"body.{blocks}",
        "tail": "tail.0" if many else "tail.1",
    }.items():
        if key.startswith(f"{ours}."):
            return f"{theirs}.{key.removeprefix(ours + '.')}"
    key = key.replace(".layers.", ".body.")
    if key.startswith("enlarge") and not many:
        return key.replace(f"enlarge.{factor}.", "tail.0.")
    for i, f in enumerate((2, 3, 4)):
        key = key.replace(f"pre.{f}.", f"pre_process.{i}.").replace(f"enlarge.{f}.", f"upsample.{i}.")
    return key


@pytest.mark.parametrize(
    ("name", "config", "factor"),
    [("mdsr", {}, 3), ("edsr-baseline", {"factor": 3}, 3), ("edsr-baseline", {"factor": 4}, 4)],
)
def test_edsr_pytorch(tmp_path: Path, name: str, config: dict[str, int], factor: int) -> None:
    torch.manual_seed(0)
    model = create(name, blocks=3, features=4, **config).eval()
    theirs = {edsr_names(key, name == "mdsr", factor, 3): value for key, value in model.state_dict().items()}
    theirs |= {"sub_mean.weight": torch.eye(3).view(3, 3, 1, 1), "sub_mean.bias": torch.zeros(3)}
    torch.save(theirs, tmp_path / "x.pt")
    imported, metadata = weights.import_file(tmp_path / "x.pt")
    assert factor in metadata["training"]["factors"]
    x = torch.rand(1, 3, 6, 7)
    with torch.no_grad():
        torch.testing.assert_close(imported(x, factor), model(x, factor))
    torch.save({key: value for key, value in theirs.items() if "body.1." not in key}, tmp_path / "y.pt")
    with pytest.raises(UserError, match=r"missing"):
        weights.import_file(tmp_path / "y.pt")


def test_a_folder_of_weights(tmp_path: Path) -> None:
    ours, made = tmp_path / "a", tmp_path / "made"
    weights.save(ours / "mine.safetensors", create("dncnn-6", features=4, depth=2))
    model = create("vdsr", depth=3, features=4)
    convs = [layer for layer in model.net.layers if isinstance(layer, nn.Conv2d)]
    caffemodel(ours / "theirs.caffemodel", conv_layers(convs))
    (ours / "broken.mat").write_bytes(HEADER + b"12345678")
    (ours / "readme.txt").write_text("nothing")
    notes: list[str] = []
    found = weights_of(ours, made, notes.append)
    assert list(found) == ["mine", "theirs.caffemodel"]
    assert [note.startswith("passed over") and "broken.mat" in note for note in notes] == [True]
    assert kind_of(ours / "theirs.caffemodel") == "caffe"
    with pytest.raises(UserError, match="no such folder"):
        weights_of(tmp_path / "none", made)
