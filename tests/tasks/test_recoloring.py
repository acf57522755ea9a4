"""Other colours for training crops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from n3net.imaging.color import LUMA
from n3net.tasks import task_class
from n3net.tasks.data import generator
from n3net.tasks.gaussian import GaussianOptions
from n3net.tasks.recoloring import GAMMA, draw_matrix, recolor, saturate
from n3net.tasks.superresolution import SuperResolutionOptions


def crop(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)


def test_range_type_and_seed() -> None:
    for seed in range(50):
        out = recolor(crop(), np.random.default_rng(seed))
        assert out.shape == (12, 10, 3)
        assert out.dtype == np.float32
        assert 0 <= out.min() <= out.max() <= 1
        assert np.array_equal(out, recolor(crop(), np.random.default_rng(seed)))
    assert len({recolor(crop(), np.random.default_rng(seed)).tobytes() for seed in range(50)}) > 40


def test_gray_stays_gray_and_only_its_brightness_changes() -> None:
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], 3, 2)  # (256, 1, 3)
    values = np.arange(256) / 255
    for seed in range(50):
        out = recolor(ramp, np.random.default_rng(seed))
        assert np.ptp(out, 2).max() < 1e-5
        assert out[0].max() < 1e-6
        assert out[-1].min() > 1 - 1e-6
        gamma = np.log(out[128, 0, 0]) / np.log(values[128])
        assert GAMMA[0] - 1e-4 < gamma < GAMMA[1] + 1e-4
        np.testing.assert_allclose(out[:, 0, 0], values**gamma, atol=1e-5)


def test_one_channel() -> None:
    gray = crop()[..., :1]
    outs = [recolor(gray, np.random.default_rng(seed)) for seed in range(20)]
    assert all(out.shape == (12, 10, 1) for out in outs)
    unchanged = [np.allclose(out, gray / np.float32(255)) for out in outs]
    assert 3 < sum(unchanged) < 17


def test_matrices_are_drawn_around_the_identity() -> None:
    rng = np.random.default_rng(0)
    matrices = np.stack([draw_matrix(rng) for _ in range(4000)])
    np.testing.assert_allclose(matrices.sum(2), 1)
    # The mean: half of them have exchanged channels, and saturation is 1 on average.
    np.testing.assert_allclose(matrices.mean(0), np.eye(3) / 2 + np.full((3, 3), 1 / 6), atol=0.03)
    kept = np.abs(matrices - np.eye(3)).max((1, 2)) < 1e-12
    assert kept.mean() == pytest.approx((1 / 2 + 1 / 12) / 4, abs=0.02)


def test_saturation() -> None:
    colour = np.array([0.9, 0.3, 0.1])
    for factor in (0.0, 0.5, 1.0, 2.0):
        out = saturate(factor) @ colour
        assert np.dot(LUMA, out) == pytest.approx(np.dot(LUMA, colour))
        np.testing.assert_allclose(out - np.dot(LUMA, colour), factor * (colour - np.dot(LUMA, colour)), atol=1e-12)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train", "validation"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 28, 3), dtype=np.uint8)).save(
            tmp_path / name / "1.png"
        )
    return tmp_path


def test_part_of_the_items_of_a_task(folder: Path) -> None:
    def items(colors: float) -> list[np.ndarray]:
        options = GaussianOptions(["train"], ["validation"], str(folder), sigma=0, crop=16, colors=colors)
        task = task_class("gaussian")(options, {"channels": 3}, 0)
        return [task.item(i, generator(0, 0, 0, i))["clean"] for i in range(100)]

    plain, half = items(0), items(0.5)
    assert {item.shape for item in half} == {(3, 16, 16)}
    # A crop of 8 bits is one of the image's own; about half of them, and a sixth or so of the others, are.
    own = [np.allclose(item * 255, np.rint(item * 255), atol=1e-4) for item in half]
    assert all(np.allclose(item * 255, np.rint(item * 255), atol=1e-4) for item in plain)
    assert 45 < sum(own) < 75


def test_refuses() -> None:
    with pytest.raises(ValueError, match="colors: expected a part, 0 to 1, got 2"):
        GaussianOptions([], [], colors=2)
    with pytest.raises(ValueError, match="colors: expected 0, as super-resolution trains on luminance, got"):
        SuperResolutionOptions([], [], colors=0.5)
