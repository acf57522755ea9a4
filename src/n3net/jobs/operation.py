"""What is done with each job of a batch, wherever it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from n3net.errors import UserError
from n3net.jobs.planning import Job
from n3net.jobs.records import Record, digest
from n3net.jobs.work import Files, Progress, Work, do


class Named(Protocol):
    """Something to do, by the name that messages give it."""

    @property
    def name(self) -> str: ...


J = TypeVar("J", bound=Named)


class Operation(ABC, Generic[J]):
    """Settings, which can be sent to another process, and what is done with a job.

    Attributes:
        what: the jobs are, in the plural.
        less_memory: advice for those who have not enough of it.
    """

    what = "files"
    less_memory = "try a smaller --tile"

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """What results depend on beside inputs and weights, as JSON knows it."""

    @abstractmethod
    def weights(self) -> Mapping[str, str]:
        """The weights that may be used, by name, and the SHA-256 of each."""

    @abstractmethod
    def begin(self) -> None:
        """Refuse what goes wrong with every job, and load what all of them need."""

    @abstractmethod
    def inputs(self, job: J) -> Sequence[Path]:
        """The files that are read."""

    @abstractmethod
    def output(self, job: J) -> Path | None:
        """The file that is written last: when it is there, the job is done."""

    @abstractmethod
    def do(self, job: J, force: bool, progress: Progress) -> Record:
        """Do a job. With ``force``, outputs that exist are replaced."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the settings."""
        return digest(self.settings)


@dataclass(frozen=True)
class Pictures(Operation[Job]):
    """Image files to image files."""

    work: Work
    files: Files

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.work.settings, "quality": self.files.quality, "white": self.files.white}

    def weights(self) -> dict[str, str]:
        from n3net.weights import info, locate

        found = {}
        for name in self.work.networks:
            try:
                found[name] = str(info(locate(name))["digest"])
            except UserError:  # perhaps no file needs it; one that does will say so
                continue
        return found

    def begin(self) -> None:
        self.work.check()

    def inputs(self, job: Job) -> list[Path]:
        return [] if job.source is None else [job.source]

    def output(self, job: Job) -> Path | None:
        return job.target

    def do(self, job: Job, force: bool, progress: Progress) -> Record:
        files = self.files if self.files.force == force else replace(self.files, force=force)
        return replace(do(job, self.work, files, progress), settings=self.digest)
