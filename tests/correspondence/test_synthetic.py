"""Made up scenes and poses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3net.correspondence import geometry
from n3net.correspondence.synthetic import Poses, synthetic_pair
from n3net.errors import UserError
from pairs import same

K = np.array([[300.0, 0, 159.5], [0, 300, 119.5], [0, 0, 1]])


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.95])
def test_made_up_pairs_are_what_they_say(share: float, real: bool, poses: Path) -> None:
    drawn = Poses(poses) if real else None
    for seed in range(6):
        pair = synthetic_pair(np.random.default_rng(seed), 500, share, drawn)
        assert len(pair) == 500
        rotation, t = pair.pose
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)
        assert np.linalg.det(rotation) > 0
        assert np.linalg.norm(t) == pytest.approx(1)
        right = geometry.labels(geometry.essential(rotation, t), pair.x0, pair.x1)
        assert right.mean() == pytest.approx(1 - share, abs=0.03)  # noise makes a few of the right ones wrong
        assert geometry.in_front(rotation, t, pair.x0[right], pair.x1[right]).mean() > 0.97
        assert pair.ratio is not None
        assert pair.mutual is not None
        assert 0 <= pair.ratio.min() <= pair.ratio.max() <= 1
        if 0 < share < 1:
            assert pair.ratio[right].mean() < pair.ratio[~right].mean()
            assert pair.mutual[right].mean() > pair.mutual[~right].mean()


def test_a_seed_makes_the_same_pair() -> None:
    same(*(synthetic_pair(np.random.default_rng(5), 100) for _ in range(2)))
    other = synthetic_pair(np.random.default_rng(6), 100)
    assert not np.array_equal(other.x0, synthetic_pair(np.random.default_rng(5), 100).x0)


def test_shares_are_drawn_from_a_range() -> None:
    shares = []
    for seed in range(40):
        pair = synthetic_pair(np.random.default_rng(seed), 200, (0.2, 0.8))
        shares.append(1 - geometry.labels(geometry.essential(*pair.pose), pair.x0, pair.x1).mean())
    assert 0.18 <= min(shares) < 0.35
    assert 0.65 < max(shares) <= 0.85


def test_poses_of_another_kind_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", K1=np.eye(3))
    with pytest.raises(UserError, match=r"expected an \.npz with K1, K2, R and t"):
        Poses(tmp_path / "x.npz")
    np.save(tmp_path / "x.npy", np.eye(3))
    with pytest.raises(UserError, match=r"expected an \.npz with K1, K2, R and t"):
        Poses(tmp_path / "x.npy")
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(UserError, match="not a readable file of numpy arrays"):
        Poses(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"R": np.eye(3)}, r"expected K1, K2, R of shape .* got \[\(1, 3, 3\)"),
        ({"t": np.float64(1)}, "expected K1, K2, R of shape"),
        ({key: np.zeros((0, 3, 3)) for key in ("K1", "K2", "R")} | {"t": np.zeros((0, 3))}, "P at least 1"),
        ({"K2": np.zeros((1, 3, 3))}, "positive focal lengths"),
        ({"K1": np.full((1, 3, 3), np.nan)}, "positive focal lengths"),
        ({"R": np.full((1, 3, 3), np.nan)}, "expected rotations"),
        ({"t": np.zeros((1, 3))}, "no pair"),
        ({"t": np.array([[np.inf, 0, 0]])}, "expected numbers"),
        ({"t": np.array([["a", "b", "c"]])}, "camera pairs"),
    ],
)
def test_poses_that_cannot_be_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    one = {"K1": K[None], "K2": K[None], "R": np.eye(3)[None], "t": np.ones((1, 3))}
    np.savez(tmp_path / "x.npz", **one)
    assert len(Poses(tmp_path / "x.npz").t) == 1
    np.savez(tmp_path / "x.npz", **one | changes)
    with pytest.raises(UserError, match=words):
        Poses(tmp_path / "x.npz")
