"""What tests of correspondence share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from n3net.correspondence.synthetic import rotation_about


@pytest.fixture(scope="module")
def poses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("poses") / "poses.npz"
    k = np.array([[1500.0, 0, 800], [0, 1500, 600], [0, 0, 1]])
    turns = np.stack([rotation_about(np.array([0.0, 1, 0]), a) for a in (0.1, -0.2, 0.3)])
    moves = np.array([[1.0, 0, 0], [-1, 0, 0], [0.9, 0, 0.1]])
    np.savez(path, K1=np.stack([k] * 3), K2=np.stack([k] * 3), R=turns, t=moves)
    return path
