"""The paper's protocol for gray or colour images with white Gaussian noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from n3net.errors import UserError
from n3net.evaluation.images import ImageSet
from n3net.evaluation.methods import Method
from n3net.evaluation.metrics import bootstrap, psnr, ssim

PROTOCOL = {
    "noise": "white Gaussian, standard deviation sigma of 255 gray levels, neither clipped nor rounded",
    "seed": "numpy Generator of (seed, image number, 1000 sigma): the same noise for every model",
    "psnr": "output clipped to [0, 1], not rounded; mean over images of dB",
    "ssim": "Gaussian window 11 x 11, sigma 1.5, windows inside the image; mean over channels and images",
    "interval": "95 %, percentile bootstrap over images, 10,000 draws",
    "seconds": "median over images, wall clock, one warm-up run before",
}


@dataclass(frozen=True)
class Row:
    """One image, one method, one noise level."""

    model: str
    dataset: str
    sigma: float
    image: str
    psnr: float
    ssim: float
    seconds: float


@dataclass(frozen=True)
class Picture:
    """What was seen, kept for a page with pictures."""

    dataset: str
    sigma: float
    image: str
    clean: Tensor  # (C, H, W)
    noisy: Tensor
    outputs: dict[str, Tensor]  # by method, clipped
    psnr: dict[str, float]


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
    keep: Callable[[Picture], None] | None = None,
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
    rows = []
    for sigma in sigmas:
        if not 0 <= sigma <= 255:
            raise UserError(f"sigma: expected 0 to 255 gray levels, got {sigma}")
        for method in methods:
            method.run(torch.rand(channels, 64, 64), sigma)
        for index, path in enumerate(images.paths):
            clean = images.read(index, channels)
            noisy = clean + noise(clean.shape, sigma, index, seed)
            outputs, scores = {}, {}
            for method in methods:
                start = time.perf_counter()
                out = method.run(noisy, sigma)
                seconds = time.perf_counter() - start
                outputs[method.name] = out = out.clamp(0, 1)
                scores[method.name] = psnr(out, clean)
                row = Row(method.name, images.name, sigma, path.name, scores[method.name], ssim(out, clean), seconds)
                rows.append(row)
                progress(f"{images.name} σ = {sigma:g} {path.name} {method.name}")
            if keep is not None and index < kept:
                keep(Picture(images.name, sigma, path.name, clean, noisy, outputs, scores))
    return rows


def summarize(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Means over images: one entry per model, data set and noise level, in the order they were measured."""
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.dataset, row.sigma), []).append(row)
    return [
        {
            "model": model,
            "dataset": dataset,
            "sigma": sigma,
            "psnr": float(np.mean([row.psnr for row in group])),
            "ssim": float(np.mean([row.ssim for row in group])),
            "n": len(group),
            "seconds": float(np.median([row.seconds for row in group])),
            "psnr_interval": bootstrap([row.psnr for row in group]),
            "ssim_interval": bootstrap([row.ssim for row in group]),
        }
        for (model, dataset, sigma), group in groups.items()
    ]


def report(rows: Sequence[Row], methods: Sequence[Method], seed: int) -> dict[str, Any]:
    """All that was measured and how, for a JSON file."""
    from n3net.version import __version__

    return {
        "task": "gaussian",
        "protocol": {**PROTOCOL, "seed_value": seed},
        "n3net": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "models": [{"name": m.name, "trained_for": m.trained_for, "digest": m.digest} for m in methods],
        "results": summarize(rows),
        "images": [asdict(row) for row in rows],
    }


def common_channels(methods: Sequence[Method]) -> int:
    """1 or 3: what all networks among the methods work on."""
    found = {m.channels for m in methods} - {None}
    if len(found) > 1:
        raise UserError("gray and colour networks cannot be measured on the same images; run them one after the other")
    return int(found.pop() or 1) if found else 1
