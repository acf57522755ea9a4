"""What was done with a file, in types that every process and every file format knows."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# States of a file.
DONE, FAILED = "done", "failed"
BEFORE = "before"  # another worker or run had done it when its turn came
BUSY = "busy"  # another run is at it

Stamp = tuple[int, int]  # bytes, and when it was written, in nanoseconds


@dataclass(frozen=True)
class State:
    """An input as it was: enough to see whether it is still the same."""

    bytes: int
    modified: int  # nanoseconds
    sha256: str


@dataclass(frozen=True)
class Record:
    """What was done with a file.

    Args:
        source, target: names, as people gave them.
        height, width: of what was read.
        note: what was done.
        seconds: that it took.
        settings, weights: SHA-256 of what the result depends on beside the input.
        inputs: as they were.
        made: the output, as it was when it was done.
        error: why it failed.
        state: one of the states above.
        more: further lines for people.
    """

    source: str
    target: str
    height: int = 0
    width: int = 0
    note: str = ""
    seconds: float = 0.0
    settings: str = ""
    weights: str = ""
    inputs: tuple[State, ...] = ()
    made: Stamp | None = None
    error: str = ""
    state: str = DONE
    more: str = ""

    def __str__(self) -> str:
        size = f"{self.width} x {self.height}, " if self.height else ""
        return f"{self.source} -> {self.target}  {size}{self.note}, {self.seconds:.1f} s{self.more}"

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Record:
        """From what JSON made of it; keys of other versions do not count."""
        known = {key: value for key, value in content.items() if key in cls.__dataclass_fields__}
        inputs = tuple(State(**state) for state in known.pop("inputs", ()))
        made = known.pop("made", None)
        return cls(**known, inputs=inputs, made=None if made is None else (made[0], made[1]))


def digest(settings: Mapping[str, Any]) -> str:
    """SHA-256 of settings, in whatever order they are given."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def stamp(path: Path | None) -> Stamp | None:
    """How a file looks from outside; None if it is not there."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    modified = getattr(found, "st_mtime_ns", None)  # of object storage only seconds are known
    return found.st_size, int(found.st_mtime * 1e9) if modified is None else modified


def state(path: Path) -> State:
    """A file as it is now."""
    size, modified = stamp(path) or (0, 0)
    return State(size, modified, _sha256(path))


def unchanged(path: Path, before: State) -> bool:
    """Whether a file is what it was; read only if it looks different and has the same size."""
    now = stamp(path)
    if now is None or now[0] != before.bytes:
        return False
    return now[1] == before.modified or _sha256(path) == before.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def name_from(path: Path, folder: Path) -> str:
    """A path as seen from a folder if it lies below it, so that both can be moved; in full otherwise."""
    full, top = os.path.abspath(path), os.path.abspath(folder)
    return Path(os.path.relpath(full, top) if os.path.commonpath([full, top]) == top else full).as_posix()
