"""Files with noise in, clean ones out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from n3net.errors import UserError
from n3net.jobs.work import Files, Progress, Result, Work, digest_of

if TYPE_CHECKING:
    from n3net.io import Picture
    from n3net.jobs.planning import Job

TIFF, DNG = (".tif", ".tiff"), ".dng"


@dataclass(frozen=True)
class Denoise(Work):
    """Removes noise.

    Args:
        model: weights by name or file; by default 'gray', 'color', 'photo' or 'raw', as the image is.
        sigma: noise level in gray levels of 0..255, by default estimated; not of raw files.
        real: whether the noise is that of a camera.
        white_noise: whether it is white; by default the picture is looked at.
        noise: of raw files: a and b, by default as the file says, else estimated.
        bayer: of raw files: whether a TIFF file is to hold the mosaic instead of a developed picture.
        auto_bright: of raw files: whether LibRaw may make the picture brighter.
        strength, best, tile, device: see :func:`n3net.denoise`.
    """

    model: str | None = None
    sigma: float | None = None
    real: bool = False
    white_noise: bool = False
    noise: tuple[float, float] | None = None
    bayer: bool = False
    auto_bright: bool = False
    strength: float = 1.0
    best: bool = False
    tile: int | None = None
    device: str = "cpu"

    captions = ("noisy", "denoised", "clean")
    suffix = "-denoised"

    @property
    def networks(self) -> tuple[str, ...]:
        from n3net.restoration.denoising import COLOR, GRAY, PHOTO
        from n3net.restoration.raw import RAW

        return (GRAY, COLOR, PHOTO, RAW) if self.model is None else (self.model,)

    def check(self) -> None:
        from n3net.models.preparing import check_device

        self.check_noise()
        if self.noise is not None and not (min(self.noise) >= 0 and max(self.noise) < 1 and sum(self.noise) > 0):
            raise UserError(
                f"--noise: expected a and b of 0 or more, for values of black 0 and white 1, got {self.noise}"
            )
        check_device(self.device)
        self._given  # noqa: B018

    def check_noise(self) -> None:
        """Refuse two words about the noise that do not go together."""
        if self.real and self.sigma is not None:
            raise UserError("--real estimates the noise of each pixel; leave out --sigma")
        if self.real and self.white_noise:
            raise UserError("--real and --white-noise: the noise is either a camera's or white; give one of them")

    def picture(self, picture: Picture, files: Files, progress: Progress) -> Result:
        from n3net.restoration.denoising import is_gray

        gray = picture.pixels.ndim == 2 or is_gray(picture.pixels)
        camera, weights, why = self.choose(picture)
        model = self._networks(gray, camera, weights)
        pixels, note = (self._photograph if camera else self._white)(picture, model, progress)
        return Result(
            pixels.shape[:2],
            lambda: replace(picture, pixels=pixels),
            lambda: picture,
            f"{why}, {note}" if why else note,
            weights=digest_of(model),
        )

    def choose(self, picture: Picture) -> tuple[bool, str | None, str]:
        """Whether noise is taken for a camera's; where nobody said so, the weights, too, and what was seen."""
        from n3net.restoration.denoising import FAST, PHOTO, is_for_photographs, weights_for

        if self.real or self.white_noise or self.sigma is not None:
            return self.real, None, ""
        if self.model not in (None, FAST):
            return self._given is not None and is_for_photographs(self._given), None, ""
        weights, why = weights_for(picture.pixels, picture.peak)
        if self.model == FAST:
            return False, None, f"{why}, which {FAST} does not know: better without --fast" if weights == PHOTO else why
        return weights == PHOTO, weights, why

    def _white(self, picture: Picture, model: Any, progress: Progress) -> tuple[Any, str]:
        """Pixels without white noise, and what was done."""
        from n3net.restoration.denoising import denoise, noise_levels

        levels: float | tuple[float, ...] | None = self.sigma
        note = f"σ {self.sigma:g}" if self.sigma is not None else "σ as trained"
        if levels is None and model.noise_map:
            levels = estimated = noise_levels(picture.pixels, picture.peak)
            note = f"σ {' '.join(f'{level:.1f}' for level in estimated)} estimated"
        elif levels is not None and not model.noise_map:
            note += " ignored, the model knows one level only"
        return denoise(picture.pixels, levels, model, progress=progress, **self._how(picture)), note + self._more

    def _photograph(self, picture: Picture, model: Any, progress: Progress) -> tuple[Any, str]:
        """Pixels without the noise of a camera, and what was done."""
        import numpy as np

        from n3net.noise.curve import TRUSTED
        from n3net.restoration.photographs import check_model, denoise_photograph

        check_model(model)
        result = denoise_photograph(picture.pixels, model, progress=progress, **self._how(picture))
        low, high = np.quantile(result.noise, [0.02, 0.98])
        doubt = "" if result.confidence >= TRUSTED else ", little to go by: check it, or say --sigma"
        note = f"σ {low:.1f} to {high:.1f} estimated (confidence {result.confidence:.2f}{doubt})"
        return result.pixels, note + self._more

    def _how(self, picture: Picture) -> dict[str, Any]:
        """What both ways have in common."""
        options = {"strength": self.strength, "best": self.best, "tile": self.tile, "device": self.device}
        return {"peak": picture.peak, **options}

    @property
    def _more(self) -> str:
        """What was asked for beside the noise, for the line that says what was done."""
        mean = ", mean of 8 orientations" if self.best else ""
        return mean + (f", strength {self.strength:g}" if self.strength < 1 else "")

    def raw(self, job: Job, files: Files, progress: Progress) -> Result:
        """The developed picture before and after, and how to write the mosaic where that is asked for."""
        from n3net.io.picture import format_for
        from n3net.io.writing import check_sides
        from n3net.raw.dng import corrections, write_dng, write_mosaic
        from n3net.raw.photo import RawPhoto
        from n3net.restoration.raw import denoise_photo

        assert job.source is not None
        ending = "" if job.target is None else job.target.suffix.lower()
        if self.bayer and ending not in (*TIFF, DNG):
            raise UserError("--bayer: the mosaic can be written as .tif or .dng; name such a file with -o")
        model = self._raw_network
        photo = RawPhoto(job.source, files.max_pixels)
        if job.target is not None and ending != DNG:
            check_sides(format_for(job.target), *photo.mosaic.shape)
        levels, note = raw_levels(photo, self.noise)
        before = photo.develop(8, self.auto_bright) if files.needs_before else None
        denoise_photo(
            photo, levels, model, strength=self.strength, tile=self.tile, device=self.device, progress=progress
        )
        note += f", strength {self.strength:g}" if self.strength < 1 else ""
        if ending == DNG and corrections(photo)[1]:
            note += ", without the file's corrections of lens or sensor, which are for more pixels than LibRaw gives"
        write = write_dng if ending == DNG else write_mosaic if self.bayer else None
        bits = 16 if ending in (*TIFF, "") else 8
        after = cache(lambda: photo.develop(bits, self.auto_bright))
        return Result(
            photo.mosaic.shape,
            after,
            lambda: before or after(),
            note,
            None if write is None else lambda file: write(file, photo),
            digest_of(model),
        )

    @cached_property
    def _given(self) -> Any:
        """The network that was asked for, or None."""
        from n3net.methods.registry import METHODS
        from n3net.models import Denoiser
        from n3net.models.raw import RawDenoiser
        from n3net.weights import load

        if self.model is None or self.model in METHODS:  # built for each kind of image
            return None
        net: Any = load(self.model)
        if not isinstance(net, Denoiser | RawDenoiser):
            raise UserError(f"{self.model}: a {net.recipe.name}, which is not for denoising")
        return net

    @cached_property
    def _networks(self) -> Any:
        """What a picture needs -> a network that is ready to run, always the same."""
        from n3net.models import Denoiser
        from n3net.models.preparing import prepare
        from n3net.restoration.denoising import denoiser_for
        from n3net.restoration.photographs import photo_denoiser_for

        given = self._given if isinstance(self._given, Denoiser) else self.model

        @cache
        def network(gray: bool, camera: bool, weights: str | None) -> Any:
            find = photo_denoiser_for if camera else denoiser_for
            return prepare(find(weights if given is None else given, gray), self.device)

        return network

    @cached_property
    def _raw_network(self) -> Any:
        from n3net.models.preparing import prepare
        from n3net.models.raw import RawDenoiser
        from n3net.restoration.raw import RAW, raw_denoiser_for

        given = self._given if isinstance(self._given, RawDenoiser) else self.model
        return prepare(raw_denoiser_for(RAW if given is None else given), self.device)


def raw_levels(photo: Any, given: tuple[float, float] | None) -> tuple[Any, str]:
    """Noise of each plane of a raw file, and where it is known from."""
    from n3net.noise.sensor import NoiseLevel
    from n3net.noise.sensor_estimate import TRUSTED, estimate_level

    if given is not None:
        level = NoiseLevel(*given)
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
