"""Small pictures in, large ones out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from n3net.jobs.work import Files, Progress, Result, Work, digest_of

if TYPE_CHECKING:
    from n3net.io import Picture


@dataclass(frozen=True)
class Upscale(Work):
    """Makes pictures larger.

    Args:
        model: weights by name or file, by default 'upscale'.
        factor: of height and width.
        tile, device: see :func:`n3net.upscale`.
    """

    model: str | None = None
    factor: float = 2.0
    tile: int | None = None
    device: str = "cpu"

    captions = ("bicubic", "upscaled", "original")
    suffix = "-upscaled"

    @property
    def networks(self) -> tuple[str, ...]:
        from n3net.restoration.upscaling import DEFAULT

        return (self.model or DEFAULT,)

    def check(self) -> None:
        from n3net.models.preparing import check_device

        check_device(self.device)
        self._network  # noqa: B018

    def picture(self, picture: Picture, files: Files, progress: Progress) -> Result:
        """The result, and bicubic upscaling to compare it with."""
        from n3net.imaging.resizing import scaled_size
        from n3net.io.reading import check_pixels
        from n3net.io.tiff import exif_of_size
        from n3net.restoration.upscaling import SMALLEST, upscale

        size = picture.pixels.shape[:2]
        height, width = scaled_size(size, self.factor)
        check_pixels(width, height, files.max_pixels, "the result would have")
        if self.factor < SMALLEST:
            double = scaled_size(size, SMALLEST)
            check_pixels(double[1], double[0], files.max_pixels, "the double size, by way of which it is upscaled, has")
        out = upscale(
            picture.pixels,
            self.factor,
            self._network,
            peak=picture.peak,
            tile=self.tile,
            device=self.device,
            progress=progress,
        )
        metadata = replace(picture.metadata, exif=exif_of_size(picture.metadata.exif, height, width))
        after = replace(picture, pixels=out, alpha=self._bicubic(picture.alpha), metadata=metadata)
        bicubic = lambda: replace(after, pixels=self._bicubic(picture.pixels))  # noqa: E731
        note = f"x{self.factor:g} to {width} x {height}"
        return Result(size, lambda: after, bicubic, note, weights=digest_of(self._network))

    @cached_property
    def _network(self) -> Any:
        from n3net.models.preparing import prepare
        from n3net.restoration.upscaling import upscaler_for

        return prepare(upscaler_for(self.model), self.device)

    def _bicubic(self, pixels: Any) -> Any:
        """In the range of the pixels, if there are any."""
        from n3net.imaging.resizing import resize

        return None if pixels is None else resize(pixels, self.factor).clip(pixels.min(), pixels.max())
