"""How long a batch takes on many workers, and what limits it: a simulation, fed with times that were measured.

    python -m n3net.bench.simulation --compute 60 --driver 0.003

A file is handed out by the driver, read, computed, written, and its record taken by the driver. The driver, what is
read and what is written are one queue each, first come, first served: storage has so many bytes a second for all
workers together. Nothing of this is measured on a cluster; it says which queue is full first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer


@dataclass(frozen=True)
class Batch:
    """Of each file, in seconds and bytes.

    Args:
        compute: seconds of a worker, decoding and encoding included.
        spread: standard deviation of the logarithm of that time from file to file.
        driver: seconds of the driver.
        read, written: bytes.
        start: seconds until a worker is ready.
        read_rate, write_rate: bytes a second of the storage, for all workers together.
    """

    compute: float
    driver: float
    read: float
    written: float
    start: float
    read_rate: float
    write_rate: float
    spread: float = 0.2


@dataclass(frozen=True)
class Outcome:
    """Seconds that a batch takes, and the part of them that each queue was at work; workers: on average."""

    seconds: float
    busy: dict[str, float]

    @property
    def limit(self) -> str:
        """What is busiest."""
        return max(self.busy, key=lambda name: self.busy[name])


def simulate(batch: Batch, files: int, workers: int, seed: int = 0) -> Outcome:
    """A batch of so many files on so many workers, event by event.

    >>> even = Batch(compute=10, driver=0, read=0, written=0, start=5, read_rate=1, write_rate=1, spread=0)
    >>> simulate(even, files=8, workers=4).seconds
    25.0
    """
    rng = np.random.default_rng(seed)
    times = batch.compute * np.exp(batch.spread * rng.standard_normal(files) - batch.spread**2 / 2)
    work = {"driver": batch.driver, "read": batch.read / batch.read_rate, "write": batch.written / batch.write_rate}
    free = dict.fromkeys(work, 0.0)
    used = dict.fromkeys([*work, "workers"], 0.0)
    steps = ("driver", "read", "compute", "write")
    events = [(batch.start, worker, 0, -1) for worker in range(workers)]  # when, who, which step next, which file
    heapq.heapify(events)
    begun, end = 0, 0.0
    while events:
        now, worker, step, file = heapq.heappop(events)
        if step == len(steps):
            end, step = max(end, now), 0
        if step == 0:
            if begun == files:
                continue
            file, begun = begun, begun + 1
        name = steps[step]
        if name == "compute":
            done = now + float(times[file])
            used["workers"] += float(times[file]) / workers
        else:
            done = free[name] = max(now, free[name]) + work[name]
            used[name] += work[name]
        heapq.heappush(events, (done, worker, step + 1, file))
    return Outcome(end, {name: seconds / end for name, seconds in used.items()})


def command(
    compute: Annotated[float, typer.Option(help="Seconds of a core for one image.")],
    driver: Annotated[float, typer.Option(help="Seconds of the driver for one image.")],
    images: Annotated[int, typer.Option(help="In all.")] = 1_000_000,
    megabytes: Annotated[float, typer.Option(help="Of an image, read and written.")] = 6.0,
    start: Annotated[float, typer.Option(help="Seconds until a worker is ready.")] = 20.0,
    rate: Annotated[float, typer.Option(help="Gigabytes a second of the storage, to read and as many to write.")] = 1.0,
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "10,100,1000",
    faster: Annotated[float, typer.Option(help="How much faster a GPU per worker is assumed to be.")] = 20.0,
    simulated: Annotated[int, typer.Option(help="Images that are simulated; others take as long.")] = 10_000,
) -> None:
    """How long a batch takes on 10, 100 and 1000 workers, with a core each and with a GPU each, and what limits it."""
    print(f"{images:,} images: {images * compute / 3600:,.0f} core hours; {rate:g} GB/s, driver {1000 * driver:g} ms")
    print(f"{'':14}{'workers':>8}{'days':>9}{'speed-up':>10}{'limit':>9}   busy")
    for label, seconds in (("a core each", compute), (f"a GPU, x{faster:g}", compute / faster)):
        batch = Batch(seconds, driver, megabytes * 1e6, megabytes * 1e6, start, rate * 1e9, rate * 1e9)
        for count in _numbers(workers):
            files = min(images // 2, max(simulated, 20 * count))
            few, more = (simulate(batch, number, count) for number in (files, 2 * files))
            total = more.seconds + (more.seconds - few.seconds) / files * (images - 2 * files)
            busy = ", ".join(f"{name} {part:.0%}" for name, part in more.busy.items())
            gain = images * compute / total
            print(f"{label:14}{count:8,}{total / 86400:9.2f}{gain:10,.0f}{more.limit:>9}   {busy}")


def _numbers(text: str) -> Sequence[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    typer.run(command)
