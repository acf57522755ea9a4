"""n3net denoise: noisy image files in, clean ones out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from n3net.cli.pictures import Device, Force, Inputs, MaxMegapixels, Quality, TileSide, White, finite, plan, run
from n3net.errors import UserError

if TYPE_CHECKING:
    from n3net.jobs.planning import Job


def command(
    inputs: Inputs,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", help="File, directory or - for standard output. (default: NAME-denoised beside it)"
        ),
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="Level of white noise, in gray levels of 0..255 for any type of file but raw ones. "
            "(default: estimated)",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Weights by name or file. (default: 'photo', 'gray', 'color' or 'raw', as the image is)"),
    ] = None,
    force: Force = False,
    compare: Annotated[
        Path | None, typer.Option(help="Write a picture with noisy and denoised image side by side.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="The clean image: print PSNR, and show it in the picture of --compare.")
    ] = None,
    quality: Quality = 95,
    white: White = None,
    tile: TileSide = None,
    device: Device = "cpu",
    max_megapixels: MaxMegapixels = 400,
    real: Annotated[
        bool,
        typer.Option(
            "--real", help="The noise is a camera's: it depends on brightness, and neighbouring pixels share it."
        ),
    ] = False,
    white_noise: Annotated[
        bool, typer.Option("--white-noise", help="The noise is white. (default: the image is looked at)")
    ] = False,
    strength: Annotated[
        float,
        typer.Option(
            min=0, max=1, callback=finite, help="How much of the correction is made; less where 1 looks too smooth."
        ),
    ] = 1.0,
    best: Annotated[
        bool,
        typer.Option(
            "--best",
            help="The mean of eight orientations, in eight times the time: about 0.1 dB better for white noise, hardly "
            "for a camera's. Not for raw files.",
        ),
    ] = False,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="A network at half resolution: 0.1 to 0.15 dB worse, in a quarter of its time. For white noise.",
        ),
    ] = False,
    noise: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Raw files: variance A y + B of values y, black 0, white 1. (default: by its profile, or estimated)",
            metavar="A B",
            show_default=False,
        ),
    ] = None,
    bayer: Annotated[
        bool, typer.Option("--bayer", help="Raw files: write the denoised mosaic as TIFF, not a developed picture.")
    ] = False,
    auto_bright: Annotated[
        bool, typer.Option("--auto-bright", help="Raw files: let LibRaw make the developed picture brighter.")
    ] = False,
    workers: Workers = None,
    shard: ShardOption = None,
    ray: Ray = None,
    resume: Resume = False,
    retry_failed: RetryFailed = False,
    skip_existing: SkipExisting = False,
    manifest: ManifestOption = None,
) -> None:
    """Remove noise from PNG, JPEG, TIFF, WebP and BMP files; metadata, alpha and bit depth stay as they are.

    Whether the noise is white or that of a camera is seen from each image, and said; --sigma, --white-noise and --real
    decide by hand.

    Raw files of cameras (DNG, CR2, NEF, ARW ...) are denoised before they are developed, and become TIFF, JPEG, PNG or
    DNG files.

    n3net denoise photo.jpg

    n3net denoise scans/ -o clean/ --sigma 25

    n3net denoise noisy.png -o out.png --compare picture.png --reference clean.png

    n3net denoise phone.jpg --strength 0.8

    n3net denoise night.dng -o night.jpg

    n3net denoise night.nef -o night.dng

    n3net denoise archive/ -o clean/ --workers 4 --resume

    Exit code: 0 all done, 1 some files failed (the others are done), 2 wrong usage, 130 interrupted.
    """
    from n3net.jobs.denoising import Denoise
    from n3net.jobs.work import Files
    from n3net.restoration.denoising import FAST

    if fast and (model is not None or real):
        given = "--model" if model is not None else "--real"
        raise UserError(f"--fast: is a network of its own, for white noise; leave out {given}")
    model = FAST if fast else model
    work = Denoise(model, sigma, real, white_noise, noise, bayer, auto_bright, strength, best, tile, device)
    files = Files(force, compare, reference, quality, white, max_megapixels)
    jobs = plan(inputs, output, work, files, raw=True)
    _refuse_unused(
        jobs,
        for_raw={"--noise": noise is not None, "--bayer": bayer, "--auto-bright": auto_bright},
        for_others={
            "--sigma": sigma is not None,
            "--real": real,
            "--white-noise": white_noise,
            "--best": best,
            "--fast": fast,
            "--white": white is not None and reference is None,
        },
    )
    options = Batching(workers, shard, ray, resume, retry_failed, skip_existing, manifest)
    run(inputs, output, work, files, options, jobs)


def _refuse_unused(jobs: Sequence[Job], for_raw: dict[str, bool], for_others: dict[str, bool]) -> None:
    """Refuse options that were given and that none of the files can use."""
    from n3net.raw import is_raw

    raw = [is_raw(job.source) for job in jobs]
    for options, usable, what in (
        (for_raw, any(raw), "for raw files of cameras only, and none of the inputs is one"),
        (for_others, not all(raw), "not for raw files of cameras, which all of the inputs are"),
    ):
        given = [name for name, is_given in options.items() if is_given]
        if given and not usable:
            raise UserError(f"{', '.join(given)}: {what}; leave it out")
