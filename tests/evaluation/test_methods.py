"""What is measured: networks and methods by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from n3net import weights
from n3net.errors import UserError
from n3net.evaluation import psnr
from n3net.evaluation.gaussian import noise
from n3net.evaluation.images import image_set
from n3net.evaluation.methods import method, trained_for
from n3net.evaluation.raw import raw_method
from n3net.evaluation.superresolution import upscaler
from n3net.models import create
from n3net.raw.simulation import LEVELS
from n3net.restoration import running
from n3net.restoration.denoising import denoise
from small import save_small

pytestmark = pytest.mark.usefixtures("user")


def test_methods(data: Path, tmp_path: Path) -> None:
    path = save_small(tmp_path / "d.safetensors", "dncnn-17")
    told = save_small(tmp_path / "t.safetensors", "dncnn-17", noise_map=True)
    clean = image_set(data).read(0)
    noisy = clean + noise(clean.shape, 25, 0)
    assert method(f"nn3d:{told}").run(noisy, 25).shape == clean.shape
    assert method(f"two=nn3d:{path},{told}").run(noisy, 25).shape == clean.shape
    with pytest.raises(UserError, match="one noise level only"):
        method(f"nn3d:{path}")
    pytest.importorskip("skimage")
    assert psnr(method("nlm").run(noisy, 25), clean) > psnr(noisy, clean) + 3


def test_the_mean_of_eight_orientations_is_that_of_denoise(tmp_path: Path) -> None:
    path = save_small(tmp_path / "d.safetensors", "dncnn-17", noise_map=True)
    noisy = torch.rand(1, 30, 41, generator=torch.Generator().manual_seed(0))
    best = method(f"best={path}+best")
    assert best.name == "best"
    out = best.run(noisy, 25)[0].numpy()
    np.testing.assert_allclose(out, denoise(noisy[0].numpy(), 25, path, best=True), atol=1e-5)
    assert np.abs(out - method(str(path)).run(noisy, 25)[0].numpy()).max() > 1e-4


def of_kind(kind: str, path: Path) -> tuple[Any, Any, Any]:
    """A small network with blocks: the model, a function that gives what is measured, and a level."""
    torch.manual_seed(0)
    name, more = {"gaussian": ("n3net", {"noise_map": True}), "sr": ("n3net-sr", {}), "raw": ("raw-n3net", {})}[kind]
    model = create(name, features=4, depth=2, k=7, window=5, **more)
    weights.save(path, model)
    make = {"gaussian": method, "sr": upscaler, "raw": raw_method}[kind]
    return model, lambda: make(str(path)), LEVELS["middle"] if kind == "raw" else 3.0


@pytest.mark.parametrize("kind", ["gaussian", "sr", "raw"])
def test_networks_run_in_tiles(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Large images with little memory."""
    model, make, level = of_kind(kind, tmp_path / "net.safetensors")
    factor = 3 if kind == "sr" else 1  # by which the result is larger
    shape = (4 if kind == "raw" else 1, 190 // factor, 165 // factor)
    image = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    parts: list[Any] = []

    def run(net: Any, size: Any, read: Any, write: Any, tile: int | None = None, **others: Any) -> None:
        whole_run(net, size, lambda part: parts.append(part) or read(part), write, tile=30, **others)

    whole = make().run(image, level)
    whole_run = running.run
    monkeypatch.setattr(running, "run", run)
    tiled = make().run(image, level)
    assert tiled.shape == (shape[0], factor * shape[1], factor * shape[2])
    torch.testing.assert_close(tiled, whole, atol=1e-5, rtol=0)
    assert len(parts) > 4
    if kind == "gaussian":
        with torch.inference_mode():
            expected = model.eval()(image[None], sigma=level)[0]
        torch.testing.assert_close(whole, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["gaussian", "raw"])
def test_images_with_fewer_patches_than_neighbours_are_mirrored(kind: str, tmp_path: Path) -> None:
    _, make, level = of_kind(kind, tmp_path / "net.safetensors")
    image = torch.rand(4 if kind == "raw" else 1, 12, 13, generator=torch.Generator().manual_seed(0))
    large = torch.from_numpy(np.pad(image.numpy(), ((0, 0), (0, 18), (0, 17)), "symmetric"))  # five patches each way
    out = make().run(image, level)
    assert not torch.equal(out, image)
    torch.testing.assert_close(out, make().run(large, level)[:, :12, :13], atol=1e-5, rtol=0)


def test_small_images_are_upscaled_whole(tmp_path: Path) -> None:
    _, make, level = of_kind("sr", tmp_path / "net.safetensors")
    image = torch.rand(1, 4, 5, generator=torch.Generator().manual_seed(0))
    out = make().run(image, level)
    assert out.shape == (1, 12, 15)
    assert bool(out.isfinite().all())
    assert float(out.std()) > 0.05


def test_the_package_bm3d_is_optional() -> None:
    with pytest.raises(UserError, match="pip install"):
        method("bm3d-package")


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"sigma": 25}, (25, 25)),
        ({"sigma": [0, 75]}, (0, 75)),
        ({"config": {"data": {"sigma": [5, 50]}}}, (5, 50)),
        ({"data": {"sigma": [0, 55]}, "config": {"data": {}}}, (0, 55)),  # a config without it: the task's default
        ({}, None),
        (None, None),
    ],
)
def test_noise_levels_of_training(training: Any, expected: Any) -> None:
    assert trained_for({"training": training}) == expected
