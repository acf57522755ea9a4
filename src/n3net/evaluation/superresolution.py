"""The field's protocol for images that were downscaled bicubically."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from n3net.errors import UserError
from n3net.evaluation.images import ImageSet
from n3net.evaluation.methods import Method, Run, in_tiles
from n3net.evaluation.metrics import WINDOW
from n3net.evaluation.names import split_label
from n3net.evaluation.restoration import RULES, Case, Level, Row, Shown, full_report, measure
from n3net.imaging.color import luminance
from n3net.imaging.degradation import degrade, enlarged
from n3net.imaging.resizing import resize_tensor
from n3net.methods.registry import find
from n3net.restoration.upscaling import SMALLEST
from n3net.weights.record import recorded_range

PROTOCOL = {
    "images": "the large image is cropped to a multiple of the factor and downscaled as MATLAB's imresize does it "
    "(bicubic, antialiased), in RGB rounded to 8 bits",
    "psnr": "of Y (BT.601, 16 to 235), output clipped to [0, 1] and not rounded, without a border of as many pixels as "
    "the factor; mean over images of dB",
    "ssim": "of the same pixels; Gaussian window 11 x 11, sigma 1.5, windows inside the image; mean over images",
    "factors": "networks see images that were upscaled bicubically; below 2, of the double size, reduced to the factor",
    "colours": "MDSR and EDSR see the small image in colour, and Y of what they make of it is compared",
    **RULES,
}


def upscaler(name: str) -> Method:
    """A method by name: ``bicubic``, of :mod:`n3net.methods`, or weights; ``LABEL=NAME`` renames it in tables."""
    label, name = split_label(name)
    label = label or name
    if name == "bicubic":
        return Method(label, _bicubic)
    enlarger = find(name, "super-resolution", 1)
    if enlarger is not None:
        return Method(label, lambda small, factor: enlarger(small, enlarged(small.shape[-2:], factor)), 1)
    from n3net.models import ColorUpscaler, Upscaler
    from n3net.models.preparing import prepare
    from n3net.weights.store import load_for

    model = load_for(name, Upscaler, ColorUpscaler)
    net: Any = prepare(model)
    if isinstance(net, ColorUpscaler):
        return Method(label, _in_colors(net), 3, trained_for(model.record), model.record["digest"])

    def run(small: Tensor, factor: float) -> Tensor:
        restored = in_tiles(net.net, _bicubic(small, max(factor, SMALLEST)), net.told, net.finish)
        return restored if factor >= SMALLEST else resize_tensor(restored, size=enlarged(small.shape[-2:], factor))

    return Method(label, run, model.channels, trained_for(model.record), model.record["digest"])


def _in_colors(net: Any) -> Run:
    from n3net.restoration.upscaling import enlarge

    def run(small: Tensor, factor: float) -> Tensor:
        colors = small.permute(1, 2, 0).numpy()  # (h, w, 3)
        large = enlarge(net, colors, factor, enlarged(colors.shape[:2], factor))
        return torch.from_numpy(luminance(large.clip(0, 1)))[None]  # (1, H, W)

    return run


def _bicubic(small: Tensor, factor: float) -> Tensor:
    return resize_tensor(small, size=enlarged(small.shape[-2:], factor))


def trained_for(record: dict[str, Any]) -> tuple[float, float] | None:
    """Lowest and highest factor that a training record names."""
    return recorded_range(record, "factors")


def evaluate(
    methods: Sequence[Method],
    images: ImageSet,
    factors: Sequence[float],
    *,
    progress: Callable[[str], None] = lambda what: None,
    keep: Callable[[Shown], None] | None = None,
    kept: int = 6,
) -> list[Row]:
    """Downscale all images and upscale them with all methods; see :func:`n3net.evaluation.restoration.measure`."""
    for factor in factors:
        if not 1 <= factor <= 8:
            raise UserError(f"factor: expected 1 to 8, got {factor}")
    rows = []
    for factor in factors:
        level = Level("factor", factor)
        rows += measure(methods, images.name, level, _cases(images, factor), progress=progress, keep=keep, kept=kept)
    return rows


def report(rows: Sequence[Row], methods: Sequence[Method]) -> dict[str, Any]:
    """All that was measured and how, for a JSON file."""
    return full_report("sr", PROTOCOL, rows, methods)


def _cases(images: ImageSet, factor: float) -> Iterator[Case]:
    border = math.ceil(factor)
    for index, path in enumerate(images.paths):
        pixels = images.pixels(index, 3)
        if min(pixels.shape[:2]) // factor * factor < WINDOW + 2 * border:
            raise UserError(f"{path}: {pixels.shape[1]} x {pixels.shape[0]} pixels are too few to measure x{factor:g}")
        pair = degrade(pixels, factor)
        planes = (pair.high, pair.low, pair.upscaled())
        truth, small, degraded = (torch.from_numpy(y)[None] for y in planes)  # (1, H, W) each
        colors = torch.from_numpy(pair.small.astype(np.float32) / np.float32(255)).permute(2, 0, 1)  # (3, h, w)
        yield Case(path.name, truth, degraded, small, border, colors)
