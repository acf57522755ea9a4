"""Batches: what a worker process costs, in time and memory, and what two of them give."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from PIL import Image

from n3net.bench.harness import Round, Sample
from n3net.bench.made_up import NOISE, picture, temporary_folder
from n3net.bench.measure import command_seconds, timed
from n3net.jobs.denoising import Denoise
from n3net.jobs.manifest import Item, Manifest
from n3net.jobs.one import Call
from n3net.jobs.operation import Pictures
from n3net.jobs.planning import Job
from n3net.jobs.processes import Child
from n3net.jobs.records import Record, stamp
from n3net.jobs.work import Files, do

SIDE = 512


def _files(folder: Path, count: int, side: int = SIDE) -> list[Job]:
    noisy = Image.fromarray(picture(side, side, 1))
    jobs = [Job(folder / "in" / f"{i:05}.png", folder / "out" / f"{i:05}.png") for i in range(count)]
    (folder / "in").mkdir()
    for job in jobs:
        assert job.source is not None
        noisy.save(job.source)
    return jobs


def _call(folder: Path) -> Call:
    return Call(Pictures(Denoise(sigma=NOISE), Files(force=True)), Manifest(folder / "out" / "m.jsonl"), shared=True)


def _done(child: Child, job: Job) -> Record:
    record = child.do(Item(0, job, True, stamp(job.target)))
    if record.error:
        raise RuntimeError(record.error)
    return record


def overhead() -> Round:
    """Time for a file by a worker process, with claim and manifest, beyond that of the plain command's function."""
    import torch

    folder = temporary_folder()
    (job,) = _files(folder, 1)
    call = _call(folder)
    child = Child(call, torch.get_num_threads())
    operation: Any = call.operation

    def plain() -> None:
        do(job, operation.work, operation.files, lambda *_: None)

    plain()
    _done(child, job)

    def one_round() -> Sample:
        a, worker, b = timed(plain), timed(lambda: _done(child, job)), timed(plain)
        alone = (a + b) / 2
        return Sample(worker / alone - 1, {"worker (s)": worker, "plain (s)": alone})

    return one_round


def two_workers() -> Round:
    """Time for an image with two worker processes over that with one, each with one thread."""
    folder = temporary_folder()
    jobs = _files(folder, 2)
    call = _call(folder)
    children = [Child(call, 1), Child(call, 1)]
    for child, job in zip(children, jobs, strict=True):
        _done(child, job)

    def together() -> None:
        threads = [threading.Thread(target=_done, args=pair) for pair in zip(children, jobs, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def one_round() -> Sample:
        one, two = timed(lambda: _done(children[0], jobs[0])), timed(together) / 2
        return Sample(two / one, {"images per second, 1 worker": 1 / one, "images per second, 2 workers": 1 / two})

    return one_round


def memory() -> Round:
    """MiB of a worker process with its network, after an image; what it shares with others counts in part."""
    folder = temporary_folder()
    (job,) = _files(folder, 1)

    def one_round() -> Sample:
        child = Child(_call(folder), 1)
        _done(child, job)
        sizes = child.ask(own_memory)
        child.stop()
        return Sample(sizes["Pss"], {f"{name} (MiB)": size for name, size in sizes.items()})

    return one_round


def own_memory() -> dict[str, float]:
    """MiB of this process by the system's names; Pss counts what is shared by its share."""
    with open("/proc/self/smaps_rollup", encoding="utf8") as file:
        lines = [line.split() for line in file]
    names = ("Rss:", "Pss:", "Private_Dirty:", "Shared_Clean:")
    return {line[0][:-1]: int(line[1]) / 1024 for line in lines if line[0] in names}


def tiny_files(count: int = 10_000, side: int = 32) -> Round:
    """Milliseconds for each of many small files, two workers, start-up included."""
    folder = temporary_folder()
    _files(folder, count, side)
    arguments = ["denoise", str(folder / "in"), "-o", str(folder / "out"), "--sigma", f"{NOISE:g}", "--workers", "2"]

    def one_round() -> Sample:
        seconds = command_seconds([*arguments, "--force", "--resume"])
        left_out = command_seconds([*arguments, "--resume"])
        done = {"all (s)": seconds, "all, when all is done (s)": left_out}
        return Sample(1000 * seconds / count, done)

    return one_round
