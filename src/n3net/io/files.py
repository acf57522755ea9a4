"""Files that are written whole or not at all, and never over others unasked: the one place where that is done.

A file grows beside its place, as ``.NAME.part``, and gets its name when all of it is on the disk. The part is locked
while it grows: two programs cannot write one file, and what a program that was killed left behind is used up by the
next one that writes the same file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from n3net.errors import UserError
from n3net.io.remote import is_remote, uploading

LONGEST = 240  # bytes of a name that leave room for '.' and '.part'
ABOUT_THE_PLACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOENT, errno.EACCES}


@contextmanager
def writing(target: Path | None, force: bool, *, durable: bool = False) -> Iterator[BinaryIO]:
    """A file that appears under its name when all of it is written, and not at all otherwise.

    Args:
        target: of the file, whose folder is made if need be; None is standard output. A link stays a link: what it
            points to is replaced. A file that is replaced keeps its mode.
        force: whether a file that exists is replaced.
        durable: wait until the disk also has the name, for files that others depend on after a crash.
    """
    if target is None:
        buffer = io.BytesIO()
        yield buffer
        sys.stdout.buffer.write(buffer.getbuffer())
        sys.stdout.buffer.flush()
        return
    if is_remote(target):
        refuse_existing(target, force)
        with uploading(target, force) as upload:
            yield upload
        return
    with placing(target, force, durable=durable) as part, _Output(io.FileIO(part, "r+"), 1 << 16) as file:
        yield file


@contextmanager
def placing(target: Path, force: bool, *, durable: bool = False) -> Iterator[Path]:
    """As :func:`writing`, for libraries that want a name: that of an empty file, which is ``target`` afterwards."""
    refuse_existing(target, force)
    place = _place(target)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        before = place.stat() if place.exists() else None
        part, handle = _part_of(place)
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror or error})") from None
    try:
        if before is not None and hasattr(os, "fchmod"):  # what others may not read, they may not read meanwhile
            os.fchmod(handle, before.st_mode & 0o700 | 0o600)
        yield part
        if before is not None:
            _become_like(handle, before)
        os.fsync(handle)
        _rename(part, place, target, force)
        if durable:
            _sync_folder(place.parent)
    except OSError as error:
        if error.errno in ABOUT_THE_PLACE and error.filename in (None, str(part), str(place)):
            raise UserError(f"{target}: cannot be written ({error.strerror})") from None
        raise
    finally:
        with contextlib.suppress(OSError):
            if _same(part, handle):
                part.unlink()
        os.close(handle)  # and its lock


def opened(path: Path) -> BinaryIO:
    """A file to read. A pipe or a device is refused instead of waited for, whatever its name says that it is."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise UserError(f"{path}: expected a file, it is {'a folder' if stat.S_ISDIR(mode) else 'a pipe or a device'}")
    return os.fdopen(handle, "rb")


def refuse_existing(target: Path | None, force: bool) -> None:
    """Refuse what :func:`writing` would refuse, before there is anything to write."""
    if target is None:
        return
    try:
        mode = target.stat().st_mode
    except OSError:  # nothing is there, or nothing that can be seen: what opens it will say
        return
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise UserError(f"{target} is {what}, which cannot be replaced by a file; choose another name")
    if not force:
        raise UserError(f"{target} exists; use --force to replace it")


class _Output(io.BufferedWriter):
    """Writers in C would write past it, and tell neither that the disk is full nor anything else."""

    def fileno(self) -> int:
        raise io.UnsupportedOperation("written by its methods only")


def _place(target: Path) -> Path:
    """Where a chain of links ends."""
    if not target.is_symlink():
        return target
    place = Path(os.path.realpath(target))
    if place.is_symlink():
        raise UserError(f"{target}: a link that leads to itself")
    return place


def _part_of(place: Path) -> tuple[Path, int]:
    """A new file beside, locked, and its handle."""
    name = place.name
    if len(os.fsencode(name)) > LONGEST:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    part = place.with_name(f".{name}.part")
    for _ in range(100):
        try:
            handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        except FileExistsError:
            _remove_left_over(part, place)
            continue
        if _locked(handle) and _same(part, handle):
            return part, handle
        os.close(handle)  # another program took it for one that was left over
    raise UserError(f"{place}: another program is writing it")


def _remove_left_over(part: Path, place: Path) -> None:
    """Remove the part of a program that was killed; that of one that runs is locked."""
    if not stat.S_ISREG(part.lstat().st_mode):
        part.unlink()
        return
    try:
        handle = os.open(part, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return
    try:
        if not _locked(handle):
            raise UserError(f"{place}: another program is writing it")
        if _same(part, handle):
            part.unlink()
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Whether the lock is ours now; on systems and disks without locks, always."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _same(path: Path, handle: int) -> bool:
    """Whether a name still belongs to an open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _become_like(handle: int, before: os.stat_result) -> None:
    """Take the mode and, where that is allowed, the owner of the file that is replaced."""
    if hasattr(os, "fchown"):
        with contextlib.suppress(OSError):
            os.fchown(handle, before.st_uid, before.st_gid)
        os.fchmod(handle, stat.S_IMODE(before.st_mode))


def _rename(part: Path, place: Path, target: Path, force: bool) -> None:
    """Give a part its name; one that came to be in the meantime is replaced only by force."""
    refuse_existing(target, force)
    if not force:
        try:
            os.link(part, place)  # unlike a rename, it fails where something is
            return
        except FileExistsError:
            raise UserError(f"{target} exists; use --force to replace it") from None
        except OSError:  # a disk without hard links
            refuse_existing(target, force)
    os.replace(part, place)


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
