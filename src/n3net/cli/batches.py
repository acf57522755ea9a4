"""What commands share that work through many files: where they run, what is left out, and what is said about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from n3net.checking import printable
from n3net.errors import UserError
from n3net.io.remote import is_remote

if TYPE_CHECKING:
    from n3net.jobs.batch import Place
    from n3net.jobs.manifest import Manifest, Sorted
    from n3net.jobs.operation import Operation
    from n3net.jobs.records import Record

SHOWN = 10  # files whose change is told one by one

Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes of this machine, or of all of --ray. (default: 1)", show_default=False),
]
ShardOption = Annotated[
    str | None, typer.Option("--shard", metavar="I/N", help="Only share I of N, from 1/N to N/N; always the same one.")
]
Ray = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="On a Ray cluster: its address, 'auto', or 'local' to start one here."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Leave out what is done already and has not changed, by the manifest.")
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="With --resume: try again what failed.")]
SkipExisting = Annotated[bool, typer.Option("--skip-existing", help="Leave out what has an output, whatever made it.")]
ManifestOption = Annotated[
    Path | None,
    typer.Option("--manifest", help="Where it is written down what is done. (default: in the directory of -o)"),
]


@dataclass(frozen=True)
class Batching:
    """The options above."""

    workers: int | None = None
    shard: str | None = None
    ray: str | None = None
    resume: bool = False
    retry_failed: bool = False
    skip_existing: bool = False
    manifest: Path | None = None

    @property
    def given(self) -> bool:
        """Whether it is more than a plain command."""
        return self != Batching()

    @property
    def here(self) -> bool:
        """Whether this process does it all, not others whose end costs a file only."""
        return self.ray is None and self.workers is None

    def place(self) -> Place:
        from n3net.jobs.batch import Here
        from n3net.jobs.processes import Processes

        if self.ray is not None:
            from n3net.jobs.ray import Ray as OnRay

            return OnRay(self.ray, self.workers)
        return Here() if self.workers is None else Processes(self.workers)

    def manifest_in(self, folder: Path | None) -> Manifest | None:
        """Where to write down what is done: not for plain commands, and where there is no place for it."""
        from n3net.jobs.manifest import NAME, Manifest

        if self.manifest is not None:
            return Manifest(self.manifest)
        if folder is not None and not is_remote(folder) and self.given and not (self.skip_existing and not self.resume):
            return Manifest(folder / NAME)
        if self.resume:
            why = (
                "object storage has no place for it" if is_remote(folder) else "the outputs have no folder of their own"
            )
            raise UserError(f"--resume: {why}; name a file of this machine with --manifest, or a folder with -o")
        return None


def run(
    jobs: Sequence[Any],
    operation: Operation[Any],
    options: Batching,
    folder: Path | None,
    *,
    force: bool = False,
    sizes: Sequence[int] = (),
) -> bool:
    """Do all jobs of a command, and say what was done with each.

    Args:
        jobs, operation: what to do.
        options: where, and what is left out.
        folder: that the outputs are in, if they have one of their own.
        force: whether outputs that exist are replaced.
        sizes: of the jobs, for the bar.

    Returns:
        Whether all are done.
    """
    from n3net.cli.progress import file_progress
    from n3net.jobs import batch
    from n3net.jobs.one import Call

    if options.retry_failed and not options.resume:
        raise UserError("--retry-failed is about what a manifest says; give --resume, too")
    manifest = options.manifest_in(folder)
    mine = _share(jobs, operation, options.shard, folder)
    sorted_out = _left(mine, operation, options, manifest, force)
    weights = tuple(operation.weights().items()) if options.ray is not None else ()
    if manifest is not None:
        manifest.begin(operation)
    call = Call(operation, manifest, shared=options.given, weights=weights)
    waiting = [replace(item, index=index) for index, item in enumerate(sorted_out.waiting)]
    failed = list(sorted_out.failed)
    if waiting:
        lengths = [sizes[item.index] for item in sorted_out.waiting] if sizes else [1] * len(waiting)
        with file_progress(lengths) as progress:
            for record in batch.run(call, waiting, options.place(), progress):
                if record.error:
                    failed.append(record)
                else:
                    typer.echo(printable(record), err=record.target == STDOUT)
    _sum_up(failed, len(mine), operation, len(sorted_out.failed))
    return not failed


STDOUT = "standard output"


def _share(jobs: Sequence[Any], operation: Operation[Any], shard: str | None, folder: Path | None) -> Sequence[Any]:
    from n3net.jobs.records import name_from
    from n3net.jobs.shards import Shard

    if shard is None:
        return jobs
    share = Shard.parse(shard)
    outputs = {id(job): operation.output(job) for job in jobs}
    names = {key: name_from(path, folder) if folder is not None else str(path) for key, path in outputs.items() if path}
    mine = [job for job in jobs if share.has(names.get(id(job), job.name))]
    typer.echo(f"share {share.number} of {share.count}: {len(mine)} of {len(jobs)} {operation.what}")
    return mine


def _left(
    jobs: Sequence[Any], operation: Operation[Any], options: Batching, manifest: Manifest | None, force: bool
) -> Sorted:
    """What is to be done, and what is to be said about the rest."""
    from n3net.jobs.manifest import Item, Sorted, sort_out
    from n3net.jobs.records import stamp

    if options.resume and manifest is not None:
        found = sort_out(jobs, operation, manifest, force=force, retry=options.retry_failed)
    else:
        found = Sorted([Item(i, job, force, stamp(operation.output(job))) for i, job in enumerate(jobs)])
    rerun = len(jobs) > 1 and not force and not options.resume
    if options.skip_existing or rerun:
        waiting = [item for item in found.waiting if item.before is None or item.job.name in found.changed]
        found.done += len(found.waiting) - len(waiting)
        found.waiting = waiting
    if found.done:
        again = "; --force does them again" if rerun and not options.skip_existing else ""
        typer.echo(f"{found.done} of {len(jobs)} {operation.what} are done already{again}")
    for name, reason in list(found.changed.items())[:SHOWN]:
        typer.echo(printable(f"{name}: again, {reason}"))
    if len(found.changed) > SHOWN:
        typer.echo(f"and {len(found.changed) - SHOWN} more again")
    return found


def _sum_up(failed: Sequence[Record], count: int, operation: Operation[Any], before: int) -> None:
    def complain(line: str) -> None:
        typer.echo(f"n3net: {printable(line)}", err=True)

    if failed and count > 1:
        complain(f"{len(failed)} of {count} {operation.what} failed:")
    for record in failed:
        complain(f"{record.source}: {record.error}")
    if before:
        complain(f"{before} of them in an earlier run; --retry-failed tries them again")
