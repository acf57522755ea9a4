"""The scoreboard of denoising: noise, methods, reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from n3net.errors import UserError
from n3net.evaluation.gaussian import evaluate, noise, report
from n3net.evaluation.html import page
from n3net.evaluation.images import image_set
from n3net.evaluation.methods import Method, method
from n3net.evaluation.report import markdown, markdown_images
from n3net.evaluation.restoration import Shown, summarize
from small import save_small

pytestmark = pytest.mark.usefixtures("user")


def test_noise_depends_on_image_and_level_only() -> None:
    a = noise((1, 200, 200), 25, 3)
    assert torch.equal(a, noise((1, 200, 200), 25, 3))
    assert not torch.equal(a, noise((1, 200, 200), 25, 4))
    assert not torch.equal(a / 25, noise((1, 200, 200), 50, 3) / 50)
    assert float(a.std() * 255) == pytest.approx(25, rel=0.02)


def test_evaluate(data: Path, tmp_path: Path) -> None:
    path = save_small(tmp_path / "net.safetensors")
    methods = [method(str(path)), method("noisy"), method(f"again={path}")]
    seen: list[Shown] = []
    rows = evaluate(methods, image_set(data), [25, 50], keep=seen.append, kept=2)
    assert len(rows) == 3 * 3 * 2
    assert [p.image for p in seen] == ["0.png", "1.png"] * 2
    results = summarize(rows)
    by = {(r["model"], r["sigma"]): r for r in results}
    assert by[("again", 25)]["psnr"] == by[(str(path), 25)]["psnr"]  # the same noise
    assert by[("noisy", 25)]["psnr"] == pytest.approx(20.17, abs=0.5)
    low, high = by[("noisy", 25)]["psnr_interval"]
    assert low <= by[("noisy", 25)]["psnr"] <= high
    content = json.loads(json.dumps(report(rows, methods, 0)))
    assert {"model", "dataset", "sigma", "psnr", "ssim", "n", "seconds"} <= content["results"][0].keys()
    assert content["results"][0]["n"] == 3
    assert len(content["images"]) == len(rows)
    assert "| noisy | Set12 | 25 |" in markdown(content["results"])
    assert markdown_images(content["images"]).count("Set12/") == 3
    text = page(content, seen)
    assert text.count("<figure") == 4
    assert "http" not in text  # nothing is fetched


def test_colour_and_gray(data: Path, tmp_path: Path) -> None:
    gray, colour = save_small(tmp_path / "g.safetensors"), save_small(tmp_path / "c.safetensors", channels=3)
    rows = evaluate([method(str(colour))], image_set(data, 1), [10])
    assert len(rows) == 1
    with pytest.raises(UserError, match="gray and colour"):
        evaluate([method(str(gray)), method(str(colour))], image_set(data), [10])


def test_weights_in_a_directory_with_an_equals_sign(data: Path, tmp_path: Path) -> None:
    path = save_small(tmp_path / "lr=1e-3" / "best.safetensors")
    assert method(str(path)).name == str(path)
    assert method(f"mine={path}").name == "mine"


def test_a_method_may_be_any_function(data: Path) -> None:
    half = Method("half", lambda noisy, sigma: noisy / 2)
    assert len(evaluate([half], image_set(data, 1), [25])) == 1
    with pytest.raises(UserError, match="0 to 255"):
        evaluate([half], image_set(data, 1), [-1])
