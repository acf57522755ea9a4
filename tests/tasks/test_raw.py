"""The task of raw data: its items, losses, scores and configs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from n3net.errors import UserError
from n3net.models import create
from n3net.models.raw import RawDenoiser
from n3net.raw.simulation import LEVELS
from n3net.tasks.data import TRAINING, generator
from n3net.tasks.raw import RawDenoising, RawOptions


def options(root: Path, **more: Any) -> RawOptions:
    return RawOptions(train=["train"], validation=["val"], root=str(root), crop=24, **more)


TINY = {"name": "raw-dncnn", "depth": 2, "features": 4}


@pytest.mark.parametrize("bayer", [0.0, 1.0])
def test_items_are_pure_and_have_the_noise_they_say(pictures: Path, bayer: float) -> None:
    task = RawDenoising(options(pictures, bayer=bayer), TINY, 0)
    item = task.item(5, generator(0, TRAINING, 1, 1))
    again = task.item(5, generator(0, TRAINING, 1, 1))
    assert all(np.array_equal(item[key], again[key]) for key in item)
    assert item["clean"].shape == item["noisy"].shape == (1, 24, 24)
    assert item["noisy"].min() >= 0
    assert item["noisy"].max() <= 1
    assert item["clean"].max() <= 1
    ratios = []
    for i in range(60):
        item = task.item(i, generator(0, TRAINING, 2, i))
        clean = item["clean"]
        deviation = np.sqrt(item["a"] * clean + item["b"])
        clear = (clean > 3 * deviation) & (clean < 1 - 3 * deviation)
        ratios.append(((item["noisy"] - clean) / deviation)[clear])
    assert np.concatenate(ratios).std() == pytest.approx(1, rel=0.05)


def test_black_is_cut_off_only_where_asked(pictures: Path) -> None:
    task = RawDenoising(options(pictures, clip_black=0.0), TINY, 0)
    assert min(task.item(i, generator(0, TRAINING, 0, i))["noisy"].min() for i in range(5)) < 0


@pytest.mark.parametrize("loss", ["squared", "relative"])
def test_a_better_network_has_less_loss(pictures: Path, loss: Any) -> None:
    task = RawDenoising(options(pictures, loss=loss), TINY, 0)
    batch = task.collate([task.item(i, generator(0, TRAINING, 0, i)) for i in range(4)])

    class Mix(torch.nn.Module):
        def __init__(self, part: float) -> None:
            super().__init__()
            self.part = part

        def forward(self, x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
            return batch["clean"] + self.part * (x - batch["clean"])

    losses = [float(task.loss(Mix(part), batch)[0]) for part in (0.0, 0.1, 0.5, 1.0)]
    assert losses == sorted(losses)
    assert losses[0] >= 0
    assert task.loss(Mix(0.1), batch)[1]["gain"] - task.loss(Mix(1.0), batch)[1]["gain"] == pytest.approx(20, abs=0.1)


def test_validation_and_what_the_task_refuses(pictures: Path) -> None:
    task = RawDenoising(options(pictures), TINY, 0)
    with torch.inference_mode():
        scores = task.validate(task.build_model().eval(), 0, np.random.default_rng(0))
    assert scores.keys() == {"psnr", *(f"psnr-{name}" for name in LEVELS)}
    with pytest.raises(UserError, match="not for raw data"):
        RawDenoising(options(pictures), {"name": "dncnn-6"}, 0).build_model()
    with pytest.raises(ValueError, match="bayer"):
        options(pictures, bayer=2.0)
    with pytest.raises(ValueError, match="exponent"):
        options(pictures, exponent=(3.0, 2.0))


def test_configs_build_their_models() -> None:
    from n3net.training.config import load

    for name in ("raw", "dncnn-raw", "dnd"):
        config = load(name)
        assert config.task == "raw"
        assert isinstance(create(**config.model), RawDenoiser)
    assert load("raw").data == load("dncnn-raw").data
    assert load("raw").steps == load("dncnn-raw").steps
