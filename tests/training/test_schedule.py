"""Learning rates."""

from __future__ import annotations

import pytest

from n3net.training import config
from n3net.training.schedule import learning_rate


def test_ends() -> None:
    for name in ("exponential", "cosine", "one-cycle"):
        s = config.ScheduleConfig(name, final=1e-6, warmup=0.25 if name == "one-cycle" else 0)  # type: ignore[arg-type]
        assert learning_rate(s, 1e-3, 1.0) == pytest.approx(1e-6)
        assert learning_rate(s, 1e-3, s.warmup) == pytest.approx(1e-3)


def test_warmup() -> None:
    s = config.ScheduleConfig("constant", warmup=0.5)
    assert [learning_rate(s, 1.0, f) for f in (0, 0.25, 0.5, 1)] == [0, 0.5, 1, 1]


def test_steps() -> None:
    s = config.ScheduleConfig("steps")
    assert [learning_rate(s, 0.1, f) for f in (0, 0.24, 0.25, 0.75)] == pytest.approx([0.1, 0.1, 0.01, 1e-4])
