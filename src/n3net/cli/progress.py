"""A progress bar for commands that work through files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

PATIENCE = 1.0  # seconds before there is a bar


@contextmanager
def file_progress(sizes: Sequence[int]) -> Iterator[Callable[[int, str, float], None]]:
    """A bar with the time left for all files, on stderr, when it is a terminal and the work takes longer than a moment.

    Args:
        sizes: of the files, in anything that time is proportional to.

    Yields:
        A function to call with the number of a file, its name and the part of it that is done.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=sum(sizes) or 1)

    def update(index: int, name: str, part: float) -> None:
        count = f"{index + 1}/{len(sizes)} " if len(sizes) > 1 else ""
        bar.update(task, completed=sum(sizes[:index]) + part * sizes[index], description=count + name)

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
