"""An operation that is done quickly: files are copied, and some of them are bad. Imported by worker processes, too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from n3net.errors import UserError
from n3net.io.files import writing
from n3net.jobs.operation import Operation
from n3net.jobs.planning import Job
from n3net.jobs.records import Record
from n3net.jobs.work import Progress


@dataclass(frozen=True)
class Copy(Operation[Job]):
    """What a file says is done before it is copied: ``refuse``, ``die``, ``die once``, ``sleep SECONDS``."""

    shout: bool = False
    weight: str = "w1"
    log: str = ""  # a file that gets a line for each copy that is begun

    @property
    def settings(self) -> dict[str, object]:
        return {"shout": self.shout}

    def weights(self) -> dict[str, str]:
        return {"w": self.weight}

    def begin(self) -> None:
        pass

    def inputs(self, job: Job) -> Sequence[Path]:
        assert job.source is not None
        return [job.source]

    def output(self, job: Job) -> Path | None:
        return job.target

    def do(self, job: Job, force: bool, progress: Progress) -> Record:
        assert job.source is not None
        text = job.source.read_text()
        if self.log:
            with open(self.log, "a") as file:
                file.write(f"{job.source.name}\n")
        first, _, rest = text.partition(" ")
        if first == "refuse":
            raise UserError("it refuses")
        if first == "sleep":
            time.sleep(float(rest))
        mark = job.source.with_suffix(".died")
        if text == "die" or (text == "die once" and not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with writing(job.target, force) as output:
            output.write((text.upper() if self.shout else text).encode())
        return Record(job.name, str(job.target), 1, 1, "copied", 0.0, self.digest, self.weight)
