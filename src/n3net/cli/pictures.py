"""What commands share that turn image files into image files: options, and what is done with each file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar

import typer

from n3net.errors import UserError

if TYPE_CHECKING:
    from n3net.cli.jobs import Job
    from n3net.io import Picture

Number = TypeVar("Number", bound=float | None)


def finite(value: Number) -> Number:
    """The value of an option; limits alone let 'inf' pass, and 'nan' in some versions of typer."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"expected a finite number, got {value}")
    return value


def _positive(value: float | None) -> float | None:
    if value is not None and not value > 0:
        raise typer.BadParameter(f"expected a number above 0, got {value}")
    return finite(value)


Inputs = Annotated[
    list[str],
    typer.Argument(help="Image files, directories, patterns like 'shots/**/*.png', or - for standard input."),
]
Force = Annotated[bool, typer.Option("-f", "--force", help="Replace outputs that exist.")]
Quality = Annotated[int, typer.Option(min=1, max=100, help="Of JPEG and WebP files.")]
White = Annotated[
    float | None,
    typer.Option(callback=_positive, help="Value of white in files with floats. (default: 1)", show_default=False),
]
TileSide = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Longest side of the tiles in pixels; smaller needs less memory. (default: for at most about 800 MB)",
    ),
]
Device = Annotated[str, typer.Option(help="Where the network runs: cpu, cuda, mps.")]
MaxMegapixels = Annotated[float, typer.Option(min=0, callback=finite, help="Refuse larger images.")]


@dataclass(frozen=True)
class Result:
    """What was made of a picture.

    Args:
        size: height and width of what was read.
        picture: gives what is to be written.
        before: gives what it is compared with.
        note: what was done.
        write: writes the file instead, where it is no picture.
    """

    size: tuple[int, int]
    picture: Callable[[], Picture]
    before: Callable[[], Picture]
    note: str
    write: Callable[[BinaryIO], None] | None = None


Work = Callable[[Any, Callable[[float], None]], Result]  # a picture, and a function to call with the part that is done
RawWork = Callable[[Any, Callable[[float], None]], Result]  # a job whose source is a raw file, and such a function


@dataclass(frozen=True)
class Pictures:
    """A command on image files.

    Args:
        inputs, output, suffix: see :func:`n3net.cli.jobs.plan`.
        captions: of what is compared: before, after, and the reference.
        force, compare, reference, quality, white, max_megapixels: as given on the command line.
        factor: by which results are larger than the inputs.
    """

    inputs: list[str]
    output: str | None
    suffix: str
    captions: tuple[str, str, str]
    force: bool = False
    compare: Path | None = None
    reference: Path | None = None
    quality: int = 95
    white: float | None = None
    max_megapixels: float = 400
    factor: float = 1

    def plan(self, raw: bool = False) -> list[Job]:
        """Which files to read and to write, raw files of cameras among them or not."""
        from n3net.cli import jobs as files
        from n3net.io.files import refuse_existing
        from n3net.io.picture import format_for

        jobs = files.plan(self.inputs, self.output, self.suffix, raw)
        if (self.compare or self.reference) and len(jobs) > 1:
            raise UserError(f"--compare and --reference are for one image, got {len(jobs)}")
        if self.compare is not None:
            format_for(self.compare)
            others = (jobs[0].source, jobs[0].target, self.reference)
            if self.compare.resolve() in [path.resolve() for path in others if path is not None]:
                raise UserError(
                    f"--compare {self.compare}: also the input, the output or the reference; use another name"
                )
            refuse_existing(self.compare, self.force)
        return jobs

    def run(self, jobs: Sequence[Job], work: Work, raw: RawWork | None = None) -> None:
        """Do all files, raw files of cameras with ``raw``."""
        from n3net.cli import jobs as files
        from n3net.cli.progress import file_progress
        from n3net.imaging.resizing import scaled_size
        from n3net.io.files import refuse_existing
        from n3net.io.picture import format_for
        from n3net.io.writing import check_sides
        from n3net.raw import is_raw

        truth = self._read_reference()
        with file_progress([_pixels(job.source) for job in jobs]) as progress:

            def do(job: files.Job) -> None:
                index = jobs.index(job)
                progress(index, job.name, 0)
                refuse_existing(job.target, self.force)
                start = time.perf_counter()

                def advance(part: float) -> None:
                    progress(index, job.name, part)

                if raw is not None and is_raw(job.source):
                    result = raw(job, advance)
                else:
                    picture = self.read(job.open())
                    format = picture.format if job.target is None else format_for(job.target)
                    check_sides(format, *scaled_size(picture.pixels.shape[:2], self.factor))
                    result = work(picture, advance)
                scores = _scores(result, truth) if truth is not None else ["", ""]
                self._write(job.target, result)
                if self.compare is not None:
                    self._write_comparison(self.compare, [result.before(), result.picture(), truth], scores)
                height, width = result.size
                seconds = time.perf_counter() - start
                where = job.target or "standard output"
                typer.echo(
                    f"{job.name} -> {where}  {width} x {height}, {result.note}{scores[1]}, {seconds:.1f} s",
                    err=job.target is None,
                )

            code = files.run(jobs, do, lambda line: typer.echo(f"n3net: {line}", err=True))
        if code:
            raise typer.Exit(code)

    def read(self, source: Any) -> Picture:
        """A picture, with the value of white that was given for floats."""
        from n3net.io import read_image
        from n3net.io.arrays import beyond

        picture = read_image(source, int(self.max_megapixels * 1e6))
        if picture.pixels.dtype.kind == "f":
            picture.white = self.white
            problem = beyond(picture.pixels, picture.peak)
            if problem:
                raise UserError(f"{problem}: which value is white? Say it with --white")
        return picture

    def _read_reference(self) -> Picture | None:
        if self.reference is None:
            return None
        try:
            return self.read(self.reference)
        except UserError as error:
            raise UserError(f"--reference {self.reference}: {error}") from None

    def _write(self, target: Path | None, result: Result) -> None:
        from n3net.io import write_image
        from n3net.io.files import writing
        from n3net.io.picture import format_for

        with writing(target, self.force) as file:
            if result.write is not None:
                result.write(file)
            else:
                write_image(file, result.picture(), None if target is None else format_for(target), self.quality)

    def _write_comparison(self, target: Path, pictures: list[Picture | None], scores: list[str]) -> None:
        from n3net.imaging.comparison import Panel, for_display, side_by_side
        from n3net.io.files import writing
        from n3net.io.picture import format_for
        from n3net.io.writing import check_sides

        captions = [caption + score for caption, score in zip(self.captions, [*scores, ""], strict=True)]
        sheet = side_by_side(
            [
                Panel(caption, for_display(picture))
                for caption, picture in zip(captions, pictures, strict=True)
                if picture is not None
            ]
        )
        check_sides(format_for(target), sheet.height, sheet.width)
        with writing(target, self.force) as file:
            sheet.save(file, format_for(target))


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {device} cannot be used: {str(error).splitlines()[0]}") from None


def _pixels(source: Path | None) -> int:
    """Of a file, for the time it takes; 1 where that is not known."""
    from n3net.io import image_size

    try:
        height, width = image_size(source) if source is not None else (1, 1)
    except UserError:
        return 1
    return height * width


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
