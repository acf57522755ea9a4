"""The temporary folder of one run, gone when the server is, also when that was killed: then at the next start."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PREFIX, LOCK = "n3net-serve-", "lock"


@contextmanager
def run_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder that only this user may read, after those of servers that are no more have been removed."""
    top = Path(tempfile.gettempdir()) if parent is None else parent
    remove_leftovers(top)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=top))
    lock = (folder / f"{LOCK}.new").open("wb")
    _lock(lock)
    Path(lock.name).rename(folder / LOCK)  # only now can another server find it, and it is taken
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def remove_leftovers(top: Path) -> list[Path]:
    """Remove the folders whose servers ended without doing so; a lock says which are still in use."""
    removed = []
    for folder in sorted(top.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or (hasattr(os, "getuid") and about.st_uid != os.getuid()):
                continue
            with (folder / LOCK).open("rb+") as lock:
                if _lock(lock):
                    shutil.rmtree(folder, ignore_errors=True)
                    removed.append(folder)
    return removed


def _lock(file: Any) -> bool:
    """Take the lock, which the system takes back when the process ends, however it does; False if somebody has it."""
    try:
        import fcntl
    except ImportError:  # Windows refuses to open or remove a file that another process holds open
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def new_id() -> str:
    return secrets.token_hex(16)
