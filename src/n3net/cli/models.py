"""n3net models: the registry."""

from __future__ import annotations

import json as jsons
from typing import Annotated

import typer


def command(
    name: Annotated[str | None, typer.Argument(help="Show the config of this model.")] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List all networks with their size, methods that learn nothing, and the paper's row that they stand for."""
    from n3net.cli.tables import table
    from n3net.errors import UserError
    from n3net.methods.registry import METHODS
    from n3net.models import MODELS, describe

    if name in METHODS:
        raise UserError(f"{name} learns nothing and has no config: {METHODS[name].summary}")

    if name or json:
        entries = [describe(name)] if name else [describe(each) for each in MODELS]
        typer.echo(jsons.dumps(entries[0] if name else entries, indent=1))
        return
    entries = [describe(each) for each in MODELS]
    text = table(
        ["name", "task", "parameters", "paper", "what it is"],
        [
            *([e["name"], e["task"], f"{e['parameters']:,}", e["paper"], e["summary"]] for e in entries),
            *([name, entry.task, "–", entry.paper, entry.summary] for name, entry in METHODS.items()),
        ],
    )
    typer.echo(text)
