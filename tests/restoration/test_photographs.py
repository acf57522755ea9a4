"""Photographs: noise that depends on intensity, its estimate, its removal, and the scoreboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.evaluation import real as protocol
from n3net.models import Denoiser, create
from n3net.noise.curve import estimate_curve, known_map, measure, noise_map
from n3net.restoration.denoising import is_for_photographs
from n3net.restoration.photographs import denoise_photograph, photo_denoiser_for
from n3net.weights import save

Array = np.ndarray[Any, Any]


def picture(height: int = 240, width: int = 320) -> Array:
    """A sky that becomes brighter, hills that have texture on one side, (H, W) in [0, 1]."""
    y, x = np.mgrid[:height, :width]
    sky = 0.35 + 0.5 * x / width
    hills = 0.15 + 0.25 * y / height + 0.05 * np.sin(x / 3) * np.sin(y / 4) * (x > width / 2)
    return np.where(y < height * 0.6, sky, hills)


def sigma_of(y: Array) -> Array:
    return 0.01 + 0.05 * y


def spoiled(clean: Array, seed: int = 0, smooth: bool = False) -> Array:
    """With noise; with ``smooth``, of neighbouring pixels that look alike, as after demosaicking."""
    noise = np.random.default_rng(seed).standard_normal(clean.shape)
    if smooth:
        total = sum(np.roll(noise, (dy, dx), (0, 1)) for dy in (0, 1) for dx in (0, 1))
        noise = np.asarray(total) / 2
    return clean + sigma_of(clean) * noise


@pytest.mark.parametrize("smooth", [False, True])
def test_curve_follows_intensity(smooth: bool) -> None:
    curve = estimate_curve(spoiled(picture(), smooth=smooth))
    levels = np.array([0.33, 0.4, 0.6, 0.8])
    assert np.abs(curve(levels) / sigma_of(levels) - 1).max() < 0.2
    assert curve.confidence > 0.5


@pytest.mark.parametrize("sigma", [3.0, 10.0, 30.0])
def test_constant_noise_is_a_constant_curve(sigma: float) -> None:
    noisy = picture() * 255 + sigma * np.random.default_rng(1).standard_normal((240, 320))
    curve = estimate_curve(noisy, peak=255)
    assert np.abs(255 * curve(np.array([0.3, 0.5, 0.7])) / sigma - 1).max() < 0.2


def test_map_has_the_level_of_each_pixel() -> None:
    clean = picture()
    rgb = np.stack([spoiled(clean, seed) for seed in range(3)], -1)
    found, confidence = noise_map(np.clip(np.rint(255 * rgb), 0, 255).astype(np.uint8))
    assert found.shape == clean.shape
    assert found.dtype == np.float32
    assert np.abs(np.median(found / (255 * sigma_of(clean))) - 1) < 0.1
    assert confidence > 0.5


def test_texture_everywhere_lowers_confidence() -> None:
    y, x = np.mgrid[:240, :320]
    assert estimate_curve(0.5 + 0.3 * np.sin(x / 7) * np.sin(y / 9)).confidence < 0.2


@pytest.mark.parametrize("image", [np.zeros((50, 50)), np.zeros((2, 2)), np.ones((9, 30))])
def test_nothing_to_measure(image: Array) -> None:
    assert measure([image]) == []
    assert noise_map(image)[0].max() == 0


class Local(nn.Module):
    """A mean over 5 x 5 pixels where there is noise."""

    reach = 2

    def forward(self, x: Tensor) -> Tensor:
        smooth = nn.functional.avg_pool2d(x[:, :-1], 5, 1, 2, count_include_pad=False)
        return torch.where(x[:, -1:] > 0, smooth, x[:, :-1])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_photograph_is_closer_to_the_truth(dtype: Any, channels: int) -> None:
    peak = {np.uint8: 255, np.uint16: 65535, np.float32: 1}[dtype]
    clean = np.linspace(0.2, 0.8, 120 * 141).reshape(120, 141)
    truth = clean if channels == 1 else np.stack([clean, 0.9 * clean, 0.8 * clean], -1)
    noisy = spoiled(truth, smooth=True) * peak
    image = noisy.astype(dtype) if dtype == np.float32 else np.clip(np.rint(noisy), 0, peak).astype(dtype)
    steps: list[float] = []
    model = Denoiser(Local(), channels, True)
    result = denoise_photograph(image, model, progress=lambda done, total: steps.append(done / total))
    assert result.pixels.dtype == dtype
    assert result.pixels.shape == image.shape
    errors = [np.square(a / peak - truth).mean() for a in (image.astype(float), result.pixels.astype(float))]
    assert errors[1] < 0.3 * errors[0]
    assert steps == sorted(steps)
    assert steps[-1] == 1


def test_noise_is_found_where_it_is(tmp_path: Path) -> None:
    """The network is told the map: pixels of equal intensity are told equal noise, dark ones less."""
    clean, spy = picture(), Spy()
    denoise_photograph(spoiled(clean).astype(np.float32), Denoiser(spy, 1, True))
    assert len(spy.told) == 5  # four parts, then all of it
    dark, light = clean[::2, ::2] < 0.3, clean[::2, ::2] > 0.7
    first = spy.told[0][0].numpy()
    assert 1.5 < np.median(first[light]) / np.median(first[dark]) < 3


class Spy(nn.Module):
    """Changes nothing, and remembers what it is told."""

    reach = 0

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.told.append(x[:, -1])
        return x[:, :-1]

    def __deepcopy__(self, memo: object) -> Spy:
        return self


@pytest.mark.parametrize("channels", [1, 3])
def test_a_network_for_photographs_needs_one_pass(channels: int) -> None:
    image = spoiled(picture() if channels == 1 else np.stack([picture(), 0.9 * picture(), 0.8 * picture()], -1))
    image = np.clip(np.rint(255 * image), 0, 255).astype(np.uint8)
    spy = Spy()
    model = Denoiser(spy, 3, True)
    model.record = {"training": {"task": "photo"}}  # type: ignore[assignment]
    result = denoise_photograph(image, model)
    assert np.array_equal(result.pixels, image)
    assert [told.shape for told in spy.told] == [(1, 240, 320)]
    np.testing.assert_allclose(255 * spy.told[0][0], result.noise, rtol=1e-5)


def test_which_weights_are_for_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path))
    for name, task in (("color", "gaussian"), ("photo", "photo")):
        model = create("dncnn-6", channels=3, noise_map=True, depth=2, features=4)
        save(tmp_path / f"{name}.safetensors", model, {"training": {"task": task}})
    assert is_for_photographs(photo_denoiser_for(None, gray=True))
    assert not is_for_photographs(photo_denoiser_for("color", gray=False))
    assert not is_for_photographs(create("dncnn-6"))


def test_a_calm_photograph_has_no_more_noise_than_its_calmest_patches() -> None:
    """Fine texture in most of a picture is no noise where the rest, of any brightness, has none."""
    y, x = np.mgrid[:240, :320]
    texture = 0.5 + 0.3 * np.sin(x / 2.1) * np.sin(y / 1.7)
    calm = np.where(y < 80, 0.2 + 0.5 * x / 320 + 1e-3 * np.random.default_rng(0).standard_normal(x.shape), texture)
    assert 255 * estimate_curve(calm).sigmas.max() < 5
    assert 255 * estimate_curve(calm + 0.05 * np.random.default_rng(1).standard_normal(x.shape))(0.5) > 10


def test_known_noise_is_what_an_estimate_would_find() -> None:
    clean = np.stack([picture(), 0.9 * picture(), 0.8 * picture()], -1)
    noisy = spoiled(clean)
    truth = 255 * np.sqrt(np.square(sigma_of(clean)).mean(-1))
    known, (estimated, _) = known_map(noisy, clean), noise_map(noisy)
    assert known.shape == (240, 320)
    assert known.dtype == np.float32
    assert np.quantile(np.abs(known / truth - 1), 0.95) < 0.15
    assert np.abs(np.median(estimated / known) - 1) < 0.1


# Commands


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> Any:
    """n3net in a directory of its own with weights and photographs."""
    torch.manual_seed(0)
    for name, channels, told in (("color", 3, True), ("deaf", 3, False)):
        save(
            tmp_path / f"{name}.safetensors", create("dncnn-6", channels=channels, noise_map=told, depth=2, features=4)
        )
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    clean = np.stack([picture(60, 80)] * 3, -1)
    for name, values in (("a_mean", clean), ("a_real", spoiled(clean)), ("b_mean", clean)):
        Image.fromarray(np.clip(255 * values, 0, 255).astype(np.uint8)).save(f"{name}.png")
    return command


def test_denoise_real(run: Any) -> None:
    code, out, _ = run("denoise", "--real", "a_real.png", "-o", "out.png", "--reference", "a_mean.png")
    assert code == 0
    assert "80 x 60" in out
    assert "estimated (confidence" in out
    assert "PSNR" in out
    assert Image.open("out.png").size == (80, 60)
    code, _, err = run("denoise", "--real", "a_real.png", "-o", "no.png", "--model", "deaf")
    assert code == 1
    assert "noise map" in err
    assert run("denoise", "--real", "a_real.png", "-o", "no.png", "--sigma", "5")[0] != 0


def test_eval_real(run: Any) -> None:
    code, out, _ = run("eval", "real", "--data", ".", "--json", "out.json")
    assert code == 0
    assert "a_real.png" in out
    assert "mean of 1" in out
    assert Path("out.json").exists()


def test_eval_real_of_a_network_for_photographs(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As 'n3net train photo' leaves it, by its path: one pass of the network for each photograph."""
    model = create("dncnn-6", channels=3, noise_map=True, depth=2, features=4)
    save("mine.safetensors", model, {"training": {"task": "photo"}})
    monkeypatch.setattr("n3net.restoration.photographs._in_parts", lambda *_: pytest.fail("not in one pass"))
    code, out, _ = run("eval", "real", "--data", ".", "--model", "mine.safetensors")
    assert code == 0
    assert "mean of 1" in out
    assert run("denoise", "--real", "a_real.png", "-o", "one.png", "--model", "mine.safetensors")[0] == 0


