"""Items of training: drawn from counters, in order, whatever reads ahead."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from n3net.tasks import task_class
from n3net.tasks.data import Images, Prefetcher, choose, generator
from n3net.tasks.gaussian import GaussianOptions


def test_items_are_pure(pictures: Path) -> None:
    task = task_class("gaussian")(GaussianOptions(["train"], ["val"], str(pictures), crop=16), {}, 3)
    one, again = (task.item(5, generator(3, 0, 1, 1)) for _ in range(2))
    other = task.item(5, generator(3, 0, 1, 2))
    assert np.array_equal(one["noisy"], again["noisy"])
    assert not np.array_equal(one["noisy"], other["noisy"])


def test_every_image_equally_often() -> None:
    assert sorted(choose(1, n, 7) for n in range(14, 21)) == list(range(7))


def test_noise_has_its_level(pictures: Path) -> None:
    options = GaussianOptions(["train"], ["val"], str(pictures), sigma=25, crop=16)
    task = task_class("gaussian")(options, {}, 0)
    items = [task.item(i, generator(0, 0, 0, i)) for i in range(200)]
    noise = np.stack([item["noisy"] - item["clean"] for item in items]) * 255
    assert noise.std() == pytest.approx(25, rel=0.02)


def test_prefetcher_reads_ahead() -> None:
    third = threading.Event()

    def make(step: int) -> dict[str, torch.Tensor]:
        if step == 2:
            third.set()
        return {"step": torch.tensor(step)}

    batches = Prefetcher(make, 0)
    assert third.wait(60)  # nobody has asked for the first yet
    batches.close()


def test_prefetcher_keeps_the_order() -> None:
    def make(step: int) -> dict[str, torch.Tensor]:
        time.sleep(0.002 * (step % 3))
        return {"step": torch.tensor(step)}

    batches = Prefetcher(make, 4, workers=3)
    iterator = iter(batches)
    assert [int(next(iterator)["step"]) for _ in range(20)] == list(range(4, 24))
    batches.close()


def test_gray_and_colour(pictures: Path) -> None:
    assert Images([pictures / "train"], 1).images[0].shape == (60, 70, 1)
    assert Images([pictures / "train" / "1.png"], 3).images[0].dtype == np.uint8
