"""One job of a batch, in whichever process: claimed, done, and written down; what goes wrong is part of the record."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from n3net.errors import UserError
from n3net.jobs.claims import claim
from n3net.jobs.manifest import Item, Manifest
from n3net.jobs.operation import Operation
from n3net.jobs.records import BEFORE, BUSY, FAILED, Record, stamp, state
from n3net.jobs.work import Progress
from n3net.memory import is_lack_of_memory


@dataclass(frozen=True)
class Call:
    """What is the same for all jobs of a batch; it can be sent to another process.

    Args:
        operation: what is done.
        manifest: where it is written down, if anywhere.
        shared: whether other runs may be at the same files.
        wait: for those, instead of leaving a file to them.
        weights: SHA-256 of those that the batch was begun with, by name.
    """

    operation: Operation[Any]
    manifest: Manifest | None = None
    shared: bool = False
    wait: bool = False
    weights: tuple[tuple[str, str], ...] = ()

    def begin(self) -> None:
        """Load what all jobs need, and refuse weights that are not those of the process that planned the batch."""
        if self.weights:
            here = self.operation.weights()
            for name, digest in self.weights:
                if here.get(name) != digest:
                    raise UserError(f"{_host()}: its weights {name!r} are not those that the batch was begun with")
        self.operation.begin()

    def __call__(self, item: Item, progress: Progress) -> Record:
        """Do a job."""
        if not self.shared:
            return self._do(item, item.force, progress)
        output = self.operation.output(item.job)
        try:
            with claim(output, self.wait) as mine:
                if mine is None:
                    return self._blank(item, BUSY, "another run is at it")
                if stamp(output) != item.before:
                    record = self._found(item)
                    if record is not None or not mine.left_over or self.manifest is None:
                        return record or self._blank(item, BEFORE, "done meanwhile")
                return self._do(item, item.force or mine.left_over, progress)
        except OSError as error:
            return self._failed(item, error.strerror or str(error))

    def failed(self, item: Item, reason: str) -> Record:
        """The record of a job that ended its process."""
        output = self.operation.output(item.job)
        with claim(output if self.shared else None, wait=True):  # the one that its process left is removed
            inputs = tuple(state(path) for path in self.operation.inputs(item.job))
            record = self._failed(item, reason, inputs)
            if self.manifest is not None and output is not None:
                self.manifest.add(output, record)
        return record

    def _do(self, item: Item, force: bool, progress: Progress) -> Record:
        start = time.perf_counter()
        inputs: tuple[Any, ...] = ()
        output = self.operation.output(item.job)
        try:
            if self.manifest is not None:
                inputs = tuple(state(path) for path in self.operation.inputs(item.job))
            record = self.operation.do(item.job, force, progress)
            record = replace(record, inputs=inputs, made=stamp(output))
        except UserError as error:
            record = self._failed(item, str(error), inputs)
        except OSError as error:
            record = self._failed(item, error.strerror or str(error), inputs)
        except Exception as error:  # one file must not cost the others, whatever is wrong with it
            reason = f"out of memory; {self.operation.less_memory}" if is_lack_of_memory(error) else unexpected(error)
            record = self._failed(item, reason, inputs)
        record = replace(record, seconds=time.perf_counter() - start) if record.error else record
        if self.manifest is not None and output is not None:
            self.manifest.add(output, record)
        return record

    def _found(self, item: Item) -> Record | None:
        """What another worker wrote down about the output as it is now."""
        output = self.operation.output(item.job)
        if self.manifest is None or output is None:
            return None
        record = self.manifest.find(self.manifest.records(), output)
        return replace(record, state=BEFORE) if record is not None and record.made == stamp(output) else None

    def _blank(self, item: Item, state: str, note: str) -> Record:
        return Record(item.job.name, str(self.operation.output(item.job)), note=note, state=state)

    def _failed(self, item: Item, error: str, inputs: tuple[Any, ...] = ()) -> Record:
        blank = self._blank(item, FAILED, "")
        return replace(blank, error=error, inputs=inputs, settings=self.operation.digest)


def unexpected(error: Exception) -> str:
    """An exception that nobody thought of, in a line: which, where, and what to do."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    words = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}{place}: {words}; not expected, please report it with the file"


def _host() -> str:
    import platform

    return platform.node() or "this machine"
