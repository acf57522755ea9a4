"""Parity with the networks' authors: their weights, imported, on pictures and arrays that are beside this project."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from n3net import weights
from n3net.evaluation.images import image_set
from n3net.evaluation.superresolution import evaluate, upscaler
from n3net.models.nlnet import NLNet

SHARED = Path(__file__).parents[3] / "shared"
OFFICIAL = SHARED / "official"
pytestmark = pytest.mark.skipif(
    not (OFFICIAL / "nlnet").is_dir(), reason="the authors' weights and outputs are not beside this project"
)


@cache
def imported(name: str) -> nn.Module:
    if name.startswith(("ffdnet", "dncnn")):
        pytest.importorskip("h5py")
    return weights.import_file(OFFICIAL / name)[0]


def picture(path: Path) -> Tensor:
    """(1, C, H, W) in gray levels."""
    return torch.from_numpy(np.atleast_3d(np.asarray(Image.open(path), np.float32))).permute(2, 0, 1)[None]


@pytest.mark.parametrize(
    ("file", "given", "expected"),
    [
        ("FFDNet_Clip_gray.mat", "05_75_75.png", "05_75_75_PSNR_2479.png"),
        ("FFDNet_Clip_color.mat", "102061_75_75.png", "102061_75_75_PSNR_2698.png"),
    ],
)
def test_ffdnet_gives_its_authors_pictures(file: str, given: str, expected: str) -> None:
    with torch.no_grad():
        out = imported(f"ffdnet/{file}")(picture(OFFICIAL / "ffdnet" / given) / 255, 75.0)
    difference = ((255 * out).round().clamp(0, 255) - picture(OFFICIAL / "ffdnet" / expected)).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 0.05


def test_dncnn_reaches_its_authors_psnr() -> None:
    clean = SHARED / "data" / "Set12" / "05.png"
    if not clean.is_file():
        pytest.skip("Set12 is not beside this project")
    truth, theirs = picture(clean), picture(OFFICIAL / "dncnn" / "05_25.png")
    with torch.no_grad():
        out = 255 * imported("dncnn/sigma=25.mat")(picture(OFFICIAL / "dncnn" / "05_25_noisy.png") / 255)
    ours, reached = (20 * np.log10(255) - 10 * (x.clamp(0, 255) - truth).square().mean().log10() for x in (out, theirs))
    assert float(ours) == pytest.approx(float(reached), abs=0.01)
    assert float(ours) == pytest.approx(30.28, abs=0.01)


@pytest.mark.parametrize("sigma", [25, 50])
@pytest.mark.parametrize("name", ["nlnet_7x7", "nlnet_5x5", "cnlnet", "unlnet_gray", "unlnet_color"])
def test_nlnet_and_unlnet_against_a_prototype(name: str, sigma: int) -> None:
    data = np.load(OFFICIAL / "nlnet" / "prototype_outputs.npz")
    level = "LN" if sigma < 30 else "HN"
    file = {
        "cnlnet": f"nlnet/cnlnet_5x5_std={sigma}_joint.mat",
        "unlnet_gray": f"unlnet/unlnet_{level}_7x7j.mat",
        "unlnet_color": f"unlnet/unlnet_c{level}_5x5j.mat",
    }.get(name, f"nlnet/{name}_std={sigma}_joint.mat")
    gray = name in ("nlnet_7x7", "nlnet_5x5", "unlnet_gray")
    noisy = torch.from_numpy(data[f"{'gray' if gray else 'color'}_noisy{sigma}"])
    noisy = noisy[None, None] if gray else noisy[None]
    model: Any = imported(file)
    with torch.no_grad():
        out = 255 * model(noisy / 255, float(sigma))[0]
    difference = (out - torch.from_numpy(data[f"{name}_{sigma}"])).abs()
    # ties of the search, and only they, may be broken in another way
    assert difference.median() < 1e-3
    assert difference.mean() < 2e-2
    index = data.get(f"index_{name.removeprefix('nlnet_')}_{sigma}")
    if isinstance(model.net, NLNet) and index is not None and gray:
        codes = model.net.groups(noisy)[0].long()  # (8, H, W)
        rows = torch.arange(codes.shape[1])[:, None] + codes // 31 - 15
        found = (rows * codes.shape[2] + torch.arange(codes.shape[2]) + codes % 31 - 15).flatten(1)
        assert (found.numpy() != index).mean() < 1e-4


def test_vdsr_of_caffe_and_of_matlab_turn_the_same_way(tmp_path: Path) -> None:
    """Butterfly by 3: both files reach what is published, which a network whose rows are columns does not."""
    images = SHARED / "data" / "Set5"
    if not images.is_dir():
        pytest.skip("Set5 is not beside this project")
    names = []
    for file in ("VDSR_Official.mat", "VDSR_Adam.caffemodel"):
        model, metadata = weights.import_file(OFFICIAL / "vdsr" / file)
        names.append(str(weights.save(tmp_path / f"{Path(file).stem}.safetensors", model, metadata)))
    sets = image_set(images)
    chosen = [path for path in sets.paths if "butterfly" in path.name.lower()]
    rows = evaluate([upscaler(name) for name in names], type(sets)(sets.name, tuple(chosen)), [3])
    official, adam = (row.psnr for row in rows)
    assert official == pytest.approx(29.965, abs=0.02)
    assert adam == pytest.approx(official, abs=0.4)
