"""Resizing, colours, degradation, the models and the task of super-resolution, and n3net.upscale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

import n3net
from n3net.errors import UserError
from n3net.evaluation.superresolution import upscaler
from n3net.imaging.color import (
    gray_levels,
    luminance,
    rgb_to_ycbcr,
    rgb_to_ycbcr_tensor,
    ycbcr_to_rgb,
    ycbcr_to_rgb_tensor,
)
from n3net.imaging.degradation import degrade
from n3net.imaging.resizing import resize, resize_tensor, scaled_size
from n3net.models import Upscaler, count_parameters, create
from n3net.tasks.data import generator
from n3net.tasks.superresolution import SuperResolution, SuperResolutionOptions
from n3net.training.config import load
from n3net.training.start import start_at_identity
from n3net.weights import save

SHARED = Path(__file__).parents[3] / "shared" / "data"


def photo(height: int = 60, width: int = 72, channels: int = 3) -> np.ndarray:
    """Edges and waves in colour."""
    y, x = np.mgrid[:height, :width]
    planes = [127 + 80 * np.sin(x / (2 + c)) * np.cos(y / 5) + 20 * (x > 30 + c) for c in range(channels)]
    pixels = np.stack(planes, 2).clip(0, 255).astype(np.uint8)
    return pixels if channels > 1 else pixels[..., 0]


def small(**config: Any) -> nn.Module:
    torch.manual_seed(0)
    model = create(
        "n3net-sr", **{"stages": 2, "depth": 2, "features": 8, "block_channels": 3, "k": 2, "window": 3}, **config
    )
    return model.eval()


def bicubic_only() -> nn.Module:
    model = small()
    start_at_identity(model)
    return model


class TestResizing:
    def test_example_of_mathworks(self) -> None:
        """What MATLAB prints for imresize(A, 2), as shown in an answer of its developers."""
        image = np.array([[3.0, 1, 2, 6], [1, 5, 2, 7], [1, 3, 6, 2], [4, 1, 9, 2]])
        expected = [3.3109, 2.6187, 1.1206, 0.7166, 1.4067, 2.8883, 5.1615, 6.2060]
        np.testing.assert_allclose(resize(image, 2)[0], expected, atol=6e-5)
        last = [4.4466, 3.3344, 0.9529, 2.4891, 7.9430, 8.3334, 3.6605, 1.4930]
        np.testing.assert_allclose(resize(image, size=(8, 8))[-1], last, atol=6e-5)

    @pytest.mark.parametrize("factor", [2, 3, 4])
    def test_pairs_of_matlab(self, factor: int) -> None:
        folder = SHARED / "Set5_SelfExSR" / f"image_SRF_{factor}"
        if not folder.is_dir():
            pytest.skip(f"{folder}: HR and LR pairs of Set5 are not there")
        for path in sorted(folder.glob("*_HR.png")):
            small = np.asarray(Image.open(path.with_name(path.name.replace("HR", "LR"))))
            np.testing.assert_array_equal(resize(np.asarray(Image.open(path)), 1 / factor), small)

    @given(
        st.tuples(st.integers(1, 12), st.integers(1, 12)),
        st.floats(0.2, 4),
    )
    @settings(deadline=None, max_examples=60)
    def test_equals_a_literal_sum(self, shape: tuple[int, int], factor: float) -> None:
        image = np.random.default_rng(0).random(shape)
        out = resize(image, factor)
        assert out.shape == scaled_size(shape, factor)
        row, column = (side - 1 for side in out.shape)
        np.testing.assert_allclose(out[row, column], literal(image, row, column, factor), atol=1e-10)

    def test_constants_stay(self) -> None:
        for factor in (0.3, 0.5, 1, 1.7, 4):
            np.testing.assert_allclose(resize(np.full((9, 7, 3), 0.7), factor), 0.7)
        assert (resize(photo(), 1) == photo()).all()

    def test_types(self) -> None:
        image = 0.25 + 0.5 * np.random.default_rng(0).random((20, 30, 3))  # where nothing is clipped
        whole = resize(image, 1.5)
        assert np.abs(resize(image.astype(np.float32), 1.5) - whole).max() < 1e-6
        assert resize(image.astype(np.float16), 1.5).dtype == np.float16
        sixteen = resize((image * 65535).astype(">u2"), 1.5)
        assert sixteen.dtype == np.dtype(">u2")
        assert np.abs(sixteen / 65535 - whole).max() < 5e-5
        steps = resize(np.array([[0, 0, 0, 255, 255, 255]], np.uint8), 2)
        assert (steps.min(), steps.max()) == (0, 255)  # overshoot is clipped

    def test_part(self) -> None:
        image = photo()
        part = slice(13, 40), slice(5, 99)
        np.testing.assert_array_equal(resize(image, 1.7, part=part), resize(image, 1.7)[part])

    def test_tensors(self) -> None:
        image = np.random.default_rng(0).random((9, 11))
        x = torch.from_numpy(image)[None, None]
        for factor in (0.4, 2.5):
            np.testing.assert_array_equal(resize_tensor(x, factor)[0, 0].numpy(), resize(image, factor))
        x = torch.rand(1, 4, 5, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda t: resize_tensor(t, 0.6), x)
        assert torch.autograd.gradcheck(lambda t: resize_tensor(t, size=(7, 6)), x)

    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            ((np.zeros((4, 4)), 0), "factor"),
            ((np.zeros((4, 4)), np.inf), "factor"),
            ((np.zeros((4, 4)), None), "either a factor or a size"),
            ((np.zeros((4, 4)), 2, (8, 8)), "either a factor or a size"),
            ((np.zeros(4), 2), "expected shape"),
            ((np.zeros((0, 4)), 2), "expected shape"),
        ],
    )
    def test_wrong_arguments(self, arguments: Any, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            resize(*arguments)
        with pytest.raises(ValueError, match="expected floats"):
            resize_tensor(torch.zeros(4, 4, dtype=torch.uint8), 2)


def literal(image: np.ndarray, row: int, column: int, factor: float) -> float:
    """One pixel of a resized image, from the definition: all input pixels, near and beyond the border."""

    def weights(index: int, length: int) -> np.ndarray:
        stretch = max(1, 1 / factor)
        center = (index + 0.5) / factor - 0.5
        found = np.zeros(length)
        for i in range(int(center - 3 * stretch) - 2, int(center + 3 * stretch) + 3):
            x = abs(center - i) / stretch
            value = 1.5 * x**3 - 2.5 * x**2 + 1 if x <= 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x <= 2 else 0
            found[min(max(i, 0), length - 1)] += value
        return found / found.sum()

    return float(weights(row, image.shape[0]) @ image @ weights(column, image.shape[1]))


class TestColor:
    def test_known_colours(self) -> None:
        rgb = np.array([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
        expected = [[16, 128, 128], [235, 128, 128], [81.48, 90.2, 240], [144.55, 53.8, 34.21], [40.97, 240, 109.79]]
        np.testing.assert_allclose(255 * rgb_to_ycbcr(rgb), expected, atol=0.01)

    def test_there_and_back(self) -> None:
        image = np.random.default_rng(0).random((5, 6, 3))
        np.testing.assert_allclose(ycbcr_to_rgb(rgb_to_ycbcr(image)), image, atol=1e-12)
        np.testing.assert_allclose(luminance(image), rgb_to_ycbcr(image)[..., 0])
        np.testing.assert_allclose(gray_levels(luminance(image[..., 0])), image[..., 0])
        x = torch.from_numpy(image).permute(2, 0, 1)
        np.testing.assert_allclose(rgb_to_ycbcr_tensor(x).permute(1, 2, 0), rgb_to_ycbcr(image))
        np.testing.assert_allclose(ycbcr_to_rgb_tensor(rgb_to_ycbcr_tensor(x)), x)
        assert torch.autograd.gradcheck(rgb_to_ycbcr_tensor, x[:, :2, :2].clone().requires_grad_())

    def test_types_stay(self) -> None:
        image = np.zeros((2, 2, 3), np.float32)
        for out in (rgb_to_ycbcr(image), ycbcr_to_rgb(image), luminance(image), luminance(image[..., 0])):
            assert out.dtype == np.float32


class TestDegradation:
    @pytest.mark.parametrize("factor", [1, 1.5, 2, 2.7, 3, 4])
    def test_sizes(self, factor: float) -> None:
        pair = degrade(photo(61, 75), factor)
        assert pair.upscaled().shape == pair.high.shape
        for side, small, whole in zip(pair.high.shape, pair.low.shape, (61, 75), strict=True):
            assert small == whole // factor
            assert abs(side - small * factor) <= 0.5
        part = slice(7, 20), slice(30, 43)
        np.testing.assert_array_equal(pair.upscaled(part), pair.upscaled()[part])

    def test_small_image_has_eight_bits(self) -> None:
        pair = degrade(photo(60, 60), 2)
        np.testing.assert_allclose(pair.low, luminance(resize(photo(60, 60), 0.5) / 255.0), atol=1e-6)

    def test_too_small(self) -> None:
        with pytest.raises(ValueError, match="too few"):
            degrade(photo(3, 60), 4)


class TestModels:
    def test_sizes(self) -> None:
        """The supplement's tables: 3 x (7 convolutions), two blocks; VDSR has 20 convolutions and 665 k weights."""
        assert count_parameters(create("vdsr")) == 665_921  # Kim et al.
        net: Any = create("n3net-sr").net
        convolutions = [
            [(c.in_channels, c.out_channels) for c in stage.layers if isinstance(c, nn.Conv2d)] for stage in net.stages
        ]
        middle = [(64, 64)] * 5
        assert convolutions == [
            [(1, 64), *middle, (64, 8)],
            [(64, 64), *middle, (64, 8)],
            [(64, 64), *middle, (64, 1)],
        ]
        assert [block.k for block in net.blocks] == [7, 7]

    @pytest.mark.parametrize("name", ["n3net-sr", "vdsr"])
    def test_runs_and_learns(self, name: str) -> None:
        model = create(name, depth=2, features=8)
        x = torch.rand(2, 1, 40, 45)
        model(x).sum().backward()
        assert model(x).shape == x.shape
        assert all(p.grad is not None for p in model.parameters())
        with pytest.raises(ValueError, match=r"\(B, 1, H, W\)"):
            model(torch.rand(1, 3, 40, 40))

    def test_unit(self) -> None:
        torch.manual_seed(0)
        model: Any = create("vdsr", depth=2, features=8, unit=0.25)
        x = torch.rand(1, 1, 9, 9)
        torch.testing.assert_close(model(x), x + 0.25 * (model.net(x) - x))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, shape in {"train/a": (90, 100), "train/b": (20, 131), "val/c": (60, 70)}.items():
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(photo(*shape)).save(path)
    return tmp_path


