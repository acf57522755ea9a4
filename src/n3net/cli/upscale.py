"""n3net upscale: small image files in, large ones out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from n3net.cli.batches import (
    Batching,
    ManifestOption,
    Ray,
    Resume,
    RetryFailed,
    ShardOption,
    SkipExisting,
    Workers,
)
from n3net.cli.pictures import Device, Force, Inputs, MaxMegapixels, Quality, TileSide, White, finite, run


def command(
    inputs: Inputs,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", help="File, directory or - for standard output. (default: NAME-upscaled beside it)"
        ),
    ] = None,
    factor: Annotated[
        float, typer.Option(min=1, max=4, callback=finite, help="Of height and width, also between whole numbers.")
    ] = 2.0,
    model: Annotated[str | None, typer.Option(help="Weights by name or file. (default: 'upscale')")] = None,
    force: Force = False,
    compare: Annotated[
        Path | None, typer.Option(help="Write a picture with bicubic upscaling and the result side by side.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="The large image: print PSNR, and show it in the picture of --compare."),
    ] = None,
    quality: Quality = 95,
    white: White = None,
    tile: TileSide = None,
    device: Device = "cpu",
    max_megapixels: MaxMegapixels = 400,
    workers: Workers = None,
    shard: ShardOption = None,
    ray: Ray = None,
    resume: Resume = False,
    retry_failed: RetryFailed = False,
    skip_existing: SkipExisting = False,
    manifest: ManifestOption = None,
) -> None:
    """Upscale PNG, JPEG, TIFF, WebP and BMP files; metadata, alpha and bit depth stay as they are.

    n3net upscale photo.jpg

    n3net upscale thumbnails/ -o large/ --factor 3

    n3net upscale in.png -o out.png --factor 2 --compare picture.png

    Exit code: 0 all done, 1 some files failed (the others are done), 2 wrong usage, 130 interrupted.
    """
    from n3net.jobs.upscaling import Upscale
    from n3net.jobs.work import Files

    files = Files(force, compare, reference, quality, white, max_megapixels)
    options = Batching(workers, shard, ray, resume, retry_failed, skip_existing, manifest)
    run(inputs, output, Upscale(model, factor, tile, device), files, options)
