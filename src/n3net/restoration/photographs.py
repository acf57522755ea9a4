"""Photographs as cameras and phones develop them, whose noise depends on intensity and is not white.

A network that was trained on such noise (:mod:`n3net.tasks.photo`) is told the noise of each pixel, as it is estimated
from the photograph (:mod:`n3net.noise.curve`), and removes it in one pass. Networks for white noise need a detour,
:func:`_in_parts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from n3net.errors import UserError
from n3net.io.arrays import as_image, white_of
from n3net.io.picture import peak_of, to_type
from n3net.models.interface import Network
from n3net.models.preparing import prepare
from n3net.noise.curve import noise_map
from n3net.restoration.denoising import PHOTO, check_strength, denoise, denoiser_for, is_for_photographs, is_gray
from n3net.restoration.running import Array, Progress

if TYPE_CHECKING:
    from n3net.models import Denoiser

STEP = 2  # pixels between those that are denoised together
SECOND = 0.4  # noise level of the second pass against that of the first


@dataclass(frozen=True)
class Photograph:
    """A denoised photograph.

    Args:
        pixels: of the shape and type of the input.
        noise: estimated for each pixel, (H, W), in gray levels of 0..255.
        confidence: of the estimate, see :class:`n3net.noise.curve.NoiseCurve`.
    """

    pixels: Array
    noise: npt.NDArray[np.float32]
    confidence: float


def denoise_photograph(
    image: Array,
    model: str | Path | nn.Module | None = None,
    *,
    strength: float = 1.0,
    best: bool = False,
    peak: float | None = None,
    tile: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Photograph:
    """Remove the noise of a photograph, whatever it is.

    Args:
        image: (H, W) or (H, W, 3), uint8, uint16 or floats.
        model: with a noise map, or one that estimates the noise itself, as CBDNet does; by default ``"photo"``.
        strength, best, peak, tile, device, progress: see there.
    """
    image = as_image(image)
    peak = white_of(image, peak)
    net = photo_denoiser_for(model, image.ndim == 2 or is_gray(image))
    noise, confidence = noise_map(image, peak)
    if is_for_photographs(net) or not net.noise_map:
        more: dict[str, Any] = {"strength": strength, "best": best, "tile": tile, "device": device}
        pixels = denoise(image, noise, net, peak=peak, progress=progress, **more)
        return Photograph(pixels, noise, confidence)
    check_strength(strength)
    run = partial(denoise, model=prepare(net, device), best=best, tile=tile, device=device)
    values = image.astype(np.float32) / np.float32(peak)
    out = values + np.float32(strength) * (_in_parts(values, noise, run, progress) - values)
    return Photograph(_as(out, image.dtype, peak), noise, confidence)


def photo_denoiser_for(model: str | Path | nn.Module | None, gray: bool) -> Denoiser:
    """The model itself, by name or file, or the default one for photographs."""
    return denoiser_for(PHOTO if model is None else model, gray)


def check_model(model: Denoiser) -> None:
    """Refuse a network that neither can be told the noise nor finds it out itself."""
    net = model.net
    if not model.noise_map and not (isinstance(net, Network) and net.estimates_noise):
        raise UserError("--real needs a model with a noise map, this one knows one noise level only")


def _in_parts(values: Array, noise: Array, run: Callable[..., Array], progress: Progress | None) -> Array:
    """Denoise with a network for white noise.

    Demosaicking and compression give the noise of neighbouring pixels the same sign, and such a network takes that for
    texture. So the photograph is taken apart into four, each with every second pixel of every second row, in which
    noise is nearly white. Each is denoised with its noise map, they are put together again, and a second, weaker pass
    over the whole removes what the four do not agree on. (The idea is that of Zhou et al., "When AWGN-based denoiser
    meets real noises", AAAI 2020.)
    """
    step = STEP if min(values.shape[:2]) >= 8 * STEP else 1
    out, total, done = np.empty_like(values), 2 * values.shape[0] * values.shape[1], 0  # two passes over all pixels

    def clean(part: Array, levels: Array) -> Array:
        nonlocal done
        pixels = part.shape[0] * part.shape[1]

        def advance(now: int, all_: int, before: int = done) -> None:
            if progress is not None:
                progress(before + pixels * now // all_, total)

        done += pixels
        return run(part, np.ascontiguousarray(levels), progress=advance)

    for row in range(step):
        for column in range(step):
            place = (slice(row, None, step), slice(column, None, step))
            out[place] = clean(np.ascontiguousarray(values[place]), noise[place])
    return clean(out, SECOND * noise)


def _as(values: Array, dtype: np.dtype[np.generic], peak: float) -> Array:
    """From black 0 and white 1 to the type and the white of an image."""
    if np.issubdtype(dtype, np.integer) and peak == peak_of(dtype):
        return to_type(values, dtype)
    scaled = values * np.float32(peak)
    return (np.clip(np.rint(scaled), 0, peak) if np.issubdtype(dtype, np.integer) else scaled).astype(dtype)
