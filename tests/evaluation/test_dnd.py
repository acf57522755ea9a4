"""The Darmstadt Noise Dataset: files of its layout, read, denoised and bundled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from n3net.errors import UserError
from n3net.evaluation.dnd import denoise_boxes, make_bundle, read_image, read_info
from n3net.models import create
from n3net.noise.sensor import NoiseLevel
from n3net.weights import save

h5py = pytest.importorskip("h5py", reason="needs the extra dnd")
scipy_io = pytest.importorskip("scipy.io", reason="needs the extra dnd")

BOXES = [(1, 1, 24, 30), (11, 5, 40, 36)]  # as MATLAB counts: first row and column, last row and column
SIZE = (44, 40)


def write_benchmark(directory: Path, count: int = 2) -> dict[str, Any]:
    """A small benchmark of the layout that MATLAB gives it; what is in its images."""
    rng = np.random.default_rng(0)
    content: dict[str, Any] = {"raw": [], "srgb": []}
    for kind, name, channels in (("raw", "Inoisy", ()), ("srgb", "InoisySRGB", (3,))):
        (directory / f"images_{kind}").mkdir(parents=True)
        for i in range(count):
            image = rng.random((*SIZE, *channels), dtype=np.float32)
            content[kind].append(image)
            with h5py.File(directory / f"images_{kind}" / f"{i + 1:04d}.mat", "w") as file:
                file[name] = image.T
    with h5py.File(directory / "info.mat", "w") as file:
        info, hidden = file.create_group("info"), file.create_group("#refs#")
        fields: dict[str, list[Any]] = {name: [] for name in ("boundingboxes", "sigma_raw", "sigma_srgb")}
        fields |= {"nlf": [], "camera": []}
        for i in range(count):
            sigma = np.arange(8, dtype=float).reshape(2, 2, 2) / 100  # (boxes, 2, 2)
            hidden[f"box{i}"] = np.array(BOXES, float).T
            hidden[f"raw{i}"] = sigma.T
            hidden[f"srgb{i}"] = np.array([[0.05], [0.1]]).T
            nlf, camera = hidden.create_group(f"nlf{i}"), hidden.create_group(f"camera{i}")
            nlf["a"], nlf["b"] = np.array([[0.01 * (i + 1)]]), np.array([[1e-4]])
            camera["pattern"] = np.array([[2, 3], [1, 2]], float).T  # GBRG
            for name, place in zip(fields, ("box", "raw", "srgb", "nlf", "camera"), strict=True):
                fields[name].append(hidden[f"{place}{i}"].ref)
        for name, references in fields.items():
            info.create_dataset(name, data=np.array([references], h5py.ref_dtype), dtype=h5py.ref_dtype)
    return content


def test_info_and_images(tmp_path: Path) -> None:
    content = write_benchmark(tmp_path)
    first, second = read_info(tmp_path)
    assert (first.name, second.name) == ("0001.mat", "0002.mat")
    assert second.level == NoiseLevel(0.02, 1e-4)
    assert second.pattern == "GBRG"
    box = first.boxes[1]
    assert (box.rows, box.columns) == (slice(10, 40), slice(4, 36))
    assert box.sigma_srgb == 0.1
    assert np.array_equal(read_image(tmp_path, second, "raw"), content["raw"][1])
    assert np.array_equal(read_image(tmp_path, second, "srgb"), content["srgb"][1])


def identity(name: str, **config: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    model: Any = create(name, depth=2, features=4, **config)
    torch.nn.init.zeros_(model.net.layers[-1].weight)
    torch.nn.init.zeros_(model.net.layers[-1].bias)
    return model


def test_boxes_go_through_the_network_as_planes(tmp_path: Path) -> None:
    content = write_benchmark(tmp_path)
    entry = read_info(tmp_path)[0]
    model: Any = identity("raw-dncnn", stabilize=False)
    model.net.forward = lambda told: 0.5 * told[:, :1] + told[:, :1].mean()
    out = denoise_boxes(content["raw"][0], entry, "raw", model)[1]
    noisy = content["raw"][0][10:40, 4:36]
    plane = noisy[0::2, 1::2]
    assert np.allclose(out[0::2, 1::2], (0.5 * plane + plane.mean()).clip(0, 1), atol=1e-6)


@pytest.mark.parametrize(("kind", "name"), [("raw", "raw-dncnn"), ("srgb", "dncnn-6")])
def test_bundle_is_the_kits(tmp_path: Path, kind: Any, name: str) -> None:
    content = write_benchmark(tmp_path / "dnd")
    config = {} if kind == "raw" else {"channels": 3, "noise_map": True}
    save(tmp_path / "net.safetensors", identity(name, **config))
    weights = str(tmp_path / "net.safetensors")
    assert make_bundle(tmp_path / "dnd", tmp_path / "out", kind, weights) == 2
    found = scipy_io.loadmat(tmp_path / "out" / "0002.mat")
    assert found["Idenoised"].shape == (1, 2)
    assert found["eval_version"] == ["1.0"]
    assert bool(found["israw"][0, 0]) == (kind == "raw")
    crop = found["Idenoised"][0, 1]
    assert crop.dtype == np.float32
    assert np.allclose(crop, content[kind][1][10:40, 4:36], atol=1e-4)
    with pytest.raises(UserError, match="exists"):
        make_bundle(tmp_path / "dnd", tmp_path / "out", kind, weights)


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"pip install 'n3net\[dnd\]'"):
        read_info(tmp_path)


def test_files_that_are_not_the_benchmarks(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_info(tmp_path)
    (tmp_path / "info.mat").write_bytes(b"no HDF5")
    with pytest.raises(UserError, match="not a file of the Darmstadt Noise Dataset"):
        read_info(tmp_path)
    with h5py.File(tmp_path / "info.mat", "w") as file:
        file["other"] = 1
    with pytest.raises(UserError, match="not a file of the Darmstadt Noise Dataset"):
        read_info(tmp_path)
    write_benchmark(tmp_path / "dnd")
    entry = read_info(tmp_path / "dnd")[0]
    with h5py.File(tmp_path / "dnd" / "images_raw" / "0001.mat", "w") as file:
        file["Inoisy"] = np.zeros((20, 20), np.float32)
    with pytest.raises(UserError, match="outside"):
        read_image(tmp_path / "dnd", entry, "raw")


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> None:
    write_benchmark(tmp_path / "dnd")
    save(tmp_path / "raw.safetensors", identity("raw-dncnn"))
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code, out, _ = command("eval", "dnd", "--data", "dnd", "-o", "bundle", "--limit", "1")
    assert code == 0
    assert "1 images -> bundle" in out
    assert [p.name for p in Path("bundle").iterdir()] == ["0001.mat"]


def test_table4_has_the_papers_rows_and_a_reason(command: Any) -> None:
    code, out, _ = command("reproduce", "table4")
    assert code == 0
    assert "| N3Net | 47.56 / – | 0.9767 / – | 38.32 / – | 0.9384 / – |" in out
    assert "| TWSC | – / – | – / – | 37.94 / – | 0.9403 / – |" in out
    assert "secret" in out
