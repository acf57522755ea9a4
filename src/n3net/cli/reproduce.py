"""n3net reproduce: the paper's tables beside ours."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer


def command(
    table: Annotated[
        str, typer.Argument(help="table1 to table6, supplement (its ablation), supplement-sr, or claims.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Directory with Set12, BSD68 ..., or .pairs files for table6. By default $N3NET_DATA."),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Further weights to consider. Repeatable.")] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="Folder of weights to consider, of n3net and of what 'n3net weights import' knows."),
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Only these, also others than the paper's.")] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="table1, table2: all variants trained with one recipe and budget, 'short'. --weights: its runs."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first images of each data set.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
    force: Annotated[bool, typer.Option("-f", "--force", help="Replace files that exist.")] = False,
) -> None:
    """Print a table of the paper, with what your weights and data give beside it.

    n3net reproduce table3 --data DIR --weights DOWNLOADED

    n3net reproduce table1 --budget short --weights runs/short --data DIR

    n3net reproduce claims

    Weights take part when they are known by name ('n3net weights list') or given with --model or --weights, are of the
    row's architecture and were trained for its noise level or factor. Below the table it says where those of each
    figure come from. A dash means that there are none, or no data:
    nothing is filled in that was not measured.

    'claims' goes through what the paper claims, by figures that were measured and kept; with --data it measures again
    what it finds weights and data for. So does --budget, with the runs of --weights.
    """
    from n3net.cli.eval import progress_bar
    from n3net.evaluation.images import data_root
    from n3net.evaluation.paper import TABLES
    from n3net.evaluation.report import check_targets, write
    from n3net.evaluation.reproduce import find_table, reproduce, to_json, to_markdown
    from n3net.weights.folder import weights_of

    check_targets((json, markdown), force)
    if table == "table4":
        _darmstadt(json, markdown, force)
        return
    if table == "claims" or budget is not None:
        _kept(table, budget, data, weights, dataset or ["Set12"], limit, json, markdown, force)
        return
    root = data_root(data)
    if root is None:
        typer.echo("note: no data; give --data DIR or set N3NET_DATA", err=True)
    if table == "table6":
        _correspondences(root, model or [], limit, json, markdown, force)
        return
    wanted = find_table(table, TABLES)
    with TemporaryDirectory() as made, progress_bar() as bar:
        task = bar.add_task("", total=None)
        files = {} if weights is None else weights_of(weights, Path(made), bar.console.print)
        shown, measured = reproduce(
            wanted,
            root,
            model or [],
            dataset or [],
            files=files,
            limit=limit,
            progress=lambda what: bar.update(task, description=what),
        )
    text = to_markdown(shown, measured)
    typer.echo(text)
    if json:
        write(json, to_json(shown, measured), force)
    if markdown:
        write(markdown, text, force)


def _kept(
    table: str,
    budget: str | None,
    data: Path | None,
    weights: Path | None,
    datasets: list[str],
    limit: int | None,
    json: Path | None,
    markdown: Path | None,
    force: bool,
) -> None:
    """From figures of single images that are kept, and those that are measured now in their place."""
    from n3net.cli.eval import progress_bar
    from n3net.errors import UserError
    from n3net.evaluation import budget as budgets
    from n3net.evaluation import claims
    from n3net.evaluation.images import data_root
    from n3net.evaluation.report import write
    from n3net.evaluation.reproduce import find_directory
    from n3net.evaluation.series import stored

    figures = stored()
    with progress_bar() as bar:
        task = bar.add_task("", total=None)
        if weights is not None:
            root = data_root(data)
            places = [] if root is None else [find_directory(root, name) for name in datasets]
            found = [place for place in places if place is not None]
            if not found:
                raise UserError(f"{', '.join(datasets)}: no such data; --data DIR says where it is")
            folder = budget or claims.BUDGET
            new = budgets.measure(folder, weights, found, limit, lambda what: bar.update(task, description=what))
            figures = figures.with_new(new)
        if table == "claims" and data is not None:
            new = claims.measure(data, limit, lambda what: bar.update(task, description=what))
            figures = figures.with_new(new)
    if table == "claims":
        text = claims.report(figures)
    else:
        text = "\n\n".join(budgets.table(table, str(budget), name, figures) for name in datasets)
    typer.echo(text)
    if json:
        write(json, figures.as_json(), force)
    if markdown:
        write(markdown, text, force)


def _darmstadt(json: Path | None, markdown: Path | None, force: bool) -> None:
    """Table 4: only the benchmark's site can fill it."""
    from n3net.evaluation.dnd import table4
    from n3net.evaluation.report import write

    text, report = table4()
    typer.echo(text)
    if json:
        write(json, report, force)
    if markdown:
        write(markdown, text, force)


def _correspondences(
    root: Path | None, model: list[str], limit: int | None, json: Path | None, markdown: Path | None, force: bool
) -> None:
    """Table 6: its data is gone, so other scenes stand beside it."""
    from n3net.cli.eval import progress_bar
    from n3net.evaluation.report import write
    from n3net.evaluation.table6 import table6

    with progress_bar() as bar:
        task = bar.add_task("", total=None)
        text, report = table6(root, model, limit, lambda what: bar.update(task, description=what))
    typer.echo(text)
    if json:
        write(json, report, force)
    if markdown:
        write(markdown, text, force)
