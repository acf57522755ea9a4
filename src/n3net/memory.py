"""Memory: what the C library does with it when it is freed, and how its lack is told."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def reuse_freed_memory() -> bool:
    """Keep freed memory for the next tensor instead of giving it back to the system; False where that has no meaning.

    By default each tensor of more than 32 MB is mapped, filled with zeros by the system and unmapped again, a good part
    of the time of a network on a CPU. It concerns the whole process, so it is for programs to call, not for libraries;
    the command line does.
    """
    libc, largest = _libc(), 2**31 - 1
    if not hasattr(libc, "mallopt"):
        return False
    return all(libc.mallopt(what, largest) == 1 for what in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))


def return_freed_memory() -> None:
    """Give back what is free now, before something of another size is computed that may not fit the holes."""
    libc = _libc()
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def is_lack_of_memory(error: BaseException) -> bool:
    """Also as PyTorch says it: of CPUs, of other devices, of what C++ could not allocate, and of oneDNN."""
    reasons = ("can't allocate memory", "out of memory", "bad_alloc", "could not create a primitive")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(reason in str(error) for reason in reasons)
    )


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None) if sys.platform.startswith("linux") else None  # glibc has both functions, musl neither
