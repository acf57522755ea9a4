"""Many things to do, of which some may fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from n3net.errors import UserError


class Named(Protocol):
    """Something to do, by the name that messages give it."""

    @property
    def name(self) -> str: ...


J = TypeVar("J", bound=Named)


def out_of_memory(error: Exception) -> bool:
    """Also as PyTorch says it: of CPUs, of other devices, and of what C++ could not allocate."""
    reasons = ("can't allocate memory", "out of memory", "bad_alloc")
    return isinstance(error, MemoryError) or any(reason in str(error) for reason in reasons)


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
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            failures.append((job, f"out of memory; {less_memory}"))
    if failures:
        if len(jobs) > 1:
            report(f"{len(failures)} of {len(jobs)} {what} failed:")
        for job, reason in failures:
            report(f"{job.name}: {reason}")
    return 1 if failures else 0
