"""n3net denoise: noisy image files in, clean ones out."""

from __future__ import annotations

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
    from n3net.images import Picture


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
    before = compare is not None or reference is not None
    raw = RawRunner(model, noise, bayer, auto_bright, before, tile, device, max_megapixels)
    pictures.run(lambda: _Runner(model, sigma, real, tile, device).denoise, raw.denoise)


class _Runner:
    """What is the same for all files."""

    def __init__(self, model: str | None, sigma: float | None, real: bool, tile: int | None, device: str) -> None:
        from n3net.denoising import resolve

        self._model = cache(lambda gray: resolve(model, gray))
        self.sigma, self.real, self.tile, self.device = sigma, real, tile, device
        check_device(device)
        if model is not None and not _is_for_raw(model):
            self._model(True)  # a wrong name is wrong for all files

    def denoise(self, picture: Picture, progress: Any) -> Result:
        """The result, and what was done."""
        from dataclasses import replace

        from n3net.denoising import denoise, is_gray, noise_levels

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
        return Result(replace(picture, pixels=out), lambda: picture, note)

    def _denoise_photograph(self, picture: Picture, model: Any, progress: Any) -> Result:
        from dataclasses import replace

        import numpy as np

        from n3net.real import check_model, denoise_photograph

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
        return Result(replace(picture, pixels=result.pixels), lambda: picture, f"σ {low:.1f} to {high:.1f} estimated")


def _is_for_raw(model: str) -> bool:
    from n3net import load
    from n3net.models.raw import RawDenoiser

    return isinstance(load(model), RawDenoiser)
