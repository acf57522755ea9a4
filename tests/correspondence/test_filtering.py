"""Matches that are scored, kept, and give a pose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from n3net.correspondence.filtering import filter_pair, score
from n3net.correspondence.matchfile import Pair
from n3net.models import create
from photos import constant

cv2 = pytest.importorskip("cv2", reason="matching needs OpenCV")


def pair(n: int, seed: int = 0, **more: Any) -> Pair:
    rng = np.random.default_rng(seed)
    return Pair(rng.uniform(-0.5, 0.5, (n, 2)), rng.uniform(-0.5, 0.5, (n, 2)), **more)


@pytest.mark.parametrize("n", [0, 1, 4, 7])
def test_too_few_to_score(n: int) -> None:
    result = filter_pair(pair(n), constant(-1.0))
    assert result.kept.all()
    assert (result.scores == 0).all()
    assert any("no matches" in note if n == 0 else "fewer than 8" in note for note in result.notes)
    if n < 5:
        assert result.pose is None


def test_eight_are_scored() -> None:
    assert (score(pair(8), constant(-1.0)) == -1).all()


def test_networks_stay_in_training() -> None:
    net = constant(1.0)
    expected = score(pair(20), net)
    net.train()
    net.last.eval()
    np.testing.assert_array_equal(score(pair(20), net), expected)
    assert net.training
    assert not net.last.training


def test_ratio_alone_is_not_used() -> None:
    torch.manual_seed(3)
    net = create("n3net-sets", features=8, depth=2, block_features=8, ratio=True, mutual=True).eval()
    ratio, mutual = np.linspace(0, 1, 20), np.arange(20) < 10
    unknown = score(pair(20), net)
    np.testing.assert_array_equal(score(pair(20, ratio=ratio), net), unknown)
    np.testing.assert_array_equal(score(pair(20, mutual=mutual), net), unknown)
    assert (score(pair(20, ratio=ratio, mutual=mutual), net) != unknown).any()


def test_nan_and_far_away_points_do_not_touch_the_others() -> None:
    clean = pair(50, ratio=np.full(50, 0.5), mutual=np.ones(50, bool))
    torch.manual_seed(3)
    net = create("n3net-sets", features=8, depth=2, block_features=8, ratio=True, mutual=True).eval()
    dirty = Pair(
        np.vstack([clean.x0, [[np.nan, 0], [0, np.inf], [1e30, 0], [0, 0]]]),
        np.vstack([clean.x1, [[0, 0], [0, 0], [0, 0], [0, 0]]]),
        np.append(np.full(53, 0.5), np.nan),
        np.ones(54, bool),
    )
    result = filter_pair(dirty, net)
    np.testing.assert_array_equal(result.scores[:50], score(clean, net))
    assert np.isneginf(result.scores[50:]).all()
    assert not result.kept[50:].any()
    assert any("4 matches are not numbers" in note for note in result.notes)


def test_duplicates_count_once() -> None:
    one = pair(1)
    result = filter_pair(Pair(np.repeat(one.x0, 100, 0), np.repeat(one.x1, 100, 0)), constant(1.0))
    assert result.kept.all()
    assert result.pose is None
    assert any("5 different matches" in note for note in result.notes)
