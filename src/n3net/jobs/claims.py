"""Who works on a file: one process at a time, on this machine or another that shares the folder.

A claim is a locked file ``.NAME.claim`` beside the output. The system lets go of the lock when its process ends,
however that happens; a claim that is there and not locked was left by one that was killed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Claim:
    """What is known about a file that nobody else works on now.

    Args:
        left_over: whether a process died while it worked on it.
    """

    left_over: bool = False


@contextmanager
def claim(target: Path | None, wait: bool = False) -> Iterator[Claim | None]:
    """A claim on an output, until the end of the block; None if another process has it.

    Args:
        target: the file that will be written; what is not a file of this system is given without asking.
        wait: until the other process has done or has ended, instead of giving None.
    """
    if not isinstance(target, Path) or sys.platform == "win32":
        yield Claim()
        return
    path = target.with_name(f".{target.name}.claim")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _locked(path, wait)
    if handle is None:
        yield None
        return
    try:
        left_over = os.fstat(handle).st_size > 0  # who has the lock writes a line, and removes the file at the end
        os.pwrite(handle, f"{os.uname().nodename} {os.getpid()}\n".encode(), 0)
        yield Claim(left_over)
        path.unlink(missing_ok=True)
    except Exception:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _locked(path: Path, wait: bool) -> int | None:
    import fcntl

    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:  # a file system without locks: the claim is as good as its file
            return handle
        except BaseException:
            os.close(handle)
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(handle).st_ino:
                return handle
        os.close(handle)  # whoever had it removed it meanwhile
