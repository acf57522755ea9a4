"""Which files are read, and where what is made of them goes."""

from __future__ import annotations

import glob
import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from n3net.errors import UserError
from n3net.io.picture import SUFFIXES, format_for
from n3net.raw import SUFFIXES as RAW_SUFFIXES
from n3net.raw import is_raw

STREAM = "-"
DNG = ".dng"


@dataclass(frozen=True)
class Job:
    """One file to read and one to write; None is standard input or output."""

    source: Path | None
    target: Path | None

    @property
    def name(self) -> str:
        return "standard input" if self.source is None else str(self.source)

    def open(self) -> Path | BinaryIO:
        """What to read the image from."""
        return self.source if self.source is not None else io.BytesIO(sys.stdin.buffer.read())


def plan(inputs: Sequence[str], output: str | None, suffix: str, raw: bool = False) -> list[Job]:
    """The files that arguments of a command stand for.

    Args:
        inputs: files, directories (with all below them), patterns with ``*`` or ``**``, ``-`` for standard input.
        output: a file, a directory or ``-``. By default each output lies beside its input, with ``suffix`` added to its
            name; that of a directory is a directory of that name, with the same structure.
        suffix: of names, like ``"-denoised"``.
        raw: whether raw files of cameras are among the inputs; they become TIFF files by default.
    """
    kinds = (*SUFFIXES, *RAW_SUFFIXES) if raw else tuple(SUFFIXES)
    sources = [pair for argument in inputs for pair in _expand(argument, suffix, kinds)]
    if not sources:
        raise UserError("no input files")
    into_directory = (
        output is not None
        and output != STREAM
        and (
            len(sources) > 1
            or any(Path(a).is_dir() for a in inputs)
            or output.endswith(("/", os.sep))
            or Path(output).is_dir()
        )
    )
    if output is not None and into_directory and Path(output).is_file():
        raise UserError(f"{output} is a file; several inputs need a directory to go to")
    if output == STREAM and len(sources) > 1:
        raise UserError(f"standard output takes one image, got {len(sources)}")
    jobs = []
    for source, root, beside in sources:
        if output == STREAM or (output is None and source is None):
            target = None
        elif output is None:
            target = _readable(beside)
        elif into_directory:
            if source is None:
                raise UserError("standard input needs the name of a file to go to, or '-' for standard output")
            target = _readable(Path(output) / source.relative_to(root))
        else:
            target = Path(output)
        jobs.append(Job(source, target))
    if into_directory:
        top = Path(output or "").resolve()
        jobs = [job for job in jobs if job.source is None or not _made_before(job.source, top, inputs)]
    _check(jobs)
    return jobs


def _readable(target: Path) -> Path:
    """With an ending that can be written."""
    return target.with_suffix(".tif") if is_raw(target) else target


def _expand(argument: str, suffix: str, kinds: Sequence[str]) -> Iterator[tuple[Path | None, Path, Path]]:
    """Of one argument: each file, the directory its place in the output is relative to, and its default output."""
    path = Path(argument)
    if argument == STREAM:
        yield None, Path(), Path()
    elif path.is_dir():
        root = path.resolve()
        found = sorted(p for p in _walk(path) if p.suffix.lower() in kinds)
        if not found:
            raise UserError(f"{path}: no image files in it ({' '.join(kinds)})")
        for file in found:
            yield file, path, root.with_name(root.name + suffix) / file.relative_to(path)
    elif path.exists():
        yield path, path.parent, path.with_name(path.stem + suffix + path.suffix)
    elif glob.has_magic(argument):
        matches = sorted(Path(p) for p in glob.glob(argument, recursive=True))
        found = [p for p in matches if p.is_file() and p.suffix.lower() in kinds]
        if not found:
            raise UserError(f"{argument}: no image files match")
        for file in found:
            yield file, file.parent, file.with_name(file.stem + suffix + file.suffix)
    else:
        raise UserError(f"{argument}: no such file or directory")


def _walk(directory: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield from (Path(folder) / file for file in files if not file.startswith("."))


def _made_before(source: Path, top: Path, inputs: Sequence[str]) -> bool:
    """Whether a file lies in an output directory that is part of the input: it was made by an earlier run."""
    above = [Path(a).resolve() for a in inputs if Path(a).is_dir()]
    return source.resolve().is_relative_to(top) and any(top != a and top.is_relative_to(a) for a in above)


def _check(jobs: Sequence[Job]) -> None:
    if not jobs:
        raise UserError("no input files")
    seen: dict[Path, Job] = {}
    for job in jobs:
        if job.target is None:
            continue
        if not (is_raw(job.source) and job.target.suffix.lower() == DNG):
            format_for(job.target)
        other = seen.setdefault(job.target.resolve(), job)
        if other is not job:
            raise UserError(f"{job.name} and {other.name} would both be written to {job.target}; run them one by one")
