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
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=sum(sizes) or 1)

    def update(index: int, name: str, done: float, total: float = 1) -> None:
        count = f"{index + 1}/{len(sizes)} " if len(sizes) > 1 else ""
        bar.update(task, completed=sum(sizes[:index]) + done / total * sizes[index], description=count + name)

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
