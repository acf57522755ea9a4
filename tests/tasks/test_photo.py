"""Training on photographs with simulated noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from n3net.checking import from_mapping
from n3net.errors import UserError
from n3net.models import create
from n3net.tasks import task_class
from n3net.tasks.data import generator
from n3net.tasks.photo import MOST, PhotoOptions
from n3net.training import config
from n3net.training.loop import train

MODEL = {"name": "dncnn-6", "channels": 3, "noise_map": True, "relative": True, "depth": 2, "features": 4}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    y, x = np.mgrid[:64, :70]
    for name in ("train", "validation"):
        (tmp_path / name).mkdir()
        image = np.stack([100 + 60 * np.sin(x / 9), 120 + 80 * np.sin(y / 11), 90 + x + y], -1)
        Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(tmp_path / name / "1.png")
    return tmp_path


def task(folder: Path, **options: Any) -> Any:
    return task_class("photo")(PhotoOptions(["train"], ["validation"], str(folder), crop=32, **options), MODEL, 0)


def test_items(folder: Path) -> None:
    photos = task(folder)
    item, again = (photos.item(3, generator(0, 0, 1, 2)) for _ in range(2))
    assert {key: value.shape for key, value in item.items()} == {
        "clean": (3, 32, 32),
        "noisy": (3, 32, 32),
        "sigma": (1, 32, 32),
    }
    for key, value in item.items():
        assert value.dtype == np.float32
        assert np.array_equal(value, again[key])
    assert not np.array_equal(item["noisy"], photos.item(3, generator(0, 0, 1, 3))["noisy"])


def test_the_map_tells_the_noise_with_errors(folder: Path) -> None:
    def ratios(**options: float) -> np.ndarray[Any, Any]:
        photos = task(folder, **options)
        items = [photos.item(i, generator(0, 0, 0, i)) for i in range(60)]
        told = np.array([np.sqrt(np.square(item["sigma"]).mean()) for item in items])
        return told / np.array([255 * np.sqrt(np.square(item["noisy"] - item["clean"]).mean()) for item in items])

    exact, loose = ratios(map_error=0, map_texture=0), ratios(map_error=0.5, map_texture=0)
    rough = ratios(map_error=0, map_texture=9)
    assert np.median(exact) == pytest.approx(1, abs=0.1)
    assert np.log(exact).std() < 0.25
    assert np.log(loose).std() > 0.35
    assert (rough >= exact).all()
    assert np.median(rough) > 1.3
    assert task(folder, map_error=9).item(0, generator(0, 0, 0, 0))["sigma"].max() <= MOST


def test_black_and_white(folder: Path) -> None:
    item = task(folder, gray=1.0).item(0, generator(0, 0, 0, 0))
    for name in ("noisy", "clean"):
        assert np.ptp(item[name], 0).max() == 0


def test_loss_counts_all_levels_alike(folder: Path) -> None:
    photos = task(folder)
    batch = photos.collate([photos.item(i, generator(0, 0, 0, i)) for i in range(6)])
    perfect, figures = photos.loss(lambda noisy, sigma: batch["clean"], batch)
    assert float(perfect) == 0
    assert float(figures["gain"]) == pytest.approx(60)
    nothing, figures = photos.loss(lambda noisy, sigma: noisy, batch)
    assert float(figures["gain"]) == pytest.approx(0, abs=0.5)
    assert float(nothing) == pytest.approx(np.log1p(100), rel=0.05)


def test_validation_estimates_the_noise(folder: Path) -> None:
    photos = task(folder)
    model = create(**MODEL).eval()
    with torch.no_grad():
        scores, again = (photos.validate(model, 0, generator(0, 1, 0, 0)) for _ in range(2))
    assert scores == again
    assert list(scores) == ["psnr", "psnr-low", "psnr-high"]
    assert scores["psnr-low"] > scores["psnr-high"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"log_a": [-2, -4]}, "data.log_a: expected the ends of a range"),
        ({"gray": 1.5}, "data.gray: expected a part"),
        ({"map_error": -1}, "data.map_error: expected 0 or more"),
    ],
)
def test_refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        from_mapping(PhotoOptions, {"train": [], "validation": [], **options}, "data")


@pytest.mark.parametrize("change", [{"channels": 1}, {"noise_map": False, "relative": False}, {"name": "vdsr"}])
def test_models_that_cannot_be_told(folder: Path, change: dict[str, Any]) -> None:
    model = {"name": "vdsr"} if "name" in change else {**MODEL, **change}
    options = PhotoOptions(["train"], ["validation"], str(folder), crop=32)
    with pytest.raises(UserError, match=r"cannot be told the noise of colour photographs|vdsr is not for denoising"):
        task_class("photo")(options, model, 0).build_model()


def test_trains(folder: Path, tmp_path: Path) -> None:
    settings = config.load(
        "photo",
        [
            f"data.root={folder}",
            "data.train=[train]",
            "data.validation=[validation]",
            "data.crop=32",
            "model.depth=2",
            "model.features=4",
            "start=identity",
            "steps=2",
            "accelerator=cpu",
        ],
    )
    outcome = train(settings, tmp_path / "run")
    assert outcome.step == 2
    assert np.isfinite(outcome.scores["psnr"])
    from n3net.restoration.photographs import is_for_photographs
    from n3net.weights import load

    assert is_for_photographs(load(tmp_path / "run" / "weights.safetensors"))
