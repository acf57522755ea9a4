"""Denoising one image, an array of any common type and of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from n3net.io.arrays import as_image, white_of
from n3net.models.preparing import prepare
from n3net.noise.white import estimate_sigma
from n3net.restoration.running import Array, Progress, place, run, share
from n3net.restoration.tiles import Part
from n3net.weights.store import load_for

if TYPE_CHECKING:
    from n3net.models import Denoiser

Sigma = float | Sequence[float] | Array

GRAY, COLOR = "gray", "color"  # names of the weights that are used by default


def denoise(
    image: Array,
    sigma: Sigma | None = None,
    model: str | Path | nn.Module | None = None,
    *,
    peak: float | None = None,
    tile: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Array:
    """Remove white Gaussian noise from an image.

    Args:
        image: (H, W) or (H, W, 3), uint8, uint16 or floats, see :func:`n3net.io.arrays.as_image`.
        sigma: standard deviation of the noise in gray levels of 0..255 whatever the image's type: a number, one for
            each channel, or a map (H, W). By default it is estimated, see :func:`n3net.noise.white.estimate_sigma`.
            Models that know one level only ignore it.
        model: a :class:`n3net.models.Denoiser`, or what :func:`n3net.load` takes: a name or a file. By default
            ``"gray"`` or ``"color"``, as the image is. A gray model denoises the channels of a colour image one by one,
            each with its own noise level. A colour model is given a gray image three times, and its outputs are
            averaged.
        peak: the value of white, by default 255, 65535 or 1. Noise may take floats beyond black and white, to two times
            white's value on either side.
        tile: longest side of the tiles in pixels, see :func:`n3net.restoration.running.run`; changes memory and
            speed, not the result.
        device: where the network runs.
        progress: called with the pixels that are done and all there are.

    Returns:
        An array of the same shape and type. Integers are rounded and clipped, floats are not.
    """
    image = as_image(image)
    peak = white_of(image, peak)
    gray = image.ndim == 2 or is_gray(image)
    net: Denoiser = prepare(resolve(model, gray), device)  # type: ignore[assignment]
    if sigma is None and net.noise_map:
        sigma = noise_levels(image, peak)
    out = np.empty_like(image)
    source, target = (a[..., None] if a.ndim == 2 else a[..., :1] if gray else a for a in (image, out))  # (H, W, C)
    steps = _steps(net, source, target, peak, sigma)
    for i, step in enumerate(steps):
        run(
            net.net,
            image.shape[:2],
            step.read,
            step.write,
            told=step.told,
            finish=net.finish,
            tile=tile,
            device=device,
            progress=share(progress, i, len(steps)),
        )
    if gray and image.ndim == 3:
        out[..., 1:] = out[..., :1]
    return out


def is_gray(image: Array) -> bool:
    """Whether the three channels of a colour image (H, W, 3) are the same."""
    first = image[..., 0]
    return all(np.array_equal(first[:64], c[:64]) and np.array_equal(first, c) for c in (image[..., 1], image[..., 2]))


def resolve(model: str | Path | nn.Module | None, gray: bool) -> Denoiser:
    """The model itself, by name or file, or the default one."""
    from n3net.models import Denoiser

    return load_for("denoising", (GRAY if gray else COLOR) if model is None else model, Denoiser)


@dataclass(frozen=True)
class _Step:
    """A part of the channels that goes through the network at once."""

    net: Any
    source: Array  # (H, W, C)
    target: Array  # (H, W, C)
    peak: float
    sigma: float | Array | None  # one level, or a map (H, W)

    def read(self, part: Part) -> list[Array]:
        pixels = self.source[part].astype(np.float32) / np.float32(self.peak)
        pixels = np.repeat(pixels, self.net.channels // pixels.shape[2], 2)
        return [pixels, self.sigma[part][..., None]] if isinstance(self.sigma, np.ndarray) else [pixels]

    def told(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        told: Tensor = self.net.told(x, self.sigma if sigma is None else sigma)
        return told

    def write(self, part: Part, values: Array) -> None:
        mean = values.shape[2] > self.target.shape[2]
        place(self.target, part, values.mean(2, keepdims=True) if mean else values, self.peak)


def noise_levels(image: Array, peak: float | None = None) -> tuple[float, ...]:
    """The estimated noise level of each channel, only one where all are the same."""
    return estimate_sigma(image[..., 0] if image.ndim == 3 and is_gray(image) else image, peak)


def _steps(net: Denoiser, source: Array, target: Array, peak: float, sigma: Sigma | None) -> list[_Step]:
    """All channels at once, or one by one where the network is for gray images."""
    channels = source.shape[2]
    if sigma is None:
        levels: list[float | Array | None] = [None] * channels
    else:
        given = np.asarray(sigma, np.float32)
        if given.shape not in ((), (1,), (3,), source.shape[:2]) or not (np.isfinite(given) & (given >= 0)).all():
            raise ValueError(
                f"sigma: expected a number of at least 0, one for each channel or a map of shape {source.shape[:2]}, "
                f"got {sigma!r}"
            )
        if given.ndim == 1 and len(given) == channels and net.channels == 1:
            levels = [float(level) for level in given]
        else:
            levels = [given if given.ndim == 2 else float(np.sqrt(np.square(given).mean()))] * channels
    if net.channels == 1:
        return [_Step(net, source[..., c : c + 1], target[..., c : c + 1], peak, v) for c, v in enumerate(levels)]
    return [_Step(net, source, target, peak, levels[0])]
