"""The demo: a photograph with noise, denoised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from n3net.errors import UserError
from n3net.evaluation.metrics import psnr
from n3net.imaging.comparison import Panel, side_by_side
from n3net.io.files import writing
from n3net.restoration.denoising import denoise

SIGMA = 25.0


def denoise_photo(path: Path) -> None:
    """Writes noisy, denoised and clean side by side, with their PSNR."""
    clean = _photo()
    noisy = clean + np.random.default_rng(0).normal(0, SIGMA / 255, clean.shape).astype(np.float32)
    restored = denoise(noisy, SIGMA)
    panels = [
        Panel(f"noisy, sigma {SIGMA:g} ({_psnr(noisy, clean):.2f} dB)", _bytes(noisy)),
        Panel(f"n3net denoise ({_psnr(restored, clean):.2f} dB)", _bytes(restored)),
        Panel("clean", _bytes(clean)),
    ]
    with writing(path, force=True) as file:
        side_by_side(panels).save(file, "PNG")


def _photo() -> npt.NDArray[np.float32]:
    """A photograph of scikit-image, (H, W, 3) in [0, 1]."""
    try:
        import skimage.data
    except ImportError:
        raise UserError("the demo's photograph is scikit-image's: pip install 'n3net[demo]'") from None
    return np.asarray(skimage.data.astronaut() / 255, np.float32)


def _bytes(image: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    return np.asarray(np.rint(image.clip(0, 1) * 255), np.uint8)


def _psnr(image: npt.NDArray[np.float32], clean: npt.NDArray[np.float32]) -> float:
    return psnr(torch.from_numpy(image), torch.from_numpy(clean))
