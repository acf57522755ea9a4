"""Several processes of this machine."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from n3net.io.isolation import Worker, WorkerError
from n3net.jobs.batch import Tell
from n3net.jobs.manifest import Item
from n3net.jobs.one import Call
from n3net.jobs.records import Record

R = TypeVar("R")

TRIES = 2  # processes that a file may end


class Child:
    """A process that does one job after the other, with what all need loaded once. Its end costs a job, not the batch.

    Args:
        call: what is done.
        threads: it computes with.
    """

    def __init__(self, call: Call, threads: int) -> None:
        self.call, self.threads = call, threads
        self._worker, self._ready = Worker(), False
        self._stopped = False

    def do(self, item: Item) -> Record:
        """Do a job; again in a new process if the first died, and then no more."""
        reason = ""
        for _ in range(TRIES):
            if not self._ready:
                self._worker.call(_begin, self.call, self.threads)
                self._ready = True
            try:
                return self._worker.call(_do, item)
            except WorkerError as error:
                if self._stopped:
                    raise
                self._ready, reason = False, str(error).partition(": ")[2]
        return self.call.failed(item, f"set aside: {TRIES} times {reason}")

    def ask(self, function: Callable[[], R]) -> R:
        """What a function gives in the process."""
        return self._worker.call(function)

    def stop(self) -> None:
        """End it at once, in the middle of a job if there is one."""
        self._stopped = True
        self._worker.kill()


class Processes:
    """As many processes, each with its share of the threads."""

    def __init__(self, workers: int, threads: int | None = None) -> None:
        self.workers = workers
        self.threads = max(1, processors() // workers) if threads is None else threads

    def run(self, call: Call, items: Sequence[Item], tell: Tell) -> Iterator[tuple[int, Record]]:
        waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
        for item in items:
            waiting.put(item)
        results: queue.SimpleQueue[tuple[int, Record] | BaseException] = queue.SimpleQueue()
        children = [Child(call, self.threads) for _ in range(min(self.workers, len(items)))]

        def work(child: Child) -> None:
            try:
                while True:
                    item = waiting.get_nowait()
                    tell(item.index, item.job.name, 0, 1)
                    results.put((item.index, child.do(item)))
            except queue.Empty:
                return
            except BaseException as error:
                results.put(error)

        threads = [threading.Thread(target=work, args=[child], daemon=True) for child in children]
        try:
            for thread in threads:
                thread.start()
            for _ in items:
                result = results.get()
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            for child in children:
                child.stop()
            for thread in threads:
                thread.join()


def processors() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_call: Call | None = None  # of this process, when it is a child


def _begin(call: Call, threads: int) -> None:
    global _call
    from n3net.memory import reuse_freed_memory

    reuse_freed_memory()
    os.environ.update(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))  # for libraries that come later
    call.begin()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    _call = call


def _do(item: Item) -> Record:
    assert _call is not None
    return _call(item, _no_progress)


def _no_progress(*_: Any) -> None:
    """Only whole files are counted."""
