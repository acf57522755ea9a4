"""The scoreboard of raw data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from n3net.errors import UserError
from n3net.evaluation import raw as protocol
from n3net.evaluation.images import image_set
from n3net.models import create
from n3net.noise.sensor import heteroscedastic
from n3net.raw.simulation import LEVELS, SCENE
from n3net.weights import save


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


TINY = {"name": "raw-dncnn", "depth": 2, "features": 4}


def test_methods_are_measured_on_the_same_noise(pictures: Path) -> None:
    images = image_set(pictures / "val")
    methods = [protocol.raw_method("noisy"), protocol.raw_method("again=noisy")]
    rows = protocol.evaluate(methods, images, list(LEVELS))
    assert len(rows) == 2 * 2 * 3
    by_model = {name: [row.psnr for row in rows if row.model == name] for name in ("noisy", "again")}
    assert by_model["noisy"] == by_model["again"]
    means = [np.mean([row.psnr for row in rows if row.level.value == level.a]) for level in LEVELS.values()]
    assert means == sorted(means, reverse=True)
    with pytest.raises(UserError, match="low, middle, high"):
        protocol.evaluate(methods, images, ["loud"])


def test_noise_of_the_protocol(pictures: Path) -> None:
    case = next(iter(protocol._cases(image_set(pictures / "val"), LEVELS["middle"], 0)))
    assert case.truth.shape == (4, 30, 35)
    rgb = np.asarray(Image.open(pictures / "val" / "0.png"), np.float32) / 255
    assert np.allclose(case.truth[0], SCENE.bayer(rgb)[::2, ::2])
    assert 0 <= case.degraded.min() <= case.degraded.max() <= 1


def test_bm3d_with_stabilisation() -> None:
    level = LEVELS["middle"]
    clean = torch.linspace(0.05, 0.6, 32).expand(1, 32, 32).contiguous()
    noisy = heteroscedastic(clean, level.a, level.b, seeded()).clamp(0, 1)
    out = protocol.raw_method("bm3d").run(noisy, level)
    assert (out - clean).square().mean() < 0.2 * (noisy - clean).square().mean()


def test_command(pictures: Path, tmp_path: Path, command: Any) -> None:
    save(tmp_path / "net.safetensors", create(**TINY))
    models = ("--model", "noisy", "--model", f"mine={tmp_path / 'net.safetensors'}")
    code, out, _ = command(
        "eval", "raw", "--data", str(pictures / "val"), *models, "--json", str(tmp_path / "out.json")
    )
    assert code == 0
    assert "| noisy | val | 0.0003 |" in out
    assert "| mine | val |" in out
    report = json.loads((tmp_path / "out.json").read_text())
    levels = [r["psnr"] for r in report["results"] if r["model"] == "noisy"]
    assert report["means"][0] == {"model": "noisy", "dataset": "val"} | {
        "psnr": pytest.approx(sum(levels) / 3),
        "ssim": pytest.approx(report["means"][0]["ssim"]),
    }
