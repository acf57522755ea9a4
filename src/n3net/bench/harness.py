"""How a figure is measured: in a process of its own, round after round until the middle half of them lies close.

Timings of a machine that others use jump by a factor of two from one second to the next. What is compared is therefore
timed in turn within a round, and a round gives one ratio; a figure is the median of its rounds.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

CLOSE = 0.10  # of the median, on either side: where the middle half of the rounds has to be
MOST = 100  # rounds


@dataclass(frozen=True)
class Sample:
    """What one round gives: the figure's value, and what it was computed from, by name."""

    value: float
    parts: dict[str, float] = field(default_factory=dict)


Round = Callable[[], Sample]


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Args:
        key: its name in JSON and for ``--only``.
        what: for people, with the unit if it is no ratio.
        to_reach: what the project has set itself; smaller is better.
        begin: makes everything ready, warms up, and returns what is called for each round.
        threads: if it is not measured with as many as are asked for.
        least: rounds, however close they lie.
        scale: what the rounds' spread is compared with, if not with their median.
        slow: takes many minutes, so it is only measured when it is asked for.
    """

    key: str
    what: str
    to_reach: float
    begin: Callable[[], Round]
    threads: int | None = None
    least: int = 5
    scale: float | None = None
    slow: bool = False


@dataclass(frozen=True)
class Result:
    """A figure that was measured: the median, the middle half around it, and the medians of what it comes from."""

    key: str
    what: str
    value: float
    low: float
    high: float
    to_reach: float
    reached: bool
    settled: bool
    rounds: int
    threads: int
    parts: dict[str, float]


class FigureError(Exception):
    """Why a figure could not be measured, in words."""


def middle_half(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, statistics.median(values), high


def settled(figure: Figure, values: Sequence[float]) -> bool:
    """Whether there are enough rounds and their middle half lies close to the median."""
    if len(values) < figure.least:
        return False
    low, median, high = middle_half(values)
    return max(high - median, median - low) <= CLOSE * (abs(median) if figure.scale is None else figure.scale)


def rounds(figure: Figure, seconds: float, clock: Callable[[], float] = time.monotonic) -> Iterator[Sample]:
    """Rounds until they are settled, or there were too many, or they took longer than this."""
    one_round = figure.begin()
    start, values = clock(), list[float]()
    while not settled(figure, values):
        if len(values) >= figure.least and (len(values) >= MOST or clock() - start >= seconds):
            return
        sample = one_round()
        values.append(sample.value)
        yield sample


def summary(figure: Figure, samples: Sequence[Sample], threads: int) -> Result:
    """What the rounds of a figure say together."""
    values = [sample.value for sample in samples]
    low, median, high = middle_half(values)
    parts = {name: statistics.median(s.parts[name] for s in samples) for name in samples[0].parts}
    done = settled(figure, values)
    reached = median <= figure.to_reach
    return Result(
        figure.key, figure.what, median, low, high, figure.to_reach, reached, done, len(values), threads, parts
    )


def measure_apart(figure: Figure, threads: int, seconds: float, tell: Callable[[Result], None]) -> Result:
    """Measure a figure in a process of its own, and tell what is known so far after each round."""
    threads = figure.threads or threads
    command = [sys.executable, "-m", "n3net.bench", figure.key, str(threads), str(seconds)]
    samples: list[Sample] = []
    for sample in samples_of(command, threads):
        samples.append(sample)
        tell(summary(figure, samples, threads))
    if not samples:
        raise FigureError("the process that measures it ended without a figure")
    return summary(figure, samples, threads)


def samples_of(command: Sequence[str], threads: int = 1) -> Iterator[Sample]:
    """The samples that a process prints, one a line, as they come; an error says how the process ended."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile("w+", encoding="utf8", errors="replace") as complaints:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True, env=environment)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield Sample(**json.loads(line))
            code = process.wait()
        finally:
            process.stdout.close()
            process.terminate()
            process.wait()
        if code:
            complaints.seek(0)
            raise FigureError(_how_it_ended(code, complaints.read()))


def _how_it_ended(code: int, complaints: str) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        return f"the process that measures it was ended by {name}" + (", out of memory?" if name == "SIGKILL" else "")
    lines = complaints.strip().splitlines()
    return lines[-1] if lines else f"the process that measures it ended with code {code}"
