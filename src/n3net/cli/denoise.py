"""n3net denoise: noisy image files in, clean ones out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from n3net.cli.pictures import (
    Device,
    Force,
    Inputs,
    MaxMegapixels,
    Pictures,
    Quality,
    Result,
    TileSide,
    White,
    check_device,
    finite,
)
from n3net.cli.raw import RawRunner
from n3net.errors import UserError

if TYPE_CHECKING:
    from n3net.cli.jobs import Job
    from n3net.io import Picture
    from n3net.models import Denoiser
    from n3net.models.raw import RawDenoiser


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
            help="Noise level, in gray levels of 0..255 for any type of file but raw ones. (default: estimated)",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Weights by name or file. (default: 'gray', 'color' or 'raw', as the image is)")
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
            "--real", help="Photographs: noise that depends on intensity and is not white, as cameras make it."
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
) -> None:
    """Remove noise from PNG, JPEG, TIFF, WebP and BMP files; metadata, alpha and bit depth stay as they are.

    Raw files of cameras (DNG, CR2, NEF, ARW ...) are denoised before they are developed, and become TIFF, JPEG, PNG or
    DNG files.

    n3net denoise photo.jpg

    n3net denoise scans/ -o clean/ --sigma 25

    n3net denoise noisy.png -o out.png --compare picture.png --reference clean.png

    n3net denoise --real phone.jpg

    n3net denoise night.dng -o night.jpg

    n3net denoise night.nef -o night.dng

    Exit code: 0 all done, 1 some files failed (the others are done), 2 wrong usage, 130 interrupted.
    """
    captions = ("noisy", "denoised", "clean")
    pictures = Pictures(
        inputs, output, "-denoised", captions, force, compare, reference, quality, white, max_megapixels
    )
    if real and sigma is not None:
        raise UserError("--real estimates the noise of each pixel; leave out --sigma")
    jobs = pictures.plan(raw=True)
    _refuse_unused(
        jobs,
        for_raw={"--noise": noise is not None, "--bayer": bayer, "--auto-bright": auto_bright},
        for_others={"--sigma": sigma is not None, "--real": real, "--white": white is not None and reference is None},
    )
    before = compare is not None or reference is not None
    check_device(device)
    for_others, for_raw = _load(model)
    raw = RawRunner(for_raw, noise, bayer, auto_bright, before, tile, device, max_megapixels)
    pictures.run(jobs, _Runner(for_others, sigma, real, tile, device).denoise, raw.denoise)


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


def _load(model: str | None) -> tuple[str | Denoiser | None, str | RawDenoiser | None]:
    """The network for pictures and the one for raw files; the name stands for one that is of the other kind."""
    if model is None:
        return None, None
    from n3net.models import Denoiser
    from n3net.models.raw import RawDenoiser
    from n3net.weights import load

    net: Any = load(model)
    if not isinstance(net, Denoiser | RawDenoiser):
        raise UserError(f"{model}: a {net.recipe.name}, which is not for denoising")
    return net if isinstance(net, Denoiser) else model, net if isinstance(net, RawDenoiser) else model


class _Runner:
    """What is the same for all files."""

    def __init__(
        self, model: str | Denoiser | None, sigma: float | None, real: bool, tile: int | None, device: str
    ) -> None:
        from n3net.restoration.denoising import resolve
        from n3net.restoration.photographs import resolve_photo

        self._model = cache(lambda gray: (resolve_photo if real else resolve)(model, gray))
        self.sigma, self.real, self.tile, self.device = sigma, real, tile, device

    def denoise(self, picture: Picture, progress: Any) -> Result:
        """The result, and what was done."""
        from dataclasses import replace

        from n3net.restoration.denoising import denoise, is_gray, noise_levels

        pixels = picture.pixels
        model = self._model(pixels.ndim == 2 or is_gray(pixels))
        if self.real:
            return self._denoise_photograph(picture, model, progress)
        levels: float | tuple[float, ...] | None = self.sigma
        note = f"σ {self.sigma:g}" if self.sigma is not None else "σ as trained"
        if levels is None and model.noise_map:
            levels = estimated = noise_levels(pixels, picture.peak)
            note = f"σ {' '.join(f'{level:.1f}' for level in estimated)} estimated"
        elif levels is not None and not model.noise_map:
            note += " ignored, the model knows one level only"
        out = denoise(
            pixels,
            levels,
            model,
            peak=picture.peak,
            tile=self.tile,
            device=self.device,
            progress=lambda done, total: progress(done / total),
        )
        return Result(pixels.shape[:2], lambda: replace(picture, pixels=out), lambda: picture, note)

    def _denoise_photograph(self, picture: Picture, model: Any, progress: Any) -> Result:
        from dataclasses import replace

        import numpy as np

        from n3net.noise.curve import TRUSTED
        from n3net.restoration.photographs import check_model, denoise_photograph

        check_model(model)
        result = denoise_photograph(
            picture.pixels,
            model,
            peak=picture.peak,
            tile=self.tile,
            device=self.device,
            progress=lambda done, total: progress(done / total),
        )
        low, high = np.quantile(result.noise, [0.02, 0.98])
        doubt = "" if result.confidence >= TRUSTED else ", little to go by: check it, or use --sigma without --real"
        note = f"σ {low:.1f} to {high:.1f} estimated (confidence {result.confidence:.2f}{doubt})"
        after = replace(picture, pixels=result.pixels)
        return Result(after.pixels.shape[:2], lambda: after, lambda: picture, note)
