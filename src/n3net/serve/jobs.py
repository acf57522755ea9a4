"""The queue: whole photographs, one after the other, each in a worker process."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Literal

from n3net.errors import UserError
from n3net.jobs.planning import plan
from n3net.jobs.work import Work
from n3net.serve import tasks
from n3net.serve.folder import new_id
from n3net.serve.limits import Limits, RefusedError
from n3net.serve.uploads import Upload
from n3net.serve.workers import Lane

State = Literal["waiting", "running", "done", "failed"]
LOOK = 0.2  # seconds between two looks at how far a job is


@dataclass
class QueuedJob:
    """A photograph to restore.

    Args:
        id: by which clients speak of it.
        upload, work: what is done with which file.
        folder: of its own; the result is in it.
        target: the result's file.
        name: of the result for people, as the command would have named it.
        settings: as the client gave them.
    """

    id: str
    upload: Upload
    work: Work
    folder: Path
    target: Path
    name: str
    settings: dict[str, Any]
    state: State = "waiting"
    part: float = 0.0
    started: float = 0.0
    error: str = ""
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def levels(self) -> Path:
        return self.folder / "levels"

    def left(self) -> float | None:
        """Seconds, as far as that can be said."""
        return (time.monotonic() - self.started) * (1 - self.part) / self.part if self.part > 0.02 else None

    def report(self) -> dict[str, Any]:
        known = {"id": self.id, "file": self.upload.id, "name": self.name, "state": self.state, **self.settings}
        if self.state == "running":
            return known | {"part": self.part, "left": self.left()}
        return known | ({"error": self.error} if self.state == "failed" else self.about)


class Queue:
    """Jobs in the order in which they were asked for."""

    def __init__(self, folder: Path, limits: Limits, lane: Lane, changed: Callable[[], None]) -> None:
        self.folder, self.limits, self.lane, self.changed = folder, limits, lane, changed
        self.jobs: dict[str, QueuedJob] = {}
        self._more = asyncio.Event()

    def get(self, name: Any) -> QueuedJob:
        job = self.jobs.get(name) if isinstance(name, str) else None
        if job is None:
            raise RefusedError(404, "this result is no longer there; restore the photograph again")
        return job

    def add(self, upload: Upload, work: Work, settings: dict[str, Any]) -> QueuedJob:
        """Restore a photograph when its turn comes; an earlier result of it is given up."""
        earlier = [job for job in self.jobs.values() if job.upload is upload]
        if not earlier and len(self.jobs) >= self.limits.files:
            raise RefusedError(409, f"{self.limits.files} photographs are in the queue already, which is the limit")
        target = plan([str(upload.source)], None, work.suffix, raw=True)[0].target
        assert target is not None
        for job in earlier:
            self.remove(job)
        identity = new_id()
        folder = self.folder / identity
        folder.mkdir()
        given = PurePath(upload.name)
        ending = given.suffix if target.suffix == upload.source.suffix else target.suffix
        name = given.stem + target.stem.removeprefix(upload.source.stem) + ending
        job = QueuedJob(identity, upload, work, folder, folder / target.name, name, settings)
        self.jobs[identity] = job
        self._more.set()
        self.changed()
        return job

    def remove(self, job: QueuedJob) -> None:
        """Cancel a job, or give up its result; nothing of it stays."""
        self.jobs.pop(job.id, None)
        if job.state == "running":
            self.lane.stop()
        shutil.rmtree(job.folder, ignore_errors=True)
        self.changed()

    def left(self) -> float | None:
        """Seconds until all is done, from the pace of the job that runs."""
        running = next((job for job in self.jobs.values() if job.state == "running"), None)
        if running is None or running.left() is None:
            return None
        whole = (time.monotonic() - running.started) / running.part / running.upload.megapixels  # seconds a megapixel
        waiting = sum(job.upload.megapixels for job in self.jobs.values() if job.state == "waiting")
        return (running.left() or 0) + whole * waiting

    async def work(self) -> None:
        """Do jobs as long as the server runs."""
        while True:
            job = next((job for job in self.jobs.values() if job.state == "waiting"), None)
            if job is None:
                self._more.clear()
                await self._more.wait()
                continue
            await self._do(job)

    async def _do(self, job: QueuedJob) -> None:
        job.state, job.started = "running", time.monotonic()
        self.changed()
        progress = job.folder / "progress"
        watching = asyncio.create_task(self._watch(job, progress))
        source, most = job.upload.source, self.limits.megapixels
        try:
            job.about = await self.lane.call(tasks.restore, source, job.target, job.work, job.levels, progress, most)
            job.state = "done"
        except UserError as error:
            job.state, job.error = "failed", str(error)
        except OSError as error:
            job.state, job.error = "failed", error.strerror or str(error)
        except Exception as error:  # the queue goes on
            job.state, job.error = "failed", f"{type(error).__name__}: {error}"
        finally:
            watching.cancel()
        if job.id not in self.jobs:  # cancelled, and perhaps written to since
            shutil.rmtree(job.folder, ignore_errors=True)
        self.changed()

    async def _watch(self, job: QueuedJob, progress: Path) -> None:
        while True:
            await asyncio.sleep(LOOK)
            part = tasks.read_progress(progress)
            if part != job.part:
                job.part = part
                self.changed()
