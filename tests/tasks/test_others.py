"""What the paper's other networks are trained with: their losses, crops and configs."""

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
from n3net.tasks.images import missing_psnr, squared_error
from n3net.training.config import load

NAMES = ["nlnet", "unlnet", "memnet", "mdsr", "cbdnet"]
SMALL: dict[str, dict[str, Any]] = {
    "nlnet": {"stages": 1, "radius": 3},
    "unlnet": {"stages": 1, "radius": 3},
    "memnet": {"blocks": 2, "units": 1, "features": 2},
    "mdsr": {"blocks": 1, "features": 2},
    "cbdnet": {"features": 2},
}


def made(tmp_path: Path, name: str, **more: Any) -> tuple[Any, torch.nn.Module]:
    """The task of a config, with small images, crops and networks, and its network."""
    pytest.importorskip("yaml")
    rng = np.random.default_rng(0)
    for part in ("train", "validation"):
        (tmp_path / part).mkdir(exist_ok=True)
        for i in range(2):
            pixels = rng.integers(0, 256, (90, 88, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / part / f"{part}{i}.png")
    config = load(name)
    data = {**config.data, "train": ["train"], "validation": ["validation"], "root": str(tmp_path), "crop": 16, **more}
    data["validation_images"] = 1
    kind = task_class(config.task)
    task = kind(from_mapping(kind.Options, data, "data"), {**config.model, **SMALL[name]}, 0)
    return task, task.build_model()


@pytest.mark.parametrize("name", [f"{name}{end}" for name in NAMES for end in ("", "-paper")])
def test_configs_are_whole(name: str) -> None:
    pytest.importorskip("yaml")
    config = load(name)
    kind = task_class(config.task)
    assert isinstance(from_mapping(kind.Options, config.data, "data"), kind.Options)
    with torch.device("meta"):
        net = create(**config.model)
    assert sum(p.numel() for p in net.parameters()) > 5000


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_learns(tmp_path: Path, name: str) -> None:
    task, model = made(tmp_path, name)
    batch = task.collate([task.item(i, np.random.default_rng(i)) for i in range(20)])  # all factors
    loss, figures = task.loss(model, batch)
    assert bool(loss > 0)
    assert all(bool(value.isfinite()) for value in figures.values())
    loss.backward()
    silent = [key for key, p in model.named_parameters() if p.grad is None or not bool(p.grad.isfinite().all())]
    assert not silent
    with torch.no_grad():
        scores = task.validate(model.eval(), 0, np.random.default_rng(0))
    assert scores["psnr"] > 0


def test_all_outputs_of_memnet_count(tmp_path: Path) -> None:
    task, model = made(tmp_path, "memnet")
    batch = task.collate([task.item(i, np.random.default_rng(i)) for i in range(2)])
    outputs = model(batch["upscaled"], every=True)
    assert outputs.shape == (3, *batch["clean"].shape)  # the result and one of each block
    expected = sum(float(squared_error(out, batch["clean"])[0]) for out in outputs)
    assert float(task.loss(model, batch)[0]) == pytest.approx(expected, rel=1e-4)


def test_small_and_large_crops_show_the_same(tmp_path: Path) -> None:
    """The small crop of an item is what downscaling gives of the large one, away from its border."""
    from n3net.imaging.resizing import resize

    task, _ = made(tmp_path, "mdsr")
    for number in range(4):
        item = task.item(number, np.random.default_rng(number))
        small, large = item["small"], item["large"]
        assert large.shape == (3, item["factor"] * 16, item["factor"] * 16)
        again = resize(np.ascontiguousarray(large.transpose(1, 2, 0)), size=(16, 16)).transpose(2, 0, 1)
        assert np.abs(again - small)[:, 3:-3, 3:-3].max() < 1 / 255


def test_wrong_networks_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="knows"):
        made(tmp_path, "mdsr", factors=(2, 5))
    with pytest.raises(UserError, match="crops need"):
        made(tmp_path, "mdsr", crop=40)


def test_the_missing_psnr() -> None:
    clean = torch.zeros(1, 1, 2, 2)
    loss, figures = missing_psnr(clean + 0.1, clean)
    assert float(loss) == pytest.approx(80, abs=1e-3)
    assert float(figures["psnr"]) == pytest.approx(20, abs=1e-3)
