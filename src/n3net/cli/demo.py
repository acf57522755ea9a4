"""n3net demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    output: Annotated[Path, typer.Option("-o", "--output", help="Directory for the pictures.")] = Path("demo"),
) -> None:
    """Show what n3net does, in two pictures.

    The first draws how three ways of choosing neighbours (hard, stochastic, continuous) walk over the simplex of
    weights, as in Figure 1 of the paper. The second shows a photograph, noisy, denoised and clean, with their PSNR.
    """
    from n3net.errors import UserError
    from n3net.evaluation.demo import denoise_photo

    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("the demo draws with matplotlib, which is not installed: pip install 'n3net[demo]'") from None
    from n3net.inspection.simplex import draw_selection

    simplex, photo = output / "selection.png", output / "denoised.png"
    draw_selection(simplex)
    typer.echo(f"How neighbours are chosen, as paths on the simplex of weights: {simplex}")
    denoise_photo(photo)
    typer.echo(f"A photograph, noisy, denoised and clean: {photo}")
