"""Many things to do, of which some may fail."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from n3net.errors import UserError
from n3net.memory import is_lack_of_memory


class Named(Protocol):
    """Something to do, by the name that messages give it."""

    @property
    def name(self) -> str: ...


J = TypeVar("J", bound=Named)


def unexpected(error: Exception) -> str:
    """An exception that nobody thought of, in a line: which, where, and what to do."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    words = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}{place}: {words}; not expected, please report it with the file"


def run(
    jobs: Sequence[J],
    work: Callable[[J], None],
    report: Callable[[str], None],
    *,
    what: str = "files",
    less_memory: str = "try a smaller --tile",
) -> int:
    """Do all jobs, the others when one fails, and report the failures at the end.

    Args:
        jobs, work: what to do, and how.
        report: is given the lines about failures.
        what: the jobs are, in the plural.
        less_memory: advice for those who have not enough of it.

    Returns:
        The exit code, 0 or 1.
    """
    failures: list[tuple[J, str]] = []
    for job in jobs:
        try:
            work(job)
        except UserError as error:
            failures.append((job, str(error)))
        except OSError as error:
            failures.append((job, error.strerror or str(error)))
        except Exception as error:  # one file must not cost the others, whatever is wrong with it
            failures.append((job, f"out of memory; {less_memory}" if is_lack_of_memory(error) else unexpected(error)))
    if failures:
        if len(jobs) > 1:
            report(f"{len(failures)} of {len(jobs)} {what} failed:")
        for job, reason in failures:
            report(f"{job.name}: {reason}")
    return 1 if failures else 0
