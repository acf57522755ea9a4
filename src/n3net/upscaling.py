"""Upscaling one image, an array of any common type and of any size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from n3net.color import gray_levels, luminance, rgb_to_ycbcr, ycbcr_to_rgb
from n3net.denoising import check_image, is_gray
from n3net.images.picture import peak_of
from n3net.inference import Array, Part, Progress, load_for, place, prepare, run
from n3net.resizing import resize, scaled_size

if TYPE_CHECKING:
    from n3net.models import Upscaler

DEFAULT = "upscale"  # name of the weights that are used by default
LARGEST = 4.0  # factor that networks are trained for


def upscale(
    image: Array,
    factor: float,
    model: str | Path | nn.Module | None = None,
    *,
    peak: float | None = None,
    tile: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Array:
    """Upscale an image.

    The luminance is upscaled bicubically and restored by a network, chroma is upscaled bicubically.

    Args:
        image: (H, W) or (H, W, 3), uint8, uint16 or floats.
        factor: of height and width, 1 to 4, not necessarily a whole number.
        model: a :class:`n3net.models.Upscaler`, or what :func:`n3net.load` takes: a name or a file. By default
            ``"upscale"``.
        peak: the value of white, by default 255, 65535 or 1.
        tile: side of the tiles in pixels of the result, see :func:`n3net.inference.split`; changes memory and speed,
            not the result.
        device: where the network runs.
        progress: called with the pixels that are done and all there are.

    Returns:
        An array of the same type, whose sides are ``factor`` times as long, rounded up. Integers are rounded and
        clipped, floats are not.
    """
    check_image(image)
    if not 1 <= factor <= LARGEST:
        raise ValueError(f"factor: expected 1 to {LARGEST:g}, got {factor}")
    net = prepare(resolve(model), device)
    peak = peak_of(image.dtype) if peak is None else peak
    size = scaled_size(image.shape[:2], factor)
    out = np.empty((*size, *image.shape[2:]), image.dtype)
    work = _Work(_planes(image, peak), out, factor, peak)
    run(net, size, work.read, work.write, tile=tile, device=device, progress=progress)
    return out


def resolve(model: str | Path | nn.Module | None) -> Upscaler:
    """The model itself, by name or file, or the default one."""
    from n3net.models import Upscaler

    return load_for("super-resolution", DEFAULT if model is None else model, Upscaler)


@dataclass(frozen=True)
class _Work:
    """An image and its result, part by part."""

    planes: Array  # (h, w, 1) Y, or (h, w, 3) Y, Cb, Cr
    target: Array  # (H, W) or (H, W, 3)
    factor: float
    peak: float

    def read(self, part: Part) -> list[Array]:
        return [resize(self.planes[..., :1], self.factor, part=part)]

    def write(self, part: Part, values: Array) -> None:
        """Y that has been restored, with chroma that has not."""
        if self.planes.shape[2] == 1:
            values = gray_levels(values[..., 0])
            values = values if self.target.ndim == 2 else values[..., None]
        else:
            chroma = resize(self.planes[..., 1:], self.factor, part=part)
            values = ycbcr_to_rgb(np.concatenate([values, chroma], 2))
        place(self.target, part, values, self.peak)


def _planes(image: Array, peak: float) -> Array:
    """Y, and Cb and Cr where there is any colour, in [0, 1]: (h, w, 1) or (h, w, 3)."""
    pixels = image.astype(np.float32) / np.float32(peak)
    if image.ndim == 3 and not is_gray(image):
        return rgb_to_ycbcr(pixels)
    return luminance(pixels if image.ndim == 2 else pixels[..., 0])[..., None]
