"""Files of object storage (s3://, gs://, az:// ...), by fsspec: named, read and written as those of this machine."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from n3net.errors import UserError


def is_remote(name: object) -> bool:
    """Whether a name or a path is of object storage."""
    return "://" in str(name)


def as_path(name: str) -> Path:
    """A path of this machine, or one of object storage, which can do the same but is no :class:`pathlib.Path`."""
    if not is_remote(name):
        return Path(name)
    try:
        from upath import UPath
    except ImportError:
        raise UserError(f"{name}: object storage needs an extra: pip install 'n3net[s3]'") from None
    try:
        path: Any = UPath(name)
        path.fs  # noqa: B018  (imports the library for this kind of storage)
    except (ImportError, ValueError) as error:
        raise UserError(f"{name}: {error}") from None
    return path


@contextmanager
def local(path: Path) -> Iterator[Path]:
    """A file of this machine with the same content, for libraries that read nothing else."""
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="n3net-") as folder:
        here = Path(folder) / path.name
        here.write_bytes(path.read_bytes())
        yield here


@contextmanager
def uploading(target: Any, force: bool) -> Iterator[BinaryIO]:
    """A file that is sent when all of it is there, and visible when all of it has arrived.

    Without ``force`` the storage itself refuses to replace one, also one that came meanwhile; storage that cannot is
    asked before.
    """
    buffer = io.BytesIO()
    yield buffer
    content = buffer.getvalue()
    try:
        if force:
            target.fs.pipe_file(target.path, content)
        else:
            target.fs.pipe_file(target.path, content, mode="create")
    except FileExistsError:
        raise UserError(f"{target} exists; use --force to replace it") from None
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror or error})") from None
