"""Raw data: noise, simulation, estimation, networks, training task and scoreboard."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from n3net.errors import UserError
from n3net.evaluation import raw as protocol
from n3net.evaluation.images import image_set
from n3net.imaging.demosaicking import PATTERNS
from n3net.models import MODELS, count_parameters, create, describe
from n3net.models.raw import RawDenoiser
from n3net.noise.sensor import NoiseLevel, Stabilizer, heteroscedastic, poisson_gaussian, variance
from n3net.noise.sensor_estimate import TRUSTED, estimate_level
from n3net.raw.simulation import LEVELS, SCENE, Scene, draw_level, draw_scene
from n3net.tasks.data import TRAINING, generator
from n3net.tasks.raw import RawDenoising, RawOptions
from n3net.weights import save

SHARED = Path(__file__).parents[3] / "shared" / "data"


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Noise


@pytest.mark.parametrize("sample", [heteroscedastic, poisson_gaussian])
def test_noise_has_the_mean_and_the_variance_of_its_level(sample: Any) -> None:
    y = torch.tensor([0.1, 0.5, 0.9]).repeat(200_000, 1).T[None]  # (1, 3, N)
    a, b = 0.02, 0.003
    x = sample(y, a, b, seeded())
    assert torch.allclose(x.mean(-1), y.mean(-1), atol=2e-3)
    assert torch.allclose(x.var(-1), variance(y, a, b)[..., 0], rtol=0.02)


@pytest.mark.parametrize("sample", [heteroscedastic, poisson_gaussian])
def test_noise_is_seeded_and_batched(sample: Any) -> None:
    y = torch.full((2, 1, 200, 200), 0.4)
    a, b = torch.tensor([1e-3, 4e-2]), torch.tensor([1e-5, 1e-3])
    x = sample(y, a, b, seeded(3))
    assert torch.equal(x, sample(y, a, b, seeded(3)))
    assert not torch.equal(x, sample(y, a, b, seeded(4)))
    expected = a * 0.4 + b
    assert torch.allclose(x.var((1, 2, 3)), expected, rtol=0.05)


def test_poisson_noise_without_electrons_is_gaussian() -> None:
    x = poisson_gaussian(torch.full((1, 100_000), 0.5), 0.0, 1e-4, seeded())
    assert float(x.mean()) == pytest.approx(0.5, abs=1e-3)
    assert float(x.var()) == pytest.approx(1e-4, rel=0.02)


def test_poisson_noise_is_made_of_whole_electrons() -> None:
    x = poisson_gaussian(torch.full((1, 1000), 0.03), 0.01, 0.0, seeded())
    assert torch.allclose(x / 0.01, (x / 0.01).round(), atol=1e-4)
    assert x.min() >= 0


@pytest.mark.parametrize("level", [NoiseLevel(1e-3, 1e-6), NoiseLevel(1e-2, 1e-3), NoiseLevel(0.0, 1e-3)])
def test_stabilised_noise_is_equally_strong_everywhere(level: NoiseLevel) -> None:
    y = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64).repeat(100_000, 1).T[None]
    x = heteroscedastic(y, level.a, level.b, seeded())
    scale = Stabilizer.of(x, level.a, level.b)
    assert torch.allclose(scale.forward(x).std(-1) / scale.sigma, torch.ones(1, 3, dtype=torch.float64), atol=0.03)


def test_stabiliser_keeps_black_and_white_and_is_undone() -> None:
    x = torch.linspace(-0.001, 1.2, 50, dtype=torch.float64)[None]
    for a, b in ((1e-4, 1e-7), (1e-2, 1e-3), (0.1, 1e-2), (0.0, 1e-4)):
        scale = Stabilizer.of(x, a, b)
        assert torch.allclose(scale.inverse(scale.forward(x)), x, atol=1e-9)
        ends = scale.forward(torch.tensor([[0.0, 1.0]], dtype=torch.float64))
        assert torch.allclose(ends, torch.tensor([[0.0, 1.0]], dtype=torch.float64), atol=1e-12)
    nearly = Stabilizer.of(x, 0.0, 1e-4)
    assert torch.allclose(nearly.forward(x), x, atol=1e-4)  # no Poisson noise: nothing to do
    assert float(nearly.sigma) == pytest.approx(0.01, rel=1e-3)


# Simulation


def test_scene_is_the_papers_formula() -> None:
    rgb = np.random.default_rng(0).random((6, 8, 3))
    luminance = 0.299 * rgb[..., 0] + 0.587 * rgb[..., 1] + 0.114 * rgb[..., 2]
    assert np.allclose(Scene(0.5, 3.0).luminance(rgb), 0.5 * luminance**3)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_bayer_has_one_color_in_each_pixel(pattern: str) -> None:
    rgb = np.random.default_rng(0).random((4, 6, 3))
    out = Scene(0.8, 2.0, (2.0, 1.5)).bayer(rgb, pattern)
    gain = {"R": 2.0, "G": 1.0, "B": 1.5}
    for i, color in enumerate(pattern):
        place = (slice(i // 2, None, 2), slice(i % 2, None, 2))
        assert np.allclose(out[place], 0.8 * rgb[(*place, "RGB".index(color))] ** 2 / gain[color])


def test_draws_stay_in_the_ranges_of_paper_and_program() -> None:
    rng = np.random.default_rng(0)
    scenes, levels = [draw_scene(rng) for _ in range(500)], [draw_level(rng) for _ in range(500)]
    assert 0.25 <= min(s.factor for s in scenes) < 0.3 < 0.95 < max(s.factor for s in scenes) <= 1
    assert 1.25 <= min(s.exponent for s in scenes) < 1.5 < 9.5 < max(s.exponent for s in scenes) <= 10
    logs = np.log10([[level.a, level.b] for level in levels])
    assert logs[:, 0].min() >= -4
    assert logs[:, 0].max() <= -1
    assert logs[:, 0].std() == pytest.approx(3 / math.sqrt(12), rel=0.1)
    ratio = logs[:, 1] - logs[:, 0] + 2.3
    assert np.abs(ratio).max() <= 1.3 + 1e-9
    assert ratio.std() == pytest.approx(2.6 / math.sqrt(12), rel=0.1)


# Estimation


def landscape(rng: np.random.Generator, size: int = 256) -> np.ndarray[Any, Any]:
    """Half of it calm, at many intensities; the rest texture, (H, W, 3) in [0, 1]."""
    y, x = np.mgrid[:size, :size] / size
    calm = 0.15 + 0.8 * x * (1 - 0.5 * y)
    texture = np.kron(rng.random((size // 8, size // 8)), np.ones((8, 8))) * 0.6 + 0.2
    gray = np.where(y < 0.5, calm, texture)
    return gray[..., None] * np.array([1.0, 0.9, 0.8])


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_level_is_found_over_the_training_range(seed: int, clip: bool) -> None:
    rng = np.random.default_rng(seed)
    level = NoiseLevel(a := 10 ** (-4 + 3 * (seed + 0.5) / 6), a * 10 ** rng.uniform(-3.6, -1.0))
    clean = Scene(0.8, 2.0, (1.6, 1.4)).bayer(landscape(rng))
    noisy = heteroscedastic(torch.from_numpy(clean)[None], level.a, level.b, seeded(seed))[0].numpy()
    noisy = noisy.clip(0 if clip else -1, 1)
    found = estimate_level([noisy[r::2, c::2] for r in (0, 1) for c in (0, 1)])
    at = np.quantile(clean, [0.2, 0.5, 0.8, 0.95])
    sigma, truth = (np.sqrt(m.a * at + m.b) for m in (found.level, level))
    assert np.abs(sigma / truth - 1).max() < 0.2
    assert found.level.a == pytest.approx(level.a, rel=0.35)
    assert found.confidence > TRUSTED


def test_estimates_on_photographs() -> None:
    """Small ones, with fine texture and grain of their own, over the whole training range."""
    root = SHARED / "BSDS500" / "val"
    if not root.is_dir():
        pytest.skip("no BSDS500 beside the repository")
    rng, errors, trusted = np.random.default_rng(0), [], []
    for path in sorted(root.glob("*.jpg"))[::3]:
        rgb = np.asarray(Image.open(path), np.float32)[:320, :320] / 255
        clean = draw_scene(rng, exponent=(1.25, 4.0)).bayer(rgb)
        level = draw_level(rng)
        noisy = heteroscedastic(torch.from_numpy(clean)[None], level.a, level.b, seeded(len(errors)))[0].numpy()
        noisy = noisy.clip(0 if len(errors) % 2 else -1, 1)
        found = estimate_level([noisy[r::2, c::2] for r in (0, 1) for c in (0, 1)])
        at = np.quantile(clean, [0.1, 0.3, 0.5, 0.7, 0.9])
        sigma, truth = (np.sqrt(m.a * at + m.b) for m in (found.level, level))
        errors.append(np.abs(sigma / truth - 1).mean())
        trusted.append(found.confidence >= TRUSTED)
    good = np.array(errors) < 0.2
    assert good.mean() >= 0.7
    assert good[np.array(trusted)].mean() >= 0.9
    assert np.mean(trusted) > 0.4


def test_confidence_says_when_not_to_trust() -> None:
    rng = np.random.default_rng(0)
    calm = heteroscedastic(torch.from_numpy(landscape(rng)[:128, :, 0].copy())[None], 2e-3, 1e-5, seeded())[0].numpy()
    assert estimate_level([calm]).confidence > TRUSTED
    y, x = np.mgrid[:200, :200]
    texture = 0.5 + 0.4 * np.sin(x / 2) * np.sin(y / 3) + 0.002 * rng.standard_normal(x.shape)
    assert estimate_level([texture]).confidence < TRUSTED
    black = np.maximum(0, 0.001 + 0.05 * rng.standard_normal((200, 200)))  # half of it is cut off, one intensity
    assert estimate_level([black]).confidence < TRUSTED
    for nothing in (np.zeros((50, 50)), np.ones((3, 3))):
        assert estimate_level([nothing]).confidence == 0


# Networks


RAW_MODELS = [name for name in MODELS if describe(name)["task"] == "raw data"]


@pytest.mark.parametrize("name", RAW_MODELS)
def test_every_raw_model_runs_and_learns(name: str) -> None:
    model = create(name, depth=3, features=8)
    x = torch.rand(2, 1, 41, 50)
    out = model(x, torch.tensor([1e-3, 1e-2]), torch.tensor([1e-6, 1e-4]))
    assert out.shape == x.shape
    out.square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_the_program_of_2018() -> None:
    with torch.device("meta"):
        model: Any = create("n3net-dnd")
    assert not model.stabilize
    stages = list(model.net.stages)
    assert [stage.reach for stage in stages] == [9, 9, 9]
    assert stages[0].layers[0].in_channels == 3
    assert stages[1].layers[0].in_channels == 4 * 32
    assert stages[0].layers[-1].out_channels == 32
    assert stages[2].layers[-1].out_channels == 1
    assert model.net.blocks[0].k == 3
    assert count_parameters(model) > 3_000_000


@pytest.mark.parametrize("stabilize", [False, True])
def test_the_net_is_told_two_constant_maps(stabilize: bool) -> None:
    seen: list[torch.Tensor] = []

    class Spy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x)
            return x[:, :1]

    model = RawDenoiser(Spy(), stabilize)
    x = torch.rand(2, 1, 5, 6)
    a, b = torch.tensor([1e-2, 1e-3]), torch.tensor([1e-4, 1e-5])
    assert torch.allclose(model(x, a, b), x, atol=1e-5)  # what the net hands on comes back
    told = seen[0]
    assert told.shape == (2, 3, 5, 6)
    assert bool((told[:, 1:].amax((2, 3)) == told[:, 1:].amin((2, 3))).all())
    if not stabilize:
        assert torch.equal(told[:, 1, 0, 0], a)
        assert torch.equal(told[:, 2, 0, 0], b)


def test_a_model_is_told_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"\(B, 1, H, W\)"):
        create("raw-dncnn", depth=2, features=4)(torch.rand(1, 3, 8, 8), 1e-3, 1e-5)


# The training task


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for folder in ("train", "val"):
        (tmp_path / folder).mkdir()
        for i in range(2):
            pixels = np.random.default_rng(i).integers(0, 256, (60, 70, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{i}.png")
    return tmp_path


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


# The scoreboard


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
