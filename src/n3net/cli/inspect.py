"""n3net inspect: what the N3 blocks of a model have learned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from n3net.evaluation.images import ImageSet


def command(
    model: Annotated[str, typer.Argument(help="Weights by name or file.")],
    image: Annotated[Path, typer.Argument(help="An image, or a directory of images to average over.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Picture to draw of the first image, or page to explore it (.html)."),
    ] = None,
    noise: Annotated[float | None, typer.Option(help="Add noise of this level to a clean image first.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise level, for a model that is told; default --noise.")] = None,
    factor: Annotated[
        float | None, typer.Option(min=1, help="Downscale the image first, for a model of super-resolution.")
    ] = None,
    pixel: Annotated[
        list[str] | None, typer.Option(help="X,Y of a query. Repeatable; by default some are found.")
    ] = None,
    queries: Annotated[int, typer.Option(min=1, help="How many queries to find.")] = 3,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first images of a directory.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    force: Annotated[bool, typer.Option("-f", "--force", help="Replace files that exist.")] = False,
) -> None:
    """Print how sharply each block chooses its neighbours, and draw whom it chooses.

    The figures are the mean over all patches of the largest weight of the j-th neighbour (the paper's supplement):
    1 is a hard choice, one over the number of candidates is none at all.

    n3net inspect authors-sigma25 house.png --noise 25 -o house-inspect.png

    n3net inspect upscale house.png --factor 2

    n3net inspect gray house.png --noise 25 -o house.html

    The last writes one HTML file that needs no server: move over the image and see whom each patch chooses, at other
    temperatures and by the other forms of the selection, too.
    """
    from n3net import load
    from n3net.cli.eval import progress_bar
    from n3net.cli.tables import table
    from n3net.errors import UserError
    from n3net.evaluation.gaussian import noise as gaussian
    from n3net.evaluation.images import ImageSet, image_set
    from n3net.evaluation.report import check_targets, write
    from n3net.inspection.choices import interesting_pixels, look, mean_largest
    from n3net.models import Denoiser, Upscaler

    check_targets((output, json), force)
    net = load(model)
    if not isinstance(net, (Denoiser, Upscaler)):
        raise UserError(f"{model}: only networks for images can be inspected, of denoising and super-resolution")
    channels = net.channels
    images = image_set(image, limit) if image.is_dir() else ImageSet(image.parent.name, (image,))
    level = noise if sigma is None else sigma
    if isinstance(net, Denoiser) and net.noise_map and level is None:
        raise UserError(f"{model} is told the noise level: give --sigma, or --noise to add some")
    if isinstance(net, Upscaler) and factor is None:
        raise UserError(f"{model} is for super-resolution: give --factor, by which the image is downscaled first")
    if factor is not None and not isinstance(net, Upscaler):
        raise UserError(f"--factor is for models of super-resolution, and {model} is none")
    pixels = [_pixel(text) for text in pixel or []]
    views = []
    with progress_bar() as bar:
        for index in bar.track(range(len(images.paths)), description=model):
            clean = images.read(index, channels) if factor is None else _upscaled(images, index, factor)
            noisy = clean if noise is None else clean + gaussian(clean.shape, noise, index)
            out, seen = look(net, noisy, level)
            views.append([view.without_weights() for view in seen])
            if index == 0 and output is not None and output.suffix.lower() == ".html":
                _write_page(output, net, noisy, level, images.paths[0].stem, force)
            elif index == 0 and output is not None:
                from n3net.inspection.picture import draw_inspection

                pixels = pixels or interesting_pixels(seen[0], out, queries)
                draw_inspection(output, noisy, out, seen, pixels, force)
    means = mean_largest(views)
    candidates = [view.grid.fewest_candidates() for view in views[0]]
    k = len(means[0])
    rows = [[f"block {b + 1}", *(f"{m:.3f}" for m in row), f"{1 / candidates[b]:.4f}"] for b, row in enumerate(means)]
    typer.echo(table(["mean of max w", *(f"j = {j + 1}" for j in range(k)), "uniform"], rows))
    if json:
        report = {"model": model, "noise": noise, "images": len(images.paths), "mean_largest_weight": means}
        write(json, report, force)


def _write_page(output: Path, net: Module, image: Tensor, sigma: float | None, title: str, force: bool) -> None:
    from n3net.inspection.exploring import explore, page
    from n3net.io.files import writing
    from n3net.models.preparing import prepare

    content = page(explore(prepare(net), image, sigma, title))
    with writing(output, force) as file:
        file.write(content)


def _upscaled(images: ImageSet, index: int, factor: float) -> Tensor:
    """What a network of super-resolution is given: (1, H, W)."""
    import torch

    from n3net.errors import UserError
    from n3net.imaging.degradation import degrade

    pixels = images.pixels(index, 3)
    try:
        return torch.from_numpy(degrade(pixels, factor).upscaled())[None]
    except ValueError as error:
        raise UserError(f"{images.paths[index]}: {error}; give a smaller --factor") from None


def _pixel(text: str) -> tuple[int, int]:
    from n3net.errors import UserError

    try:
        x, y = (int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--pixel: expected X,Y in pixels, got {text!r}") from None
    return x, y