def task(data: Path, **options: Any) -> SuperResolution:
    chosen = SuperResolutionOptions(["train"], ["val"], str(data), **{"crop": 40, **options})
    return SuperResolution(chosen, {"name": "vdsr", "depth": 2, "features": 8}, 0)


class TestTask:
    def test_items(self, data: Path) -> None:
        made = task(data)
        for number in range(12):
            item = made.item(number, generator(0, 0, number, 0))
            again = made.item(number, generator(0, 0, number, 0))
            assert item["clean"].shape == item["upscaled"].shape == (1, 40, 40)
            np.testing.assert_array_equal(item["clean"], again["clean"])
            difference = np.abs(item["clean"] - item["upscaled"])
            assert 0 < difference.mean() < 0.2  # the same place, turned the same way

    def test_loss_and_validation(self, data: Path) -> None:
        made = task(data, factors=(2,))
        model = made.build_model()
        start_at_identity(model)
        model.eval()
        batch = made.collate([made.item(i, generator(0, 0, i, 0)) for i in range(2)])
        loss, figures = made.loss(model, batch)
        assert float(figures["gain"]) == pytest.approx(0, abs=1e-5)
        error = (batch["clean"] - batch["upscaled"]).square().mean()
        assert float(loss.detach()) == pytest.approx(800 * float(error), rel=1e-5)
        with torch.no_grad():
            scores = made.validate(model, 0, generator(0, 1, 0, 0))
        pair = degrade(photo(60, 70), 2)
        error = np.square(pair.high - pair.upscaled())[2:-2, 2:-2].mean()
        assert scores == {"psnr": scores["psnr-x2"], "psnr-x2": pytest.approx(-10 * np.log10(error), abs=1e-3)}

    def test_errors(self, data: Path) -> None:
        with pytest.raises(ValueError, match="factors"):
            task(data, factors=(0,))
        chosen = SuperResolutionOptions(["train"], ["val"], str(data), crop=40)
        with pytest.raises(UserError, match="not for super-resolution"):
            SuperResolution(chosen, {"name": "dncnn-6"}, 0).build_model()

    def test_configs(self) -> None:
        paper, ours, baseline = (load(name) for name in ("sr-paper", "upscale", "vdsr"))
        assert (paper.epochs, paper.batch_size, paper.optimizer.name, paper.optimizer.lr) == (80, 32, "sgd", 0.1)
        assert paper.data == ours.data == baseline.data
        assert not any("val" in place or "Set" in place for place in ours.data["train"])
        assert (ours.steps, ours.optimizer, ours.schedule) == (baseline.steps, baseline.optimizer, baseline.schedule)


