"""``n3net train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    config: Annotated[str, typer.Argument(help="A .yaml file, or the name of a config that comes with n3net.")] = "",
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="e.g. optimizer.lr=5e-4 model.k=4")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Fit the whole schedule into this much time of training, e.g. 3h.")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", "--run", help="Folder of this run; by default runs/NAME of the config.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the whole config and stop.")] = False,
) -> None:
    """Train a network, or go on training it: the same command again continues from the last checkpoint.

    n3net train gray --budget 3h

    n3net train gaussian-25 model.k=4 --runs runs/k4

    n3net train my.yaml optimizer.lr=5e-4 --show

    Without a config it lists those that come with n3net. Data is looked for in $N3NET_DATA, or data.root=DIR, else in
    the current folder. The run's folder gets best.safetensors and weights.safetensors, for --model of other commands.
    Its libraries come with the package's extra 'train'.

    Exit code: 0 done, 2 wrong usage, 130 or 143 interrupted after a checkpoint.
    """
    from n3net.errors import UserError
    from n3net.training import config as configs

    if not config:
        raise UserError(f"train: which config? A .yaml file, or one of {', '.join(configs.names())}")
    given = [*(overrides or []), *([f"budget={budget}"] if budget else [])]
    settings = configs.load(config, given)
    if show:
        typer.echo(configs.dump(settings), nl=False)
        return
    from n3net.training.loop import train

    outcome = train(settings, runs or Path("runs") / Path(config).stem)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)
