"""Denoising one image, an array of any common type and of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from n3net.io.arrays import as_image, white_of
from n3net.models.interface import Model
from n3net.models.preparing import prepare
from n3net.noise.curve import noise_map
from n3net.noise.kind import is_drawn, kind_of_noise
from n3net.noise.white import estimate_sigma
from n3net.restoration.running import Array, Progress, place, run, share
from n3net.restoration.tiles import Part
from n3net.weights.store import load_for

if TYPE_CHECKING:
    from n3net.models import Denoiser

Sigma = float | Sequence[float] | Array

GRAY, COLOR = "gray", "color"  # names of the weights that are used by default for white noise
PHOTO = "photo"  # those for the noise of cameras, and the task that such weights were trained for
FAST = "fast"  # those at half resolution, for gray and colour
WAYS = 8  # orientations of an image: turned by 0, 90, 180, 270 degrees, and these mirrored


def denoise(
    image: Array,
    sigma: Sigma | None = None,
    model: str | Path | nn.Module | None = None,
    *,
    strength: float = 1.0,
    best: bool = False,
    peak: float | None = None,
    tile: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Array:
    """Remove the noise of an image.

    Args:
        image: (H, W) or (H, W, 3), uint8, uint16 or floats, see :func:`n3net.io.arrays.as_image`.
        sigma: standard deviation of white noise in gray levels of 0..255 whatever the image's type: a number, one for
            each channel, or a map (H, W). By default it is estimated, see :func:`n3net.noise.white.estimate_sigma`, and
            :func:`n3net.noise.curve.noise_map` for cameras. Models that know one level only ignore it.
        model: a :class:`n3net.models.Denoiser`, or what :func:`n3net.load` takes: a name or a file; ``"bm3d"`` and the
            other methods that learn nothing. By default what :func:`weights_for` finds, ``"photo"`` where the noise
            looks like a camera's; if sigma is given, ``"gray"`` or ``"color"``, as the image is. A gray model denoises
            the channels of a colour image one by one, each with its own noise level. A colour model is given a gray
            image three times, and its outputs are averaged.
        strength: how much of the correction is made, 0 to 1; some of the noise can look more natural than none.
        best: denoise the image in its eight orientations and take the mean: better by about 0.1 dB for white noise,
            in eight times the time.
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
    check_strength(strength)
    gray = image.ndim == 2 or is_gray(image)
    if model is None and sigma is None:
        model = weights_for(image, peak)[0]
    net: Denoiser = prepare(denoiser_for(model, gray), device)  # type: ignore[assignment]
    if sigma is None and net.noise_map:
        sigma = noise_map(image, peak)[0] if is_for_photographs(net) else noise_levels(image, peak)
    out = np.empty_like(image)
    source, target = (a[..., None] if a.ndim == 2 else a[..., :1] if gray else a for a in (image, out))  # (H, W, C)
    steps = _steps(net, source, target, peak, sigma, strength)
    total = np.zeros(source.shape, np.float32) if best else None
    if total is not None:
        steps = [turned for step in _steps(net, source, total, peak, sigma, strength) for turned in step.all_ways()]
    for i, step in enumerate(steps):
        run(
            net.net,
            step.source.shape[:2],
            step.read,
            step.write,
            told=step.told,
            finish=net.finish,
            tile=tile,
            device=device,
            progress=share(progress, i, len(steps)),
        )
    if total is not None:
        place(target, (slice(None), slice(None)), total, peak)
    if gray and image.ndim == 3:
        out[..., 1:] = out[..., :1]
    return out


def check_strength(strength: float) -> None:
    if not 0 <= strength <= 1:
        raise ValueError(f"strength: expected 0 (nothing is done) to 1, got {strength}")


def is_gray(image: Array) -> bool:
    """Whether the three channels of a colour image (H, W, 3) are the same."""
    first = image[..., 0]
    return all(np.array_equal(first[:64], c[:64]) and np.array_equal(first, c) for c in (image[..., 1], image[..., 2]))


