"""Figures of single images, kept so that differences of means have intervals, and what they say about a statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from n3net.evaluation.metrics import DRAWN_AT_ONCE

Verdict = Literal["held", "not held", "undecided", "not measured"]
DRAWS = 10_000


class Key(NamedTuple):
    """What was measured.

    Args:
        task: ``gaussian``, ``sr`` or ``raw``, all in dB; ``choice``, the mean largest weight of a block.
        model: weights, methods, or ``BUDGET/VARIANT`` of :mod:`n3net.evaluation.budget`.
        data: the images.
        level: σ, factor, or a of raw noise.
    """

    task: str
    model: str
    data: str
    level: float


@dataclass(frozen=True)
class Series:
    """A figure of each image of a data set, the command that measured it, and the checksum of the weights."""

    task: str
    model: str
    data: str
    level: float
    values: list[float]
    command: str
    digest: str | None = None
    seed: int = 0

    @property
    def key(self) -> Key:
        return Key(self.task, self.model, self.data, self.level)


@dataclass(frozen=True)
class Stated:
    """A figure whose single values are not kept, with its interval."""

    name: str
    figure: float
    interval: tuple[float, float]
    command: str


@dataclass(frozen=True)
class Figures:
    """All that is kept."""

    series: list[Series] = field(default_factory=list)
    stated: list[Stated] = field(default_factory=list)

    def of(self, key: Key) -> list[Series]:
        """All seeds of what was measured."""
        return [s for s in self.series if s.key == key]

    def with_new(self, new: Iterable[Series]) -> Figures:
        """With some series in place of the same ones that were there."""
        new = list(new)
        replaced = {(s.key, s.seed) for s in new}
        return Figures([s for s in self.series if (s.key, s.seed) not in replaced] + new, self.stated)

    def as_json(self) -> dict[str, Any]:
        """In the form of the file that comes with the package."""
        series = [{**asdict(s), "values": [round(value, 4) for value in s.values]} for s in self.series]
        return {"series": series, "stated": [asdict(s) for s in self.stated]}


def stored() -> Figures:
    """Those that come with the package."""
    content: Mapping[str, Any] = json.loads((files("n3net.evaluation") / "figures.json").read_text(encoding="utf-8"))
    stated = [Stated(**{**s, "interval": tuple(s["interval"])}) for s in content["stated"]]
    return Figures([Series(**s) for s in content["series"]], stated)


@dataclass(frozen=True)
class Question:
    """A number that is to be larger than ``more_than``, or smaller than ``less_than``.

    Args:
        what: in words.
        terms: signs and what was measured; the number is the sum of the means.
        stated: the name of a figure instead.
    """

    what: str
    terms: tuple[tuple[int, Key], ...] = ()
    stated: str = ""
    more_than: float | None = 0.0
    less_than: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a test went."""

    verdict: Verdict
    figure: float | None = None
    interval: tuple[float, float] | None = None
    commands: tuple[str, ...] = ()


def judge(test: Question, figures: Figures) -> Outcome:
    """Held where the whole interval of the number is on its side, not held where none of it is."""
    if test.stated:
        found = next((s for s in figures.stated if s.name == test.stated), None)
        if found is None:
            return Outcome("not measured")
        return Outcome(_verdict(test, found.interval), found.figure, found.interval, (found.command,))
    parts = [(sign, figures.of(key)) for sign, key in test.terms]
    if not all(series for _, series in parts):
        return Outcome("not measured")
    figure, interval = difference([(sign, _mean(series)) for sign, series in parts])
    commands = tuple(dict.fromkeys(s.command for _, series in parts for s in series))
    return Outcome(_verdict(test, interval), figure, interval, commands)


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several tests of one statement: it holds where all do that were made, and fails with one of them."""
    made = [v for v in verdicts if v != "not measured"]
    if not made:
        return "not measured"
    if "not held" in made:
        return "not held"
    return "held" if all(v == "held" for v in made) and len(made) == len(verdicts) else "undecided"


def difference(terms: Sequence[tuple[int, Series]]) -> tuple[float, tuple[float, float]]:
    """The sum of signed means, and its interval: 95 %, bootstrap over images.

    Terms of the same data set see the same images.
    """
    sums: dict[str, npt.NDArray[np.float64]] = {}
    for sign, series in terms:
        values = sign * np.asarray(series.values, np.float64)
        before = sums.setdefault(series.data, np.zeros(len(values)))
        if len(before) != len(values):
            raise ValueError(f"{series.data}: {len(values)} images of {series.model}, and {len(before)} of another")
        sums[series.data] = before + values
    rng = np.random.default_rng(0)
    drawn = np.zeros(DRAWS)
    for values in sums.values():
        rows = max(1, DRAWN_AT_ONCE // len(values))
        counts = [min(rows, DRAWS - done) for done in range(0, DRAWS, rows)]
        drawn += np.concatenate([values[rng.integers(0, len(values), (n, len(values)))].mean(1) for n in counts])
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(sum(values.mean() for values in sums.values())), (float(low), float(high))


def _mean(series: Sequence[Series]) -> Series:
    """Of several seeds, image by image."""
    values = np.mean([s.values for s in series], 0).tolist()
    return Series(*series[0].key, values, series[0].command)


def _verdict(test: Question, interval: tuple[float, float]) -> Verdict:
    low, high = interval
    if test.less_than is not None:
        return "held" if high < test.less_than else "not held" if low > test.less_than else "undecided"
    assert test.more_than is not None
    return "held" if low > test.more_than else "not held" if high < test.more_than else "undecided"
