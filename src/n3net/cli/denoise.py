"""n3net denoise: noisy image files in, clean ones out."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from n3net.errors import UserError

if TYPE_CHECKING:
    from n3net.images import Picture


def command(
    inputs: Annotated[
        list[str],
        typer.Argument(help="Image files, directories, patterns like 'shots/**/*.png', or - for standard input."),
    ],
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
    force: Annotated[bool, typer.Option("-f", "--force", help="Replace outputs that exist.")] = False,
    compare: Annotated[
        Path | None, typer.Option(help="Write a picture with noisy and denoised image side by side.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="The clean image: print PSNR, and show it in the picture of --compare.")
    ] = None,
    quality: Annotated[int, typer.Option(min=1, max=100, help="Of JPEG and WebP files.")] = 95,
    white: Annotated[
        float | None, typer.Option(help="Value of white in files with floats. (default: 1)", show_default=False)
    ] = None,
    tile: Annotated[
        int | None,
        typer.Option(min=1, help="Side of the tiles in pixels; smaller needs less memory. (default: fits into 1 GB)"),
    ] = None,
    device: Annotated[str, typer.Option(help="Where the network runs: cpu, cuda, mps.")] = "cpu",
    max_megapixels: Annotated[float, typer.Option(min=0, help="Refuse larger images.")] = 400,
) -> None:
    """Remove noise from PNG, JPEG, TIFF, WebP and BMP files; metadata, alpha and bit depth stay as they are.

    n3net denoise photo.jpg

    n3net denoise scans/ -o clean/ --sigma 25

    n3net denoise noisy.png -o out.png --compare picture.png --reference clean.png

    Exit code: 0 all done, 1 some files failed (the others are done), 2 wrong usage, 130 interrupted.
    """
    from n3net import files
    from n3net.images.picture import format_for

    jobs = files.plan(inputs, output, "-denoised")
    if (compare or reference) and len(jobs) > 1:
        raise UserError(f"--compare and --reference are for one image, got {len(jobs)}")
    if compare is not None:
        format_for(compare)
        files.refuse_existing(compare, force)
    runner = _Runner(model, sigma, white, tile, device, int(max_megapixels * 1e6))
    clean = runner.read(reference) if reference is not None else None
    from n3net.cli.progress import file_progress

    with file_progress([runner.size(job.source) for job in jobs]) as progress:

        def work(job: files.Job) -> None:
            index = jobs.index(job)
            progress(index, job.name, 0)
            files.refuse_existing(job.target, force)
            start = time.perf_counter()
            picture = runner.read(job.open())
            result, note = runner.denoise(picture, lambda part: progress(index, job.name, part))
            scores = runner.scores(picture, result, clean) if clean is not None else ["", ""]
            _write(job.target, result, force, quality)
            if compare is not None:
                _write_comparison(compare, force, [picture, result, clean], scores)
            height, width = picture.pixels.shape[:2]
            seconds = time.perf_counter() - start
            where = job.target or "standard output"
            typer.echo(
                f"{job.name} -> {where}  {width} x {height}, {note}{scores[1]}, {seconds:.1f} s", err=job.target is None
            )

        code = files.run(jobs, work, lambda line: typer.echo(f"n3net: {line}", err=True))
    if code:
        raise typer.Exit(code)


class _Runner:
    """What is the same for all files."""

    def __init__(
        self,
        model: str | None,
        sigma: float | None,
        white: float | None,
        tile: int | None,
        device: str,
        max_pixels: int,
    ) -> None:
        from n3net.denoising import resolve

        self._model = cache(lambda gray: resolve(model, gray))
        self.sigma, self.white, self.tile, self.device, self.max_pixels = sigma, white, tile, device, max_pixels
        _check_device(device)
        if model is not None:
            self._model(True)  # a wrong name is wrong for all files

    def size(self, source: Path | None) -> int:
        """Pixels of a file, for the time it takes; 1 where that is not known."""
        from n3net.images import image_size

        try:
            height, width = image_size(source) if source is not None else (1, 1)
        except UserError:
            return 1
        return height * width

    def read(self, source: Any) -> Picture:
        """A picture, with the value of white that was given for floats."""
        from n3net.images import read_image

        picture = read_image(source, self.max_pixels)
        if picture.pixels.dtype.kind == "f":
            picture.white = self.white
            largest = float(picture.pixels.max())
            if self.white is None and largest > 2:
                raise UserError(f"floats up to {largest:g}: which value is white? Say it with --white")
        return picture

    def denoise(self, picture: Picture, progress: Any) -> tuple[Picture, str]:
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
        return replace(picture, pixels=out), note

    def scores(self, noisy: Picture, result: Picture, clean: Picture) -> list[str]:
        """PSNR of both as text."""
        import numpy as np
        import torch

        from n3net.evaluation.metrics import psnr

        if clean.pixels.shape != noisy.pixels.shape:
            raise UserError(
                f"--reference has shape {clean.pixels.shape}, the image {noisy.pixels.shape}: expected the same picture"
            )
        a, b, truth = (torch.from_numpy(p.as_type(np.float32)) for p in (noisy, result, clean))
        return [f", PSNR {psnr(image, truth):.2f} dB" for image in (a, b)]


def _check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {device} cannot be used: {str(error).splitlines()[0]}") from None


def _write(target: Path | None, picture: Picture, force: bool, quality: int) -> None:
    from n3net.files import writing
    from n3net.images import write_image
    from n3net.images.picture import format_for

    with writing(target, force) as file:
        write_image(file, picture, None if target is None else format_for(target), quality)


def _write_comparison(target: Path, force: bool, pictures: list[Picture | None], scores: list[str]) -> None:
    from n3net.compare import Panel, for_display, side_by_side
    from n3net.files import writing
    from n3net.images.picture import format_for

    captions = [f"noisy{scores[0]}", f"denoised{scores[1]}", "clean"]
    sheet = side_by_side(
        [
            Panel(caption, for_display(picture))
            for caption, picture in zip(captions, pictures, strict=True)
            if picture is not None
        ]
    )
    with writing(target, force) as file:
        sheet.save(file, format_for(target))
