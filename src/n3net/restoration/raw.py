"""Denoising of raw data, one plane of the colour filter array at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from n3net.io.arrays import as_image, white_of
from n3net.models.preparing import prepare
from n3net.noise.sensor import NoiseLevel
from n3net.raw.photo import RawPhoto
from n3net.restoration.denoising import check_strength
from n3net.restoration.running import Array, Progress, run, share
from n3net.restoration.tiles import Part
from n3net.weights.store import load_for

RAW = "raw"  # name of the weights that are used by default


def denoise_plane(
    plane: npt.NDArray[np.float32],
    level: NoiseLevel,
    model: str | Path | nn.Module = RAW,
    *,
    strength: float = 1.0,
    tile: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> npt.NDArray[np.float32]:
    """Remove the noise of a plane of one colour.

    Args:
        plane: (H, W), linear, black 0 and white 1.
        level: of its noise.
        model: a :class:`n3net.models.raw.RawDenoiser`, or what :func:`n3net.load` takes.
        strength, tile, device, progress: see :func:`n3net.denoise`.
    """
    check_strength(strength)
    plane = as_image(plane, "plane")
    if plane.ndim != 2 or plane.dtype.kind != "f":
        raise ValueError(f"plane: expected floats of shape (H, W), got {plane.dtype} of shape {plane.shape}")
    white_of(plane, name="plane")
    net = prepare(raw_denoiser_for(model), device)
    out = np.empty(plane.shape, np.float32)

    def write(part: Part, values: Array) -> None:
        out[part] = _mixed(plane[part], values[..., 0], strength)

    _run(net, plane.shape, level, lambda part: plane[part], write, tile, device, progress)
    return out


def denoise_photo(
    photo: RawPhoto,
    levels: Sequence[NoiseLevel],
    model: str | Path | nn.Module = RAW,
    *,
    part: Part | None = None,
    strength: float = 1.0,
    tile: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> None:
    """Replace the mosaic of a photograph by a clean one; pixels that are white or more stay as they are.

    Args:
        photo: to be changed.
        levels: noise of each of its planes.
        part: rows and columns of its planes, to change only these, as if there were no others.
        model, strength, tile, device, progress: see :func:`denoise_plane`.
    """
    check_strength(strength)
    net = prepare(raw_denoiser_for(model), device)
    for i, (plane, level) in enumerate(zip(photo.planes, levels, strict=True)):
        pixels = photo.mosaic[plane.place]  # (H / 2, W / 2), a view
        pixels = pixels if part is None else pixels[part]
        out = np.empty_like(pixels)
        black, span = np.float32(plane.black), np.float32(plane.white - plane.black)

        def read(part: Part, pixels: Array = pixels, black: Any = black, span: Any = span) -> Array:
            return (pixels[part].astype(np.float32) - black) / span

        def write(
            part: Part, values: Array, pixels: Array = pixels, out: Array = out, black: Any = black, span: Any = span
        ) -> None:
            noisy = pixels[part]
            values = _mixed((noisy.astype(np.float32) - black) / span, values[..., 0], strength)
            clean = np.clip(np.rint(values * span + black), 0, black + span)
            out[part] = np.where(noisy >= black + span, noisy, clean)

        _run(net, pixels.shape, level, read, write, tile, device, share(progress, i, len(photo.planes)))
        pixels[:] = out


def _mixed(noisy: Array, clean: Array, strength: float) -> Array:
    return clean if strength == 1 else noisy + np.float32(strength) * (clean - noisy)


def raw_denoiser_for(model: str | Path | nn.Module) -> nn.Module:
    """A network for raw data: itself, by name or file."""
    from n3net.models.raw import RawDenoiser

    net: nn.Module = load_for(model, RawDenoiser)
    return net


def _run(
    net: Any,
    size: tuple[int, ...],
    level: NoiseLevel,
    read: Any,
    write: Any,
    tile: int | None,
    device: str | torch.device,
    progress: Progress | None,
) -> None:
    if not (0 <= level.a < np.inf and 0 <= level.b < np.inf):
        raise ValueError(f"level: expected a and b of at least 0, got {level}")
    run(
        net.net,
        (size[0], size[1]),
        lambda part: [read(part)[..., None]],
        write,
        told=lambda x: net.told(x, level.a, level.b),
        finish=lambda out, told: net.finish(out, told, level.a, level.b),
        tile=tile,
        device=device,
        progress=progress,
    )
