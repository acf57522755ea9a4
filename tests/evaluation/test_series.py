"""Differences of figures, their intervals, and what they say."""

from __future__ import annotations

import numpy as np
import pytest

from n3net.evaluation.metrics import bootstrap
from n3net.evaluation.series import Figures, Key, Question, Series, Stated, difference, judge, stored, together

A, B = Key("gaussian", "a", "Set12", 25), Key("gaussian", "b", "Set12", 25)


def series(key: Key, values: list[float], seed: int = 0) -> Series:
    return Series(*key, values, f"measure {key.model}", seed=seed)


def test_a_difference_is_that_of_the_same_images() -> None:
    images = np.random.default_rng(1).normal(30, 3, 40)
    gain = 0.1 + 0.05 * np.random.default_rng(2).normal(size=40)
    figure, (low, high) = difference([(1, series(A, list(images + gain))), (-1, series(B, list(images)))])
    assert figure == pytest.approx(gain.mean())
    np.testing.assert_allclose((low, high), bootstrap(list(gain)), atol=1e-9)
    assert high - low < 0.05  # images differ by far more


def test_two_data_sets_are_drawn_independently() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(1, 1, 50), rng.normal(0, 1, 200)
    figure, (low, high) = difference([(1, series(A, list(one))), (-1, series(B._replace(data="BSD68"), list(two)))])
    assert figure == pytest.approx(one.mean() - two.mean())
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(one.var() / 50 + two.var() / 200), rel=0.05)


def test_series_of_other_images_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="Set12: 3 images of b, and 2 of another"):
        difference([(1, series(A, [1, 2])), (-1, series(B, [1, 2, 3]))])


@pytest.mark.parametrize(
    ("ours", "more_than", "verdict"),
    [
        ([31, 32, 33], 0, "held"),
        ([29, 30, 31], 0, "not held"),
        ([29, 32, 32], 0, "undecided"),
        ([30, 31, 32], -0.1, "held"),
    ],
)
def test_verdicts(ours: list[float], more_than: float, verdict: str) -> None:
    figures = Figures([series(A, ours), series(B, [30, 31, 32])])
    outcome = judge(Question("a over b", ((1, A), (-1, B)), more_than=more_than), figures)
    assert outcome.verdict == verdict
    assert outcome.commands == ("measure a", "measure b")


def test_seeds_are_averaged_and_what_is_missing_is_not_measured() -> None:
    figures = Figures([series(A, [1, 2]), series(A, [3, 4], seed=1)])
    assert judge(Question("a", ((1, A),)), figures).figure == 2.5
    assert judge(Question("a over b", ((1, A), (-1, B))), figures).verdict == "not measured"
    again = figures.with_new([series(A, [5, 6], seed=1)])
    assert [s.values for s in again.of(A)] == [[1, 2], [5, 6]]


def test_a_stated_figure() -> None:
    figures = Figures(stated=[Stated("time", 1.5, (1.4, 1.6), "bench")])
    assert judge(Question("t", stated="time", more_than=None, less_than=3.5), figures).verdict == "held"
    assert judge(Question("t", stated="time", more_than=None, less_than=1.0), figures).verdict == "not held"
    assert judge(Question("t", stated="none"), figures).verdict == "not measured"


def test_several_tests_of_one_claim() -> None:
    assert together(["held", "held"]) == "held"
    assert together(["held", "not measured"]) == "undecided"
    assert together(["held", "not held", "undecided"]) == "not held"
    assert together(["not measured"]) == "not measured"


def test_what_is_kept_is_whole() -> None:
    figures = stored()
    assert all(s.values and np.isfinite(s.values).all() and s.command.startswith("n3net ") for s in figures.series)
    assert len({(s.key, s.seed) for s in figures.series}) == len(figures.series)
    sizes = {"Set12": 12, "BSD68": 68, "CBSD68": 68, "Set5": 5, "Set14": 14, "BSD100": 100, "Urban100": 100}
    assert all(len(s.values) == sizes[s.data] for s in figures.series)
