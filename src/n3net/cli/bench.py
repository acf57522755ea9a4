"""n3net bench"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from n3net.bench.harness import Figure, Result


def command(
    output: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file, too.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this figure, by its name in JSON, such as train_over_torch, or all that begin so. Repeatable."
        ),
    ] = None,
    slow: Annotated[
        bool,
        typer.Option("--slow", help="Also those of many minutes: photo_overhead, large_image_mib, batch_tiny, page."),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(help="Compare the backends on this GPU instead, such as cuda, and print a table to send us."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads; by default as many as PyTorch takes.", min=1)] = None,
    seconds: Annotated[
        float,
        typer.Option(help="After so long, a figure whose rounds still differ is reported as not settled.", min=0),
    ] = 120.0,
) -> None:
    """Measure speed and memory on this machine.

    Each figure is measured in a process of its own. Speed is a ratio of two things timed in turn, for correspondences
    also seconds: the median of the rounds, which go on until the middle half of them lies within 10 % of it, or until
    the time for a figure is over. Beside it stands what the project has set itself to reach; smaller is better.

    Close other programs first: two busy programs on the same cores slow each other down many times over.

    Exit code: 0, or 1 if a figure could not be measured.
    """
    import torch
    from rich.console import Console

    from n3net.bench.figures import FIGURES
    from n3net.bench.harness import FigureError, measure_apart
    from n3net.bench.measure import machine

    if device is not None:
        from n3net.bench.gpu import markdown, measure

        for line in markdown(measure(device)):
            typer.echo(line)
        return
    chosen = _choose(FIGURES, only, slow)
    progress = Console(stderr=True, highlight=False)
    about = machine()
    typer.echo(", ".join(f"{key} {value}" for key, value in about.items()))
    results: dict[str, Result | str] = {}
    for number, figure in enumerate(chosen, 1):
        head = f"{number}/{len(chosen)} {figure.key}"
        with progress.status(head) as status:

            def tell(so_far: Result, head: str = head, status: Any = status) -> None:
                status.update(f"{head}: {_said(so_far)}, {so_far.rounds} rounds")

            try:
                result: Result | str = measure_apart(figure, threads or torch.get_num_threads(), seconds, tell)
            except FigureError as error:
                result = str(error)
        progress.print(f"{head}: {result if isinstance(result, str) else _said(result)}", soft_wrap=True)
        results[figure.key] = result
        if output is not None:
            _write(output, about, results)  # what is known so far, in case that it is stopped
    typer.echo(_table(FIGURES if not only else chosen, results))
    if output is not None:
        typer.echo(f"Written to {output}")
    if any(isinstance(result, str) for result in results.values()):
        raise typer.Exit(1)


def _choose(figures: Sequence[Figure], only: list[str] | None, slow: bool) -> list[Figure]:
    from n3net.errors import UserError

    names = [figure.key for figure in figures]
    unknown = {name for name in only or () if not any(_meant(name, key) for key in names)}
    if unknown:
        raise UserError(f"--only: there is no figure {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return [
        figure
        for figure in figures
        if (any(_meant(name, figure.key) for name in only) if only else slow or not figure.slow)
    ]


def _meant(name: str, key: str) -> bool:
    """Whether a figure is meant by a name: its own, or the first words of it."""
    return key == name or key.startswith(f"{name}_")


def _table(figures: Sequence[Figure], results: dict[str, Result | str]) -> str:
    """All figures, also those that failed and those that nobody asked for."""
    from n3net.cli.tables import table

    rows = []
    for figure in figures:
        result = results.get(figure.key)
        measured, half, reached, threads = "–", "", "", ""
        if result is None:
            half = "takes many minutes: --slow"
        elif isinstance(result, str):
            half = "failed, see above"
        else:
            digits = _digits(result.to_reach)
            measured, threads, reached = _said(result), str(result.threads), "yes" if result.reached else "no"
            half = f"{result.low:.{digits}f} - {result.high:.{digits}f}" + ("" if result.settled else ", not settled")
        goal = f"{figure.to_reach:.{_digits(figure.to_reach)}f}"
        rows.append([figure.key, measured, half, goal, reached, threads, figure.what])
    return table(["figure", "measured", "middle half", "to reach", "reached", "threads", "what it is"], rows)


def _digits(number: float) -> int:
    return 1 if number > 10 else 3 if number < 0.1 else 2


def _said(result: Result) -> str:
    return f"{result.value:.{_digits(result.to_reach)}f}"


def _write(output: Path, about: dict[str, object], results: dict[str, Result | str]) -> None:
    from dataclasses import asdict

    from n3net.io.files import writing

    measured = {key: result for key, result in results.items() if not isinstance(result, str)}
    report = {
        "machine": about,
        **{key: result.value for key, result in measured.items()},
        "figures": [asdict(result) for result in measured.values()],
        "failed": {key: result for key, result in results.items() if isinstance(result, str)},
    }
    with writing(output, force=True) as file:
        file.write(f"{json.dumps(report, indent=2)}\n".encode())
