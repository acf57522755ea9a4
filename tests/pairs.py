"""Pairs of images with matches, made up, and whether two of them are the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from n3net.correspondence.matchfile import Pair
from n3net.correspondence.synthetic import rotation_about


def a_pair(n: int = 100, seed: int = 0, **changes: Any) -> Pair:
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = {
        "x0": rng.normal(size=(n, 2)),
        "x1": rng.normal(size=(n, 2)),
        "ratio": rng.random(n),
        "mutual": rng.random(n) < 0.5,
        "rotation": rotation_about(np.array([0.0, 1, 0]), 0.3),
        "translation": np.array([0.6, 0, 0.8]),
        "names": ("left.jpg", "rechts-ü.jpg"),
    }
    return Pair(**{**values, **changes})


def same(a: Pair, b: Pair) -> None:
    assert a.names == b.names
    for name in ("x0", "x1", "ratio", "mutual", "rotation", "translation"):
        found, expected = getattr(a, name), getattr(b, name)
        assert (found is None) == (expected is None), name
        if expected is not None:
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected, err_msg=name)