def test_report_counts_gains() -> None:
    rows = [protocol.Row(name, 30.0, after, 0.8, 0.9, 5.0, 0.7, 1.0) for name, after in (("a", 32.0), ("b", 31.0))]
    result = protocol.report(rows, "color")["results"]
    assert result["gain"] == pytest.approx(1.5)
    assert result["least_gain"] == pytest.approx(1.0)
    assert "| mean of 2 | 30.00 | 31.50 | +1.50 |" in protocol.markdown(protocol.report(rows, "color"))


def test_pairs_by_the_ends_of_their_names(tmp_path: Path) -> None:
    for name in ("my_real_photo_real.png", "my_real_photo_mean.png", "c_real.jpg", "c_mean.png"):
        Image.new("L", (20, 20)).save(tmp_path / name)
    found = [(noisy.name, clean.name) for noisy, clean in protocol.pairs(tmp_path)]
    assert found == [("c_real.jpg", "c_mean.png"), ("my_real_photo_real.png", "my_real_photo_mean.png")]
    Image.new("L", (20, 20)).save(tmp_path / "d_real.png")
    with pytest.raises(UserError, match=r"no NAME_mean for d_real\.png"):
        protocol.pairs(tmp_path)


def test_a_directory_without_pairs(tmp_path: Path) -> None:
    Image.new("L", (20, 20)).save(tmp_path / "a_real.png")
    with pytest.raises(UserError, match="no pairs"):
        protocol.pairs(tmp_path)
