"""n3net models: the registry."""

from __future__ import annotations

import json as jsons
from dataclasses import asdict
from typing import Annotated

import typer


def command(
    name: Annotated[str | None, typer.Argument(help="Show the config of this model.")] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List all networks, and methods that learn nothing: size, the paper's row, and where their weights come from.

    Weights come with n3net (shipped), are there already (yours), or are got by 'n3net weights fetch' or, from a file of
    their authors' repository, by 'n3net weights import'. All others have to be trained: 'n3net train' lists configs.
    """
    from n3net.cli.tables import table
    from n3net.errors import UserError
    from n3net.methods.registry import METHODS
    from n3net.models import MODELS, describe
    from n3net.weights.sources import weights_of_models

    if name in METHODS:
        raise UserError(f"{name} learns nothing and has no config: {METHODS[name].summary}")
    weights = weights_of_models()
    entries = [describe(each) for each in ([name] if name else MODELS)]
    if name or json:
        shown = [{**entry, "weights": asdict(weights[entry["name"]])} for entry in entries]
        typer.echo(jsons.dumps(shown[0] if name else shown, indent=1))
        return
    text = table(
        ["name", "task", "parameters", "paper", "what it is", "weights"],
        [
            *(
                [e["name"], e["task"], f"{e['parameters']:,}", e["paper"], e["summary"], str(weights[e["name"]])]
                for e in entries
            ),
            *([name, entry.task, "–", entry.paper, entry.summary, "needs none"] for name, entry in METHODS.items()),
        ],
    )
    typer.echo(text)
