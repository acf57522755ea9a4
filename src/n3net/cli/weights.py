"""n3net weights: what there is, where it comes from, and whether it is whole."""

from __future__ import annotations

import json as jsons
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from n3net.checking import printable

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help="Trained weights.")

Name = Annotated[str, typer.Argument(help="A name of 'n3net weights list', or a file.")]
Names = Annotated[list[str] | None, typer.Argument(help="Names or files; all if none is given.")]


@app.command("list")
def list_(json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """All weights that can be used by name, and those that can be fetched."""
    from n3net.errors import UserError
    from n3net.jobs.one import unexpected
    from n3net.weights import available, info
    from n3net.weights.fetch import SOURCES
    from n3net.weights.store import SHIPPED

    entries: list[dict[str, Any]] = []
    for name, path in available().items():
        try:
            record = info(path)
            entry = {
                "name": name,
                "model": record["model"]["name"],
                "sigma": _sigma(record),
                "parameters": record["parameters"],
                "from": "package" if path.parent == SHIPPED else str(path.parent),
                "licence": record["licence"],
            }
        except (UserError, OSError) as error:
            typer.echo(f"n3net: {printable(error)}", err=True)
            continue
        except Exception as error:  # one odd file must not hide the others
            typer.echo(f"n3net: {printable(path)}: {printable(unexpected(error))}", err=True)
            continue
        entries.append(entry)
    if json:
        typer.echo(_json(entries))
        return
    from n3net.cli.tables import table

    text = table(
        ["name", "model", "σ", "parameters", "from", "licence"],
        [[e["name"], e["model"], e["sigma"], f"{e['parameters']:,}", e["from"], e["licence"]] for e in entries],
    )
    typer.echo(text)
    missing = [name for name in SOURCES if name not in available()]
    if missing:
        typer.echo(f"\nthe authors' own weights, 'n3net weights fetch NAME' gets them: {', '.join(missing)}")


@app.command()
def info(name: Name) -> None:
    """What a file says of itself, as JSON."""
    from n3net.weights import info, locate

    path = locate(name)
    typer.echo(_json({"file": str(path), **info(path)}))


@app.command()
def verify(names: Names = None) -> None:
    """Check that files are whole, fit their model, and give finite numbers when they run."""
    from n3net.errors import UserError
    from n3net.jobs.one import unexpected
    from n3net.weights import available
    from n3net.weights.verify import verify

    failed = 0
    for name in names or list(available()):
        try:
            verify(name)
            typer.echo(f"ok    {name}")
        except Exception as error:  # of this file; the others are verified, too
            failed += 1
            words = str(error) if isinstance(error, UserError | OSError) else unexpected(error)
            typer.echo(f"FAIL  {printable(name)}: {printable(words)}", err=True)
    if failed:
        raise typer.Exit(1)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="Weights of another program: .t7, .pth, .pt, .mat or .caffemodel.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. (default: one among your own weights)")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Instead of a file: a name among your own weights.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise level of its training, if the file name lacks it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Turn a public file of another program into one of ours. Nothing in the file is executed.

    What it is, is found out from what it holds: N3Net, DnCNN, FFDNet, NLNet, UNLNet, RED30, VDSR, MemNet, MDSR and
    EDSR as their authors publish them, and some others' versions. 'n3net models' tells where they are found.
    """
    from n3net.errors import UserError
    from n3net.io.files import refuse_existing
    from n3net.weights import import_file, save, user_directory
    from n3net.weights.store import SUFFIX

    if output and name:
        raise UserError("give either --output or --name, not both")
    if name is not None and (name in ("", ".", "..") or name.startswith(".") or re.search(r"[/\\\x00]", name)):
        raise UserError(f"--name {name}: expected a plain name without folders; --output takes a file anywhere")
    target = output or user_directory() / f"{name or file.stem}{SUFFIX}"
    refuse_existing(target, force)
    model, metadata = import_file(file)
    if sigma is not None:
        metadata["training"]["sigma"] = sigma
    save(target, model, metadata)
    typer.echo(f"{metadata['training']['imported']} -> {target}\nlicence: {metadata['licence']}")


@app.command()
def fetch(
    names: Annotated[list[str] | None, typer.Argument(help="By default all of the authors' files.")] = None,
) -> None:
    """Get the authors' weights from their public repository, check and import them."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from n3net.weights.fetch import SOURCES, TERMS, fetch

    typer.echo(TERMS)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    for name in names or list(SOURCES):
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=None)
            path = fetch(name, lambda done, size, task=task, bar=bar: bar.update(task, completed=done, total=size))  # type: ignore[misc]
        typer.echo(f"{name} -> {path}")


def _json(value: Any) -> str:
    """As JSON; what would steer a terminal is written as JSON's own escapes."""
    text = jsons.dumps(value, indent=1, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else jsons.dumps(c)[1:-1] for c in text)


def _sigma(record: dict[str, Any]) -> str:
    from n3net.evaluation.methods import trained_for

    levels = trained_for(record)
    if levels is None:
        return "–"
    return f"{levels[0]:g}" if levels[0] == levels[1] else f"{levels[0]:g} – {levels[1]:g}"