class TestUpscale:
    @pytest.mark.parametrize("factor", [2, 3.3, 4])
    @pytest.mark.parametrize("channels", [1, 3])
    def test_identity_is_bicubic(self, factor: float, channels: int) -> None:
        image = photo(21, 26, channels) / 255.0
        out = n3net.upscale(image, factor, bicubic_only())
        np.testing.assert_allclose(out, resize(image, factor), atol=1e-5)

    @pytest.mark.parametrize("factor", [1, 1.25, 1.9])
    def test_smaller_factors_reduce_the_double_size(self, factor: float) -> None:
        image = photo(300, 23) / 255.0  # with more rows than are reduced at a time
        double, out = (rgb_to_ycbcr(n3net.upscale(image, f, small())) for f in (2, factor))
        np.testing.assert_allclose(out[..., 0], resize(double, factor / 2)[..., 0], atol=1e-5)
        np.testing.assert_allclose(out[..., 1:], resize(rgb_to_ycbcr(image), factor)[..., 1:], atol=1e-5)

    @pytest.mark.parametrize("factor", [1.25, 2, 2.5])
    def test_is_what_the_scoreboard_measures(self, factor: float, tmp_path: Path) -> None:
        save(tmp_path / "a.safetensors", small())
        image = photo(40, 44, 1) / 255.0
        y = torch.from_numpy(luminance(image)).float()[None]
        measured = upscaler(str(tmp_path / "a.safetensors")).run(y, factor)[0]
        np.testing.assert_allclose(measured, luminance(n3net.upscale(image, factor, small())), atol=1e-5)

    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
    @pytest.mark.parametrize("shape", [(20, 33), (20, 33, 3), (1, 1), (3, 2, 3)])
    def test_type_and_shape(self, dtype: Any, shape: tuple[int, ...]) -> None:
        values = np.random.default_rng(0).random(shape)
        image = values.astype(dtype) if np.dtype(dtype).kind == "f" else (values * np.iinfo(dtype).max).astype(dtype)
        out = n3net.upscale(image, 2.5, small())
        assert out.dtype == dtype
        assert out.shape == (*scaled_size(shape[:2], 2.5), *shape[2:])  # type: ignore[arg-type]

    def test_tiles_do_not_change_the_result(self) -> None:
        image = photo(61, 47) / np.float32(255)
        whole = n3net.upscale(image, 2.3, small())
        for tile in (20, 64):
            seen: list[tuple[int, int]] = []
            out = n3net.upscale(image, 2.3, small(), tile=tile, progress=lambda *done: seen.append(done))  # noqa: B023
            np.testing.assert_allclose(out, whole, atol=1e-5)
            assert len(seen) > 1
            assert seen[-1][0] == seen[-1][1]

    def test_gray_stays_gray(self) -> None:
        gray = photo(20, 25, 1)
        out = n3net.upscale(np.dstack([gray] * 3), 2, small())
        np.testing.assert_array_equal(out, np.dstack([n3net.upscale(gray, 2, small())] * 3))

    def test_only_luminance_goes_through_the_network(self) -> None:
        image = photo(30, 30) / 255.0
        before, after = (rgb_to_ycbcr(n3net.upscale(image, 2, m)) for m in (bicubic_only(), small()))
        np.testing.assert_allclose(before[..., 1:], after[..., 1:], atol=1e-5)
        assert np.abs(before[..., 0] - after[..., 0]).max() > 1e-3

    def test_peak(self) -> None:
        image = photo(20, 20) * 3.0
        np.testing.assert_allclose(
            n3net.upscale(image, 2, small(), peak=765) / 765, n3net.upscale(image / 765, 2, small()), atol=1e-6
        )

    def test_sides_that_a_format_lacks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., tuple[int, str, str]]
    ) -> None:
        monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path))
        monkeypatch.setattr("n3net.restoration.upscaling.upscale", lambda *_, **__: pytest.fail("the network ran"))
        save(tmp_path / "upscale.safetensors", create("vdsr", depth=2, features=4))
        Image.new("L", (8200, 2)).save(tmp_path / "a.png")
        code, _, err = command("upscale", str(tmp_path / "a.png"), "-o", str(tmp_path / "a.webp"))
        assert (code, "not 16400 x 4" in err) == (1, True)

    def test_wrong_arguments(self) -> None:
        for factor in (0.9, 4.5, np.nan):
            with pytest.raises(ValueError, match="factor: expected 1 to 4"):
                n3net.upscale(photo(), factor, small())
        with pytest.raises(ValueError, match="expected shape"):
            n3net.upscale(np.zeros((4, 4, 2)), 2, small())
        with pytest.raises(TypeError, match=r"expected n3net\.models\.Upscaler"):
            n3net.upscale(photo(), 2, nn.Conv2d(1, 1, 3))
        with pytest.raises(TypeError, match="Denoiser"):
            n3net.denoise(photo(), 5, Upscaler(nn.Identity()))


@pytest.mark.parametrize("convert", [rgb_to_ycbcr, ycbcr_to_rgb, luminance, gray_levels])
def test_luminance_of_integers_is_refused(convert: Any) -> None:
    with pytest.raises(ValueError, match="expected floats"):
        convert(np.full((2, 2, 3), 200, np.uint8))
