"""Files that are written whole or not at all, and never over others unasked."""

from __future__ import annotations

import io
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from n3net.errors import UserError


@contextmanager
def writing(target: Path | None, force: bool) -> Iterator[BinaryIO]:
    """A file that appears under its name when all of it is written, and not at all otherwise."""
    if target is None:
        buffer = io.BytesIO()
        yield buffer
        sys.stdout.buffer.write(buffer.getbuffer())
        sys.stdout.buffer.flush()
        return
    refuse_existing(target, force)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        opened = part.open("xb")
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror or error})") from None
    try:
        with opened as file:
            yield file
        refuse_existing(target, force)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def refuse_existing(target: Path | None, force: bool) -> None:
    if target is not None and target.exists() and not force:
        raise UserError(f"{target} exists; use --force to replace it")
