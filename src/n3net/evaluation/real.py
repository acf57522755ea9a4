"""Photographs with real noise, and for each the mean of many shots of the same scene."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from n3net.errors import UserError
from n3net.evaluation.images import image_set
from n3net.evaluation.metrics import WINDOW, bootstrap, psnr, ssim
from n3net.io import Picture, read_image

NOISY, CLEAN = "_real", "_mean"  # endings of names
PROTOCOL = {
    "images": f"pairs NAME{NOISY}, one shot, and NAME{CLEAN}, the mean of many",
    "noise": "estimated from the one shot alone, as 'n3net denoise --real' does",
    "psnr": "output rounded to the type of the file, all channels together; mean over images of dB",
    "ssim": "Gaussian window 11 x 11, sigma 1.5, windows inside the image; mean over channels and images",
    "interval": "95 %, percentile bootstrap over images, 10,000 draws",
}


@dataclass(frozen=True)
class Row:
    """One photograph."""

    image: str
    noisy_psnr: float
    psnr: float
    noisy_ssim: float
    ssim: float
    noise: float  # estimated, median over the pixels
    confidence: float
    seconds: float


def pairs(directory: Path, limit: int | None = None) -> list[tuple[Path, Path]]:
    """Noisy photographs of a directory and what they should be."""
    paths = image_set(directory).paths
    clean = {path.stem.removesuffix(CLEAN): path for path in paths if path.stem.endswith(CLEAN)}
    noisy = {path.stem.removesuffix(NOISY): path for path in paths if path.stem.endswith(NOISY)}
    alone = [path.name for name, path in noisy.items() if name not in clean]
    if alone and clean:
        raise UserError(f"{directory}: no NAME{CLEAN} for {', '.join(alone)}")
    found = [(path, clean[name]) for name, path in noisy.items() if name in clean]
    if not found:
        raise UserError(f"{directory}: no pairs NAME{NOISY} and NAME{CLEAN} of images in it")
    return found[:limit]


def evaluate(
    found: Sequence[tuple[Path, Path]],
    model: str | Path | torch.nn.Module | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Row]:
    """Denoise all photographs."""
    from n3net.restoration.photographs import check_model, denoise_photograph, photo_denoiser_for

    net = photo_denoiser_for(model, gray=False)
    check_model(net)
    rows = []
    for noisy_path, clean_path in found:
        noisy, clean = _read(noisy_path), _read(clean_path)
        if noisy.pixels.shape != clean.pixels.shape:
            raise UserError(f"{noisy_path}: {noisy.pixels.shape}, but {clean_path.name} is {clean.pixels.shape}")
        if min(noisy.pixels.shape[:2]) < WINDOW:
            raise UserError(f"{noisy_path}: {noisy.pixels.shape}, SSIM needs {WINDOW} pixels each way")
        start = time.perf_counter()
        result = denoise_photograph(noisy.pixels, net, peak=noisy.peak)
        seconds = time.perf_counter() - start
        before, after, truth = (
            torch.from_numpy(np.atleast_3d(p).astype(np.float32) / peak).permute(2, 0, 1)  # (C, H, W)
            for p, peak in ((noisy.pixels, noisy.peak), (result.pixels, noisy.peak), (clean.pixels, clean.peak))
        )
        rows.append(
            Row(
                noisy_path.name,
                psnr(before, truth),
                psnr(after, truth),
                ssim(before, truth),
                ssim(after, truth),
                float(np.median(result.noise)),
                result.confidence,
                seconds,
            )
        )
        progress(noisy_path.name)
    return rows


def _read(path: Path) -> Picture:
    try:
        return read_image(path)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def report(rows: Sequence[Row], model: str) -> dict[str, Any]:
    """All that was measured and how, for a JSON file."""
    gains = [row.psnr - row.noisy_psnr for row in rows]
    return {
        "task": "real",
        "protocol": PROTOCOL,
        "model": model,
        "results": {
            "n": len(rows),
            "noisy_psnr": float(np.mean([row.noisy_psnr for row in rows])),
            "psnr": float(np.mean([row.psnr for row in rows])),
            "noisy_ssim": float(np.mean([row.noisy_ssim for row in rows])),
            "ssim": float(np.mean([row.ssim for row in rows])),
            "gain": float(np.mean(gains)),
            "gain_interval": bootstrap(gains),
            "least_gain": min(gains),
        },
        "images": [asdict(row) for row in rows],
    }


def markdown(content: dict[str, Any]) -> str:
    """The report as a table."""
    lines = [
        "| photograph | noisy PSNR (dB) | denoised | gain | noisy SSIM | denoised | estimated σ | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in content["images"]:
        lines.append(
            f"| {row['image']} | {row['noisy_psnr']:.2f} | {row['psnr']:.2f} | {row['psnr'] - row['noisy_psnr']:+.2f} "
            f"| {row['noisy_ssim']:.4f} | {row['ssim']:.4f} | {row['noise']:.1f} | {row['seconds']:.1f} |"
        )
    mean, (low, high) = content["results"], content["results"]["gain_interval"]
    lines.append(
        f"| mean of {mean['n']} | {mean['noisy_psnr']:.2f} | {mean['psnr']:.2f} | {mean['gain']:+.2f} "
        f"| {mean['noisy_ssim']:.4f} | {mean['ssim']:.4f} | | |"
    )
    lines.append(f"\nGain {low:+.2f} to {high:+.2f} dB (95 %), least {mean['least_gain']:+.2f} dB.")
    return "\n".join(lines)
