"""The paper's protocol for gray or colour images with white Gaussian noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from n3net.errors import UserError
from n3net.evaluation.images import ImageSet
from n3net.evaluation.methods import Method
from n3net.evaluation.metrics import WINDOW
from n3net.evaluation.restoration import RULES, Case, Level, Row, Shown, full_report, measure

PROTOCOL = {
    "noise": "white Gaussian, standard deviation sigma of 255 gray levels, neither clipped nor rounded",
    "seed": "numpy Generator of (seed, image number, 1000 sigma): the same noise for every model",
    "psnr": "output clipped to [0, 1], not rounded; mean over images of dB",
    "ssim": "Gaussian window 11 x 11, sigma 1.5, windows inside the image; mean over channels and images",
    **RULES,
}


def noise(shape: Sequence[int], sigma: float, index: int, seed: int = 0) -> Tensor:
    """The noise of an image, in [0, 1] units: the same whatever is measured with it."""
    rng = np.random.default_rng([seed, index, round(1000 * sigma)])
    return torch.from_numpy(rng.standard_normal(tuple(shape)).astype(np.float32) * np.float32(sigma / 255))


def evaluate(
    methods: Sequence[Method],
    images: ImageSet,
    sigmas: Sequence[float],
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda what: None,
    keep: Callable[[Shown], None] | None = None,
    kept: int = 6,
) -> list[Row]:
    """Denoise all images with all methods.

    Args:
        methods: see :func:`n3net.evaluation.methods.method`; all networks among them for gray, or all for colour.
        images: clean.
        sigmas: noise levels, in gray levels.
        seed: of the noise.
        progress: called after each image and method.
        keep: is given the pictures of the first ``kept`` images.
    """
    channels = common_channels(methods)
    for sigma in sigmas:
        if not 0 <= sigma <= 255:
            raise UserError(f"sigma: expected 0 to 255 gray levels, got {sigma}")
    rows = []
    for sigma in sigmas:
        cases = _cases(images, channels, sigma, seed)
        rows += measure(methods, images.name, Level("sigma", sigma), cases, progress=progress, keep=keep, kept=kept)
    return rows


def report(rows: Sequence[Row], methods: Sequence[Method], seed: int) -> dict[str, Any]:
    """All that was measured and how, for a JSON file."""
    return full_report("gaussian", {**PROTOCOL, "seed_value": seed}, rows, methods)


def _cases(images: ImageSet, channels: int, sigma: float, seed: int) -> Iterator[Case]:
    for index, path in enumerate(images.paths):
        clean = images.read(index, channels)
        height, width = clean.shape[-2:]
        if min(height, width) < WINDOW:
            raise UserError(f"{path}: {width} x {height} pixels are too few, SSIM needs {WINDOW} each way")
        yield Case(path.name, clean, clean + noise(clean.shape, sigma, index, seed))


def common_channels(methods: Sequence[Method]) -> int:
    """1 or 3: what all networks among the methods work on."""
    found = {m.channels for m in methods} - {None}
    if len(found) > 1:
        raise UserError("gray and colour networks cannot be measured on the same images; run them one after the other")
    return int(found.pop() or 1) if found else 1