def weights_for(image: Array, peak: float | None = None) -> tuple[str, str]:
    """The name of the weights for the noise that an image has, and what was seen, in words.

    They are ``"photo"`` for the noise of a camera (see :mod:`n3net.noise.kind`), ``"gray"`` for white noise of gray
    images, and of colours that all have the same, otherwise ``"color"``.
    """
    image = _one_of_same(image)
    found = kind_of_noise(image, peak)
    if found.camera:
        return PHOTO, f"noise of a camera ({found.why})"
    return GRAY if image.ndim == 2 or found.shared else COLOR, f"white noise ({found.why})"


def _one_of_same(image: Array) -> Array:
    """One channel of an image whose channels are all the same, else the image."""
    return image[..., 0] if image.ndim == 3 and is_gray(image) else image


def is_for_photographs(model: Model) -> bool:
    """Whether a network was trained on the noise of cameras."""
    return bool(model.record.get("training", {}).get("task") == PHOTO)


def denoiser_for(model: str | Path | nn.Module | None, gray: bool) -> Denoiser:
    """The model itself, by name or file, a method that learns nothing, or the default one."""
    from n3net.methods.registry import find
    from n3net.models import Denoiser

    found: Denoiser | None = find(model, "denoising", 1 if gray else 3)
    if found is not None:
        return found
    return load_for((GRAY if gray else COLOR) if model is None else model, Denoiser)


@dataclass(frozen=True)
class _Step:
    """A part of the channels that goes through the network at once.

    With a ``weight``, the target is a sum of float32, to which the result is added with that weight.
    """

    net: Any
    source: Array  # (H, W, C)
    target: Array  # (H, W, C)
    peak: float
    sigma: float | Array | None  # one level, or a map (H, W)
    strength: float = 1.0
    weight: float | None = None

    def all_ways(self) -> list[_Step]:
        """The same in all eight orientations; these are views, so that each writes where it belongs."""
        return [
            replace(
                self,
                source=_turned(self.source, way),
                target=_turned(self.target, way),
                sigma=_turned(self.sigma, way) if isinstance(self.sigma, np.ndarray) else self.sigma,
                weight=1 / WAYS,
            )
            for way in range(WAYS)
        ]

    def read(self, part: Part) -> list[Array]:
        pixels = self.source[part].astype(np.float32) / np.float32(self.peak)
        pixels = np.repeat(pixels, self.net.channels // pixels.shape[2], 2)
        return [pixels, self.sigma[part][..., None]] if isinstance(self.sigma, np.ndarray) else [pixels]

    def told(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        told: Tensor = self.net.told(x, self.sigma if sigma is None else sigma)
        return told

    def write(self, part: Part, values: Array) -> None:
        if values.shape[2] > self.target.shape[2]:
            values = values.mean(2, keepdims=True)
        if self.strength < 1:
            noisy = self.source[part].astype(np.float32) / np.float32(self.peak)
            values = noisy + np.float32(self.strength) * (values - noisy)
        if self.weight is None:
            place(self.target, part, values, self.peak)
        else:
            self.target[part] += np.float32(self.weight) * values


def _turned(image: Array, way: int) -> Array:
    """One of eight orientations of (H, W) or (H, W, C), a view."""
    view = np.rot90(image, way % 4)
    return view[:, ::-1] if way >= 4 else view


def noise_levels(image: Array, peak: float | None = None) -> tuple[float, ...]:
    """The estimated noise level of each channel, only one where all are the same."""
    image = _one_of_same(image)
    if is_drawn(image, white_of(image, peak)):
        return (0.0,) * (1 if image.ndim == 2 else image.shape[2])
    return estimate_sigma(image, peak)


def _steps(
    net: Denoiser, source: Array, target: Array, peak: float, sigma: Sigma | None, strength: float
) -> list[_Step]:
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
        planes = [(source[..., c : c + 1], target[..., c : c + 1]) for c in range(channels)]
        return [_Step(net, *plane, peak, level, strength) for plane, level in zip(planes, levels, strict=True)]
    return [_Step(net, source, target, peak, levels[0], strength)]
