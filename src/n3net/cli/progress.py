"""A progress bar for commands that work through files."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


class Update(Protocol):
    """What a command calls when something more is done."""

    def __call__(self, index: int, name: str, done: float, total: float = 1) -> None:
        """The number of a file, its name, what is done of it, and all there is to do."""


PATIENCE = 1.0  # seconds before there is a bar


@contextmanager
def file_progress(sizes: Sequence[int]) -> Iterator[Update]:
    """A bar with the time left for all files, on stderr, when it is a terminal and the work takes longer than a moment.

    Args:
        sizes: of the files, in anything that time is proportional to.

    Yields:
        What to call when something more is done.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=sum(sizes) or 1)

    parts: dict[int, float] = {}  # of files that are begun and not done
    finished: list[float] = [0, 0]  # how many, and their sizes
    lock = threading.Lock()

    def update(index: int, name: str, done: float, total: float = 1) -> None:
        with lock:
            if done < total:
                parts[index] = done / total * sizes[index]
            elif parts.pop(index, None) is not None:
                finished[:] = finished[0] + 1, finished[1] + sizes[index]
            count = f"{min(int(finished[0]) + 1, len(sizes))}/{len(sizes)} " if len(sizes) > 1 else ""
            bar.update(task, completed=finished[1] + sum(parts.values()), description=count + name)

    later = threading.Timer(PATIENCE, bar.start)
    later.daemon = True
    if console.is_terminal:
        later.start()
    try:
        yield update
    finally:
        later.cancel()
        if later.ident is not None:
            later.join()
        bar.stop()
