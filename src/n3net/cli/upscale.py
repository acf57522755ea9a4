"""n3net upscale: small image files in, large ones out."""

from __future__ import annotations

from dataclasses import replace
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

if TYPE_CHECKING:
    from n3net.io import Picture


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
) -> None:
    """Upscale PNG, JPEG, TIFF, WebP and BMP files; metadata, alpha and bit depth stay as they are.

    n3net upscale photo.jpg

    n3net upscale thumbnails/ -o large/ --factor 3

    n3net upscale in.png -o out.png --factor 2 --compare picture.png

    Exit code: 0 all done, 1 some files failed (the others are done), 2 wrong usage, 130 interrupted.
    """
    captions = ("bicubic", "upscaled", "original")
    pictures = Pictures(
        inputs, output, "-upscaled", captions, force, compare, reference, quality, white, max_megapixels, factor
    )
    jobs = pictures.plan()
    pictures.run(jobs, _Runner(model, factor, tile, device, max_megapixels).upscale)


class _Runner:
    """What is the same for all files."""

    def __init__(self, model: str | None, factor: float, tile: int | None, device: str, max_megapixels: float) -> None:
        from n3net.restoration.upscaling import resolve

        check_device(device)
        self.model, self.factor, self.tile, self.device = resolve(model), factor, tile, device
        self.max_pixels = int(max_megapixels * 1e6)

    def upscale(self, picture: Picture, progress: Any) -> Result:
        """The result, and bicubic upscaling to compare it with."""
        from n3net.imaging.resizing import scaled_size
        from n3net.io.reading import check_pixels
        from n3net.io.tiff import exif_of_size
        from n3net.restoration.upscaling import SMALLEST, upscale

        height, width = scaled_size(picture.pixels.shape[:2], self.factor)
        check_pixels(width, height, self.max_pixels, "the result would have")
        if self.factor < SMALLEST:
            double = scaled_size(picture.pixels.shape[:2], SMALLEST)
            check_pixels(double[1], double[0], self.max_pixels, "the double size, by way of which it is upscaled, has")
        out = upscale(
            picture.pixels,
            self.factor,
            self.model,
            peak=picture.peak,
            tile=self.tile,
            device=self.device,
            progress=lambda done, total: progress(done / total),
        )
        metadata = replace(picture.metadata, exif=exif_of_size(picture.metadata.exif, height, width))
        after = replace(picture, pixels=out, alpha=self._bicubic(picture.alpha), metadata=metadata)
        note = f"x{self.factor:g} to {width} x {height}"
        return Result(
            picture.pixels.shape[:2],
            lambda: after,
            lambda: replace(after, pixels=self._bicubic(picture.pixels)),
            note,
        )

    def _bicubic(self, pixels: Any) -> Any:
        """In the range of the pixels, if there are any."""
        from n3net.imaging.resizing import resize

        return None if pixels is None else resize(pixels, self.factor).clip(pixels.min(), pixels.max())
