"""What was done before: a line of JSON for each file, and one for each set of settings.

Any number of processes may add lines at the same time. Whoever worked on a file adds its line while it still has its
claim (:mod:`n3net.jobs.claims`), so there is no moment at which a file is done and nobody knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from n3net.errors import UserError
from n3net.jobs.operation import Operation
from n3net.jobs.records import DONE, Record, name_from, stamp, unchanged

NAME = "n3net-manifest.jsonl"


@dataclass(frozen=True)
class Manifest:
    """A file of such lines; a line that cannot be read, of a process that was killed, does not count."""

    path: Path

    def add(self, output: Path, record: Record) -> None:
        """Add what was done."""
        self._append({"output": self._name(output), **asdict(record)})

    def begin(self, operation: Operation[Any]) -> None:
        """Add the settings that records name by their SHA-256, once."""
        from n3net.version import __version__

        if operation.digest not in self.settings():
            self._append({"settings": operation.digest, "are": dict(operation.settings), "n3net": __version__})

    def settings(self) -> dict[str, dict[str, Any]]:
        """All settings by their SHA-256."""
        return {line["settings"]: line["are"] for line in self._lines() if "are" in line}

    def records(self) -> dict[str, Record]:
        """The last record of each output, by its name as seen from the manifest's folder."""
        return {line["output"]: Record.of(line) for line in self._lines() if "output" in line}

    def find(self, records: Mapping[str, Record], output: Path) -> Record | None:
        """The record of an output."""
        return records.get(self._name(output))

    def _name(self, output: Path) -> str:
        return name_from(output, self.path.parent) if isinstance(output, Path) else str(output)

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            for line in file:
                with contextlib.suppress(ValueError):
                    content = json.loads(line)
                    if isinstance(content, dict):
                        yield content

    def _append(self, content: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b", buffering=0) as file, _lock(file):
            end = file.seek(0, os.SEEK_END)
            whole = not end or os.pread(file.fileno(), 1, end - 1) == b"\n" if hasattr(os, "pread") else True
            file.write((b"" if whole else b"\n") + json.dumps(content).encode() + b"\n")


@contextmanager
def _lock(file: BinaryIO) -> Iterator[None]:
    """Until it is closed; where there are no locks, the system's appending has to do."""
    if sys.platform != "win32":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
    yield


@dataclass(frozen=True)
class Item:
    """One job of a batch.

    Args:
        index: its number.
        job: what to do.
        force: whether outputs that exist may be replaced.
        before: the output as it was when the batch was planned.
    """

    index: int
    job: Any
    force: bool
    before: tuple[int, int] | None


@dataclass
class Sorted:
    """Jobs by what is known about them."""

    waiting: list[Item] = field(default_factory=list)
    done: int = 0
    failed: list[Record] = field(default_factory=list)  # before, and left alone
    changed: dict[str, str] = field(default_factory=dict)  # job -> what changed since it was done


def sort_out(
    jobs: Sequence[Any], operation: Operation[Any], manifest: Manifest, *, force: bool = False, retry: bool = False
) -> Sorted:
    """What is left to do of a batch that was begun before.

    Args:
        jobs, operation: what to do.
        manifest: of what was done.
        force: do again what was done with other settings, and replace what is not in the manifest.
        retry: do again what failed.

    Raises:
        UserError: there are outputs of other settings, and no ``force``.
    """
    records, known, weights = manifest.records(), manifest.settings(), operation.weights()
    found, others = Sorted(), list[tuple[str, str]]()
    for index, job in enumerate(jobs):
        output = operation.output(job)
        record = manifest.find(records, output) if output is not None else None
        if record is None:
            found.waiting.append(Item(index, job, force, stamp(output)))
            continue
        reason = _changed(record, job, operation, weights, known)
        if not reason and record.error and not retry:
            found.failed.append(record)
        elif not reason and not record.error:
            found.done += 1
        else:
            if reason.startswith(OTHER):
                others.append((job.name, reason))
            elif reason:
                found.changed[job.name] = reason
            found.waiting.append(Item(index, job, force or record.state == DONE, stamp(output)))
    if others and not force:
        raise UserError(
            f"{manifest.path}: {len(others)} of {len(jobs)} {operation.what} were made with {others[0][1]}; "
            "use another folder, or --force to make them again"
        )
    found.changed.update(others)
    return found


OTHER = "other "


def _changed(
    record: Record, job: Any, operation: Operation[Any], weights: Mapping[str, str], known: Mapping[str, Any]
) -> str:
    """What is not as it was when a job was done, or nothing."""
    if record.settings != operation.digest:
        return f"{OTHER}settings ({', '.join(_differences(known.get(record.settings, {}), operation.settings))})"
    if record.weights and record.weights not in weights.values():
        return f"{OTHER}weights"
    inputs = operation.inputs(job)
    if len(inputs) != len(record.inputs):
        return "its input is another"
    for path, before in zip(inputs, record.inputs, strict=True):
        if not unchanged(path, before):
            return f"{path} changed"
    if not record.error and stamp(operation.output(job)) is None:
        return "its output is gone"
    return ""


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[str]:
    as_json = json.loads(json.dumps(dict(now)))
    different = [key for key in as_json if before.get(key) != as_json[key]]
    return [f"{key} {json.dumps(before.get(key))}, now {json.dumps(as_json[key])}" for key in different]
