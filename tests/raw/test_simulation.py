"""Raw data from pictures: scenes, mosaics and levels that are drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from n3net.imaging.demosaicking import PATTERNS
from n3net.raw.simulation import Scene, draw_level, draw_scene


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
