"""What commands share that turn image files into image files: options, and how they show what they do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from n3net.cli import batches
from n3net.cli.batches import Batching
from n3net.errors import UserError

if TYPE_CHECKING:
    from n3net.jobs.planning import Job
    from n3net.jobs.work import Files, Work

Number = TypeVar("Number", bound=float | None)

MEASURED = 1000  # files, at most, whose pixels are counted for the bar


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


def run(
    inputs: list[str],
    output: str | None,
    work: Work,
    files: Files,
    options: Batching,
    jobs: Sequence[Job] | None = None,
) -> None:
    """Do all files of a command, and say what was done with each.

    Args:
        inputs, output: see :func:`n3net.jobs.planning.plan`.
        work, files: what is done, and how files are read and written.
        options: where, and what is left out.
        jobs: what :func:`plan` gave, if that was called before.
    """
    from n3net.jobs.operation import Pictures
    from n3net.jobs.planning import folder_of

    jobs = plan(inputs, output, work, files) if jobs is None else jobs
    if options.given and any(job.source is None or job.target is None for job in jobs):
        raise UserError("standard input and output are for the plain command; name files or folders")
    apart = len(jobs) > 1
    files = replace(files, apart=apart and options.here)
    files.truth  # noqa: B018  (refused at once where it cannot be read)
    operation, folder = Pictures(work, files), folder_of(inputs, output, work.suffix, len(jobs))
    sizes = [_pixels(job.source, apart) for job in jobs] if len(jobs) <= MEASURED else []
    if not batches.run(jobs, operation, options, folder, force=files.force, sizes=sizes):
        raise typer.Exit(1)


def plan(inputs: list[str], output: str | None, work: Work, files: Files, raw: bool = False) -> list[Job]:
    """Which files to read and to write, raw files of cameras among them or not."""
    from n3net.io.files import refuse_existing
    from n3net.io.picture import format_for
    from n3net.jobs import planning

    jobs = planning.plan(inputs, output, work.suffix, raw)
    if files.needs_before and len(jobs) > 1:
        raise UserError(f"--compare and --reference are for one image, got {len(jobs)}")
    if files.compare is not None:
        format_for(files.compare)
        others = (jobs[0].source, jobs[0].target, files.reference)
        if realpath(files.compare) in [realpath(path) for path in others if path is not None]:
            raise UserError(f"--compare {files.compare}: also the input, the output or the reference; use another name")
        refuse_existing(files.compare, files.force)
    return jobs


def _pixels(source: Path | None, apart: bool) -> int:
    """Of a file, for the time it takes; 1 where that is not known."""
    from n3net.io import image_size
    from n3net.io.isolation import isolated
    from n3net.io.remote import is_remote

    if source is None or is_remote(source):
        return 1
    try:
        height, width = isolated(image_size, source) if apart else image_size(source)
    except (UserError, MemoryError):
        return 1
    return height * width
