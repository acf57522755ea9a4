"""Which files are read, and where what is made of them goes."""

from __future__ import annotations

import glob
import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from n3net.errors import UserError
from n3net.io.picture import SUFFIXES, format_for
from n3net.io.remote import as_path, is_remote
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
        if self.source is None:
            return io.BytesIO(sys.stdin.buffer.read())
        return io.BytesIO(self.source.read_bytes()) if is_remote(self.source) else self.source


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
    into_directory = _into_directory(inputs, output, len(sources))
    if output is not None and into_directory and as_path(output).is_file():
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
            target = _readable(as_path(output).joinpath(*source.relative_to(root).parts))
        else:
            target = as_path(output)
        jobs.append(Job(source, target))
    if into_directory:
        above = [_real(a) for a in inputs if as_path(a).is_dir()]
        jobs = [job for job in jobs if job.source is None or not _made_before(job.source, _real(output), above)]
    _check(jobs)
    return jobs


def folder_of(inputs: Sequence[str], output: str | None, suffix: str, count: int) -> Path | None:
    """The folder that all outputs of :func:`plan`, so many, go to, if there is one for them alone."""
    if output is not None and _into_directory(inputs, output, count):
        return as_path(output)
    if output is None and len(inputs) == 1 and as_path(inputs[0]).is_dir():
        return _beside(as_path(inputs[0]), suffix)
    return None


def _into_directory(inputs: Sequence[str], output: str | None, count: int) -> bool:
    """Whether an output is a directory that files go to."""
    if output is None or output == STREAM:
        return False
    several = count > 1 or any(as_path(a).is_dir() for a in inputs)
    return several or output.endswith(("/", os.sep)) or as_path(output).is_dir()


def _beside(folder: Path, suffix: str) -> Path:
    root = folder if is_remote(folder) else _real(folder)
    return root.with_name(root.name + suffix)


def _readable(target: Path) -> Path:
    """With an ending that can be written."""
    return target.with_suffix(".tif") if is_raw(target) else target


def _expand(argument: str, suffix: str, kinds: Sequence[str]) -> Iterator[tuple[Path | None, Path, Path]]:
    """Of one argument: each file, the directory its place in the output is relative to, and its default output."""
    path = as_path(argument)
    if argument == STREAM:
        yield None, Path(), Path()
    elif path.is_dir():
        found = sorted(p for p in _walk(path) if p.suffix.lower() in kinds)
        if not found:
            raise UserError(f"{path}: no image files in it ({' '.join(kinds)})")
        for file in found:
            yield file, path, _beside(path, suffix).joinpath(*file.relative_to(path).parts)
    elif path.exists():
        yield path, path.parent, path.with_name(path.stem + suffix + path.suffix)
    elif glob.has_magic(argument):
        matches = sorted(_matches(argument))
        found = [p for p in matches if p.is_file() and p.suffix.lower() in kinds]
        if not found:
            raise UserError(f"{argument}: no image files match")
        for file in found:
            yield file, file.parent, file.with_name(file.stem + suffix + file.suffix)
    else:
        raise UserError(f"{argument}: no such file or directory")


def _matches(pattern: str) -> Iterator[Path]:
    """All that a pattern stands for."""
    if not is_remote(pattern):
        yield from (Path(name) for name in glob.glob(pattern, recursive=True))
        return
    store: Any = as_path(pattern)
    yield from (as_path(store.fs.unstrip_protocol(name)) for name in store.fs.glob(store.path))


def _walk(directory: Path) -> Iterator[Path]:
    if is_remote(directory):
        yield from (
            p for p in directory.rglob("*") if not any(x.startswith(".") for x in p.relative_to(directory).parts)
        )
        return
    for folder, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield from (Path(folder) / file for file in files if not file.startswith("."))


def _made_before(source: Path, top: Path, above: Sequence[Path]) -> bool:
    """Whether a file lies in an output directory that is part of the input: it was made by an earlier run."""
    return _real(source).is_relative_to(top) and any(top != a and top.is_relative_to(a) for a in above)


def _real(path: object) -> Path:
    """Where links end, to compare with others; nothing to open."""
    return Path(str(path)) if is_remote(path) else Path(os.path.realpath(str(path)))


def _check(jobs: Sequence[Job]) -> None:
    if not jobs:
        raise UserError("no input files")
    seen: dict[Path, Job] = {}
    for job in jobs:
        if job.target is None:
            continue
        if not (is_raw(job.source) and job.target.suffix.lower() == DNG):
            format_for(job.target)
        other = seen.setdefault(_real(job.target), job)
        if other is not job:
            raise UserError(f"{job.name} and {other.name} would both be written to {job.target}; run them one by one")
