"""n3net eval: measure models on images, one command a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help="Measure models.")


@app.callback()
def _group() -> None:
    """Measure models, with fixed seeds and stated protocols."""


@app.command()
def gaussian(
    model: Annotated[
        list[str], typer.Option(help="Weights by name or file, 'nlm', 'bm3d', 'noisy', or nn3d:WEIGHTS. Repeatable.")
    ],
    data: Annotated[list[Path], typer.Option(help="Directory of clean images. Repeatable.")],
    sigma: Annotated[list[float], typer.Option(help="Noise level in gray levels. Repeatable.")] = [25.0],  # noqa: B006
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write tables to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with zoomable pictures to this file.")] = None,
    pictures: Annotated[int, typer.Option(help="Images of each data set on that page.")] = 6,
    limit: Annotated[int | None, typer.Option(help="Only the first images of each data set.")] = None,
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 0,
) -> None:
    """Remove white Gaussian noise, and compare with the clean images.

    The noise is neither clipped nor rounded and the same for all models; outputs are clipped to the range of the image.

    n3net eval gaussian --model N3.safetensors --model nlm --data Set12 --sigma 25 --json out.json --html out.html
    """
    from n3net.evaluation import gaussian as protocol
    from n3net.evaluation.html import page
    from n3net.evaluation.images import image_set
    from n3net.evaluation.methods import method
    from n3net.evaluation.report import markdown as table
    from n3net.evaluation.report import markdown_images, write

    methods = [method(name) for name in model]
    sets = [image_set(directory, limit) for directory in data]
    for m in methods:
        for s in sigma:
            if m.trained_for and not m.trained_for[0] <= s <= m.trained_for[1]:
                typer.echo(f"note: {m.name} was not trained for σ = {s:g}, but for {_range(m.trained_for)}", err=True)
    rows: list[protocol.Row] = []
    seen: list[protocol.Picture] = []
    with progress_bar() as bar:
        task = bar.add_task("", total=sum(len(s.paths) for s in sets) * len(methods) * len(sigma))

        def step(what: str) -> None:
            bar.update(task, advance=1, description=what)

        for images in sets:
            keep = seen.append if html else None
            rows += protocol.evaluate(methods, images, sigma, seed=seed, progress=step, keep=keep, kept=pictures)
    report: dict[str, Any] = protocol.report(rows, methods, seed)
    typer.echo(table(report["results"]))
    if json:
        write(json, report)
    if markdown:
        how = "\n".join(f"- {key}: {text}" for key, text in protocol.PROTOCOL.items())
        write(markdown, f"{table(report['results'])}\n\n{markdown_images(report['images'])}\n\n{how}")
    if html:
        write(html, page(report, seen))


@app.command()
def correspondence(
    data: Annotated[list[Path], typer.Option(help="File of matches (.pairs), or directory of them. Repeatable.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="Weights by name or file, or LABEL=WEIGHTS. Repeatable. (default: 'match')"),
    ] = None,
    estimator: Annotated[
        list[str] | None, typer.Option(help="ransac, magsac, poselib. Repeatable. (default: all that are installed)")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write tables to this file.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first pairs of each file.")] = None,
) -> None:
    """Filter matches of image pairs with known poses, and estimate the poses from those that are kept.

    The same pairs are measured with all matches, ratio test, ratio test and mutual check, the weights 'cnnet' if they
    are there, and perfect labels. Weights given under the same label, as of several seeds, are averaged.

    n3net eval correspondence --model match --data castle-P30.pairs --json out.json

    n3net eval correspondence --model n3=a.safetensors --model n3=b.safetensors --model cn=c.safetensors --data DIR
    """
    from n3net.correspondence import estimators
    from n3net.correspondence.filtering import MODEL
    from n3net.evaluation import correspondence as protocol
    from n3net.evaluation.report import write
    from n3net.weights import available

    names = model or [MODEL]
    if protocol.CNNET in available() and protocol.CNNET not in names:
        names = [*names, protocol.CNNET]
    chosen = list(dict.fromkeys(estimator or estimators.available()))
    for name in chosen or ["ransac"]:
        estimators.check(name)
    networks = [protocol.network(name) for name in names]
    methods = [*networks, *protocol.BASELINES]
    sets = protocol.pair_sets(data, limit)
    rows: list[protocol.Row] = []
    with progress_bar() as bar:
        task = bar.add_task("", total=sum(s.count for s in sets) * len(methods))
        for pairs in sets:
            rows += protocol.evaluate(
                methods, pairs, chosen, lambda what: bar.update(task, advance=1, description=what)
            )
    report = protocol.report(rows, methods, networks[0].name)
    table = f"{protocol.markdown(report['results'])}\n\n{protocol.markdown_differences(report['differences'])}"
    typer.echo(table)
    if json:
        write(json, report)
    if markdown:
        how = "\n".join(f"- {key}: {text}" for key, text in protocol.PROTOCOL.items())
        write(markdown, f"{table}\n\n{how}")


def progress_bar() -> Progress:
    """On stderr, so that stdout is the result alone."""
    from rich.console import Console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _range(levels: tuple[float, float]) -> str:
    return f"{levels[0]:g}" if levels[0] == levels[1] else f"{levels[0]:g} to {levels[1]:g}"
