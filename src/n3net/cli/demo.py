"""n3net demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    output: Annotated[Path, typer.Option("-o", "--output", help="Directory for the pictures.")] = Path("demo"),
) -> None:
    """Show what n3net does, in a picture.

    Draws how three ways of choosing neighbours (hard, stochastic, continuous) walk over the simplex of weights, as in
    Figure 1 of the paper: the colder, the closer the continuous selection comes to k nearest neighbours.
    """
    from n3net.errors import UserError

    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("the demo draws with matplotlib, which is not installed: pip install 'n3net[plots]'") from None
    from n3net.figures import draw_selection

    picture = output / "selection.png"
    draw_selection(picture)
    typer.echo(f"Selection as paths on the simplex: {picture}")
