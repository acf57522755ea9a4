"""n3net bench"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer


def _show(status: Any, figure: str, what: str) -> None:
    status.update(f"{figure}: {what}")


def command(
    output: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file, too.")] = None,
    repeat: Annotated[int, typer.Option(help="Rounds of each measurement, after one to warm up.", min=1)] = 7,
    only: Annotated[
        list[str] | None, typer.Option(help="Only these, such as forward or training_winograd. Repeatable.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads; by default as many as PyTorch takes.", min=1)] = None,
) -> None:
    """Measure speed and memory on this machine.

    Speed is a ratio of two things measured in turn in this run, for correspondences also seconds: the median of several
    rounds with the spread of their middle half, beside what the project has set itself to reach. Close other programs
    first: two busy programs on the same cores slow each other down many times over.
    """
    from dataclasses import asdict

    import torch
    from rich.console import Console
    from rich.table import Table

    from n3net.bench.figures import FIGURES
    from n3net.bench.measure import machine
    from n3net.errors import UserError

    names = {figure.__name__: figure for figure in FIGURES}
    unknown = set(only or ()) - set(names)
    if unknown:
        raise UserError(f"--only: there is no figure {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if threads:
        torch.set_num_threads(threads)
    console = Console()
    about = machine()
    console.print(", ".join(f"{key} {value}" for key, value in about.items()), highlight=False)
    figures = []
    with console.status("") as status:
        for name, figure in names.items():
            if not only or name in only:
                figures.append(figure(repeat, partial(_show, status, name)))
    table = Table("figure", "measured", "middle half", "to reach", "")
    for f in figures:
        digits = 1 if f.to_reach > 10 else 3 if f.to_reach < 0.1 else 2
        table.add_row(
            f.what,
            f"{f.value:.{digits}f}",
            f"{f.low:.{digits}f} - {f.high:.{digits}f}",
            f"≤ {f.to_reach:.{digits}f}",
            "yes" if f.reached else "no",
        )
    console.print(table)
    if output is not None:
        report = {
            "machine": about,
            **{f.key: f.value for f in figures},
            "figures": [asdict(f) | {"reached": f.reached} for f in figures],
        }
        temporary = output.with_name(output.name + ".part")
        temporary.write_text(json.dumps(report, indent=2) + "\n", encoding="utf8")
        temporary.replace(output)
        console.print(f"Written to {output}")
