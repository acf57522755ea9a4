"""Upscaling one image, an array of any common type and of any size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from n3net.errors import UserError
from n3net.imaging.color import gray_levels, luminance, rgb_to_ycbcr, ycbcr_to_rgb
from n3net.imaging.resizing import resize, scaled_size
from n3net.io.arrays import as_image, white_of
from n3net.methods.enlarging import Enlarger
from n3net.methods.registry import find
from n3net.models.preparing import prepare
from n3net.restoration.denoising import is_gray
from n3net.restoration.running import Array, Progress, place, run
from n3net.restoration.tiles import Part
from n3net.weights.store import load_for

if TYPE_CHECKING:
    from n3net.models import ColorUpscaler, Upscaler

DEFAULT = "upscale"  # name of the weights that are used by default
SMALLEST, LARGEST = 2.0, 4.0  # factors that networks are trained for
ROWS = 256  # of a result that are computed at a time


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

    The luminance is upscaled bicubically and restored by a network, chroma is upscaled bicubically. Networks take every
    image for one that lost as much as downscaling by 2 takes away, so smaller factors go through the double size. A
    :class:`n3net.models.ColorUpscaler` makes the colours itself, by the next whole factor that it knows, and what it
    makes is reduced to the factor.

    Args:
        image: (H, W) or (H, W, 3), uint8, uint16 or floats, see :func:`n3net.io.arrays.as_image`.
        factor: of height and width, 1 to 4, not necessarily a whole number.
        model: a :class:`n3net.models.Upscaler` or :class:`n3net.models.ColorUpscaler`, or what :func:`n3net.load`
            takes: a name or a file; ``"wsd-sr"`` or ``"selfex"``, which learn nothing and see the whole image. By
            default ``"upscale"``.
        peak: the value of white, by default 255, 65535 or 1.
        tile: longest side of the tiles in pixels of what the network sees, see :func:`n3net.restoration.running.run`;
            changes memory and speed, not the result.
        device: where the network runs.
        progress: called with the pixels that are done and all there are.

    Returns:
        An array of the same type, whose sides are ``factor`` times as long, rounded up. Integers are rounded and
        clipped, floats are not.
    """
    image = as_image(image)
    peak = white_of(image, peak)
    if not 1 <= factor <= LARGEST:
        raise ValueError(f"factor: expected 1 to {LARGEST:g}, got {factor}")
    from n3net.models import ColorUpscaler

    net: Any = prepare(upscaler_for(model), device)
    if isinstance(net, ColorUpscaler):
        return _in_colors(net, image, factor, peak, tile, device, progress)
    size, planes = scaled_size(image.shape[:2], factor), _planes(image, peak)
    result = _Result(planes, np.empty((*size, *image.shape[2:]), image.dtype), factor, peak)
    if isinstance(net, Enlarger):
        _by_rows(result, _enlarged(net, planes, size, progress), 1.0)
        return result.pixels
    seen = max(factor, SMALLEST)
    luma = np.empty((*scaled_size(image.shape[:2], seen), 1), np.float32) if seen > factor else None

    def read(part: Part) -> list[Array]:
        return [resize(planes[..., :1], seen, part=part)]

    write = result.write if luma is None else luma.__setitem__
    run(
        net.net,
        scaled_size(image.shape[:2], seen),
        read,
        write,
        told=net.told,
        finish=net.finish,
        tile=tile,
        device=device,
        progress=progress,
    )
    if luma is not None:
        _by_rows(result, luma, factor / seen)
    return result.pixels


def _enlarged(net: Enlarger, planes: Array, size: tuple[int, int], progress: Progress | None) -> Array:
    """Y by a method that learns nothing, (H, W, 1)."""
    tell = None if progress is None else lambda done: progress(round(1000 * done), 1000)
    small = torch.from_numpy(planes[..., 0].copy())[None]  # (1, h, w)
    return net(small, size, tell).permute(1, 2, 0).numpy()


