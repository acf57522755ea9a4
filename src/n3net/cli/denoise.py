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
)

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
        typer.Option(min=0, help="Noise level, in gray levels of 0..255 for any type of file. (default: estimated)"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Weights by name or file. (default: 'gray' or 'color', as the image is)")
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
) -> None:
    """Remove noise from PNG, JPEG, TIFF, WebP and BMP files; metadata, alpha and bit depth stay as they are.

    n3net denoise photo.jpg

    n3net denoise scans/ -o clean/ --sigma 25

    n3net denoise noisy.png -o out.png --compare picture.png --reference clean.png

    Exit code: 0 all done, 1 some files failed (the others are done), 2 wrong usage, 130 interrupted.
    """
    captions = ("noisy", "denoised", "clean")
    pictures = Pictures(
        inputs, output, "-denoised", captions, force, compare, reference, quality, white, max_megapixels
    )
    pictures.run(lambda: _Runner(model, sigma, tile, device).denoise)


class _Runner:
    """What is the same for all files."""

    def __init__(self, model: str | None, sigma: float | None, tile: int | None, device: str) -> None:
        from n3net.denoising import resolve

        self._model = cache(lambda gray: resolve(model, gray))
        self.sigma, self.tile, self.device = sigma, tile, device
        check_device(device)
        if model is not None:
            self._model(True)  # a wrong name is wrong for all files

    def denoise(self, picture: Picture, progress: Any) -> Result:
        """The result, and what was done."""
        from dataclasses import replace

        from n3net.denoising import denoise, is_gray, noise_levels

        pixels = picture.pixels
        model = self._model(pixels.ndim == 2 or is_gray(pixels))
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
