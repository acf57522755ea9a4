"""What n3net denoise does with raw files of cameras."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from n3net.cli.pictures import Result
from n3net.errors import UserError

if TYPE_CHECKING:
    from n3net.cli.jobs import Job
    from n3net.models.raw import RawDenoiser


class RawRunner:
    """What is the same for all raw files.

    Args:
        model: a network, or weights by name or file, by default 'raw'.
        noise: a and b, by default as the file says, else estimated.
        bayer: whether a TIFF file is to hold the mosaic instead of a developed picture.
        auto_bright: whether LibRaw may make the picture brighter.
        compare: whether a picture of before is needed.
        tile, device, max_megapixels: as for other images.
    """

    def __init__(
        self,
        model: str | RawDenoiser | None,
        noise: tuple[float, float] | None,
        bayer: bool,
        auto_bright: bool,
        compare: bool,
        tile: int | None,
        device: str,
        max_megapixels: float,
    ) -> None:
        if noise is not None and not (min(noise) >= 0 and max(noise) < 1 and sum(noise) > 0):
            raise UserError(f"--noise: expected a and b of 0 or more, for values of black 0 and white 1, got {noise}")
        self._model, self.noise, self.bayer, self.auto_bright = model, noise, bayer, auto_bright
        self.compare, self.tile, self.device, self.max_pixels = compare, tile, device, int(max_megapixels * 1e6)

    @cached_property
    def model(self) -> Any:
        from n3net.restoration.raw import RAW, resolve

        return resolve(RAW if self._model is None else self._model)

    def denoise(self, job: Job, progress: Callable[[float], None]) -> Result:
        """The developed picture before and after, and how to write the mosaic where that is asked for."""
        from n3net.cli.jobs import DNG
        from n3net.io.picture import format_for
        from n3net.io.writing import check_sides
        from n3net.raw.dng import corrections, write_dng, write_mosaic
        from n3net.raw.photo import RawPhoto
        from n3net.restoration.raw import denoise_photo

        assert job.source is not None
        as_dng = job.target is not None and job.target.suffix.lower() == DNG
        as_tiff = job.target is not None and job.target.suffix.lower() in (".tif", ".tiff")
        if self.bayer and not (as_tiff or as_dng):
            raise UserError("--bayer: the mosaic can be written as .tif or .dng; name such a file with -o")
        bits = 16 if as_tiff or job.target is None else 8
        model = self.model
        photo = RawPhoto(job.source, self.max_pixels)  # closed when nobody needs it any more
        if job.target is not None and not as_dng:
            check_sides(format_for(job.target), *photo.mosaic.shape)
        levels, note = self._levels(photo)
        before = photo.develop(8, self.auto_bright) if self.compare else None
        denoise_photo(
            photo,
            levels,
            model,
            tile=self.tile,
            device=self.device,
            progress=lambda done, total: progress(done / total),
        )
        if as_dng and corrections(photo)[1]:
            note += ", without the file's corrections of lens or sensor, which are for more pixels than LibRaw gives"
        write = write_dng if as_dng else write_mosaic if self.bayer else None
        after = cache(lambda: photo.develop(bits, self.auto_bright))
        return Result(
            photo.mosaic.shape,
            after,
            lambda: before or after(),
            note,
            None if write is None else lambda file: write(file, photo),
        )

    def _levels(self, photo: Any) -> tuple[Any, str]:
        """Noise of each plane, and where it is known from."""
        from n3net.noise.sensor import NoiseLevel
        from n3net.noise.sensor_estimate import TRUSTED, estimate_level

        if self.noise is not None:
            level = NoiseLevel(*self.noise)
            return [level] * len(photo.planes), f"noise {level}"
        levels = photo.levels()
        if levels is not None:
            return levels, f"noise {levels[1]} by its noise profile"
        found = estimate_level([photo.values(plane) for plane in photo.planes])
        if not found.level.a + found.level.b > 0:
            raise UserError("its noise cannot be estimated; say it with --noise A B")
        doubt = "" if found.confidence >= TRUSTED else ", little to go by: check the result, or say it with --noise A B"
        return [found.level] * len(photo.planes), (
            f"noise {found.level} estimated (confidence {found.confidence:.2f}{doubt})"
        )
