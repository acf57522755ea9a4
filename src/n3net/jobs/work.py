"""One file in, one file out: the same function for a command, for worker processes and for a page.

A new kind of work is one new file with a :class:`Work`: settings, which can be sent to another process, and what is
done with a picture.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from n3net.errors import UserError
from n3net.jobs.records import Record

if TYPE_CHECKING:
    from n3net.io import Picture
    from n3net.jobs.planning import Job

Progress = Callable[[int, int], None]  # pixels done, pixels in all

NOT_IN_RESULTS = ("model", "tile", "device")


@dataclass(frozen=True)
class Result:
    """What was made of a picture.

    Args:
        size: height and width of what was read.
        picture: gives what is to be written.
        before: gives what it is compared with.
        note: what was done.
        write: writes the file instead, where it is no picture.
        weights: SHA-256 of those that were used.
    """

    size: tuple[int, int]
    picture: Callable[[], Picture]
    before: Callable[[], Picture]
    note: str
    write: Callable[[BinaryIO], None] | None = None
    weights: str = ""


@dataclass(frozen=True)
class Files:
    """How files are read and written.

    Args:
        force: whether files that exist are replaced.
        compare: a picture to write, of before, after and the reference side by side.
        reference: what the result should be.
        quality: of JPEG and WebP.
        white: value of white in files with floats.
        max_megapixels: larger images are refused.
        apart: whether files are decoded in a process of its own, so that one that crashes a decoder costs itself only.
    """

    force: bool = False
    compare: Path | None = None
    reference: Path | None = None
    quality: int = 95
    white: float | None = None
    max_megapixels: float = 400
    apart: bool = False

    @property
    def max_pixels(self) -> int:
        return int(self.max_megapixels * 1e6)

    @property
    def needs_before(self) -> bool:
        """Whether the picture before the work is of use after it."""
        return self.compare is not None or self.reference is not None

    def read(self, source: Any) -> Picture:
        """A picture, with the value of white that was given for floats."""
        from n3net.io import read_image
        from n3net.io.arrays import beyond
        from n3net.io.isolation import isolated

        picture = (isolated if self.apart else _here)(read_image, source, self.max_pixels)
        if picture.pixels.dtype.kind == "f":
            picture.white = self.white
            problem = beyond(picture.pixels, picture.peak)
            if problem and float(picture.pixels.max()) > picture.peak:
                raise UserError(f"{problem}: which value is white? Say it with --white")
            if problem:  # too dark: a value that stands for no data, most likely
                raise UserError(f"{problem}: replace what is no brightness first, or say with --white what is white")
        return picture

    @cached_property
    def truth(self) -> Picture | None:
        """The reference, read once."""
        if self.reference is None:
            return None
        try:
            return self.read(self.reference)
        except UserError as error:
            raise UserError(f"--reference {self.reference}: {error}") from None

    def write(self, target: Path | None, result: Result) -> None:
        """The result's file, whole or not at all; None is standard output."""
        from n3net.io import write_image
        from n3net.io.files import writing
        from n3net.io.picture import format_for

        with writing(target, self.force) as file:
            if result.write is not None:
                result.write(file)
            else:
                write_image(file, result.picture(), None if target is None else format_for(target), self.quality)


def _here(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


@dataclass(frozen=True)
class Work(ABC):
    """What is done with each file. Networks are loaded when they are first needed, once in a process.

    Attributes:
        captions: of what is compared: before, after, and the reference.
        suffix: added to the names of files that are written beside their inputs.
        factor: by which results are larger than inputs.
    """

    captions = ("before", "after", "reference")
    suffix = "-out"
    factor = 1.0

    def __getstate__(self) -> dict[str, Any]:
        """The settings; networks are loaded again in another process."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def settings(self) -> dict[str, Any]:
        """What results depend on, as JSON knows it, without the name of weights, which may come to mean others."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in NOT_IN_RESULTS}
        return {"work": type(self).__name__.lower(), **own}

    @property
    @abstractmethod
    def networks(self) -> tuple[str, ...]:
        """Weights that files may need, by name or path."""

    @abstractmethod
    def check(self) -> None:
        """Refuse what goes wrong with every file, such as weights or a device that are not there."""

    @abstractmethod
    def picture(self, picture: Picture, files: Files, progress: Progress) -> Result:
        """Do it to a picture."""

    def raw(self, job: Job, files: Files, progress: Progress) -> Result:
        """Do it to a raw file of a camera."""
        raise UserError("a raw file of a camera; only 'n3net denoise' takes them")


def do(job: Job, work: Work, files: Files, progress: Progress) -> Record:
    """Read a file, work on it, write what was made of it."""
    from n3net.io.files import refuse_existing
    from n3net.io.remote import local
    from n3net.raw import is_raw

    refuse_existing(job.target, files.force)
    start = time.perf_counter()
    truth = files.truth
    with ExitStack() as stack:
        if job.source is not None and is_raw(job.source):
            result = work.raw(replace(job, source=stack.enter_context(local(job.source))), files, progress)
        else:
            result = _picture(job, work, files, progress)
        scores = _scores(result, truth) if truth is not None else ["", ""]
        files.write(job.target, result)
        if files.compare is not None:
            captions = [c + score for c, score in zip(work.captions, [*scores, ""], strict=True)]
            _write_comparison(files, captions, [result.before(), result.picture(), truth])
    where = "standard output" if job.target is None else str(job.target)
    seconds = time.perf_counter() - start
    return Record(job.name, where, *result.size, result.note + scores[1], seconds, weights=result.weights)


def _picture(job: Job, work: Work, files: Files, progress: Progress) -> Result:
    from n3net.imaging.resizing import scaled_size
    from n3net.io.picture import format_for
    from n3net.io.writing import check_sides

    picture = files.read(job.open())
    format = picture.format if job.target is None else format_for(job.target)
    check_sides(format, *scaled_size(picture.pixels.shape[:2], work.factor))
    return work.picture(picture, files, progress)


def _scores(result: Result, truth: Picture) -> list[str]:
    """PSNR before and after, as text."""
    import numpy as np
    import torch

    from n3net.evaluation.metrics import psnr

    after = result.picture()
    if truth.pixels.shape != after.pixels.shape:
        raise UserError(
            f"--reference has shape {truth.pixels.shape}, the result {after.pixels.shape}: expected the same picture"
        )
    a, b, c = (torch.from_numpy(p.as_type(np.float32)) for p in (result.before(), after, truth))
    return [f", PSNR {psnr(image, c):.2f} dB" for image in (a, b)]


def _write_comparison(files: Files, captions: list[str], pictures: list[Picture | None]) -> None:
    from n3net.imaging.comparison import Panel, for_display, side_by_side
    from n3net.io.files import writing
    from n3net.io.picture import format_for
    from n3net.io.writing import check_sides

    assert files.compare is not None
    shown = [(c, p) for c, p in zip(captions, pictures, strict=True) if p is not None]
    sheet = side_by_side([Panel(caption, for_display(picture)) for caption, picture in shown])
    format = format_for(files.compare)
    check_sides(format, sheet.height, sheet.width)
    with writing(files.compare, files.force) as file:
        sheet.save(file, format)


def digest_of(network: Any) -> str:
    """SHA-256 of a network's weights, if it came from a file."""
    from n3net.models.interface import Model

    return str(network.record.get("digest", "")) if isinstance(network, Model) else ""