def _by_rows(result: _Result, luma: Array, factor: float) -> None:
    """Write the result from its luminance (H, W, 1), reduced by a factor."""
    height, width = result.pixels.shape[:2]
    for start in range(0, height, ROWS):
        part = slice(start, min(start + ROWS, height)), slice(0, width)
        result.write(part, luma[part] if factor == 1 else resize(luma, factor, part=part))


def upscaler_for(model: str | Path | nn.Module | None) -> Upscaler | ColorUpscaler | Enlarger:
    """The model itself, by name or file, a method that learns nothing, or the default one."""
    from n3net.models import ColorUpscaler, Upscaler

    if isinstance(model, Enlarger):
        return model
    found: Enlarger | None = find(model, "super-resolution", 1)
    if found is not None:
        return found

    loaded: Upscaler | ColorUpscaler = load_for(DEFAULT if model is None else model, Upscaler, ColorUpscaler)
    return loaded


def _in_colors(
    net: Any,
    image: Array,
    factor: float,
    peak: float,
    tile: int | None,
    device: str | torch.device,
    progress: Progress | None,
) -> Array:
    """Upscale with a network that makes the colours itself; of a gray image their mean is taken."""
    colors = np.atleast_3d(image.astype(np.float32) / np.float32(peak))  # (h, w, 1 or 3)
    gray = colors.shape[2] == 1 or is_gray(image)
    colors = np.repeat(colors, 3, 2) if colors.shape[2] == 1 else colors
    size = scaled_size(image.shape[:2], factor)
    large = enlarge(net, colors, factor, size, tile, device, progress)  # (H, W, 3)
    values = large.mean(2, keepdims=True) if gray else large
    out = np.empty((*size, *image.shape[2:]), image.dtype)
    place(out, (slice(None), slice(None)), values[..., 0] if image.ndim == 2 else values, peak)
    return out


def enlarge(
    net: Any,
    colors: Array,
    factor: float,
    size: tuple[int, int],
    tile: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Array:
    """What a :class:`n3net.models.ColorUpscaler` makes of colours (h, w, 3) in [0, 1], at a size, not clipped."""
    whole = net.next_factor(factor)
    if whole < factor:
        raise UserError(f"factor: expected at most {whole}, as this network was made for, got {factor:g}")
    height, width = colors.shape[:2]
    large = np.empty((whole * height, whole * width, 3), np.float32)

    def write(part: Part, values: Array) -> None:
        rows, cols = (slice(whole * s.start, whole * s.stop) for s in part)
        shape = values.shape[:2]
        pixels = values.reshape(*shape, 3, whole, whole).transpose(0, 3, 1, 4, 2)  # (h, f, w, f, 3)
        large[rows, cols] = pixels.reshape(whole * shape[0], whole * shape[1], 3)

    run(net.at(whole), (height, width), lambda part: [colors[part]], write, tile=tile, device=device, progress=progress)
    return large if large.shape[:2] == tuple(size) else resize(large, size=size)


@dataclass(frozen=True)
class _Result:
    """The upscaled image, part by part."""

    planes: Array  # (h, w, 1) Y, or (h, w, 3) Y, Cb, Cr, of the small image
    pixels: Array  # (H, W) or (H, W, 3)
    factor: float
    peak: float

    def write(self, part: Part, values: Array) -> None:
        """Y that has been restored, with chroma that has not."""
        if self.planes.shape[2] == 1:
            values = gray_levels(values[..., 0])
            values = values if self.pixels.ndim == 2 else values[..., None]
        else:
            chroma = resize(self.planes[..., 1:], self.factor, part=part)
            values = ycbcr_to_rgb(np.concatenate([values, chroma], 2))
        place(self.pixels, part, values, self.peak)


def _planes(image: Array, peak: float) -> Array:
    """Y, and Cb and Cr where there is any colour, in [0, 1]: (h, w, 1) or (h, w, 3)."""
    pixels = image.astype(np.float32) / np.float32(peak)
    if image.ndim == 3 and not is_gray(image):
        return rgb_to_ycbcr(pixels)
    return luminance(pixels if image.ndim == 2 else pixels[..., 0])[..., None]
