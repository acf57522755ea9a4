"""The demo: a photograph with noise, denoised by the best weights there are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from n3net.denoising import denoise
from n3net.errors import UserError
from n3net.evaluation.metrics import psnr

SIGMA = 25.0
PHOTO = "astronaut"
OTHERS = ("camera", "coffee", "rocket", "chelsea", "brick", "gravel", "grass", "coins")  # to train on, where needed


def denoise_photo(path: Path, say: Callable[[str], None]) -> None:
    """Writes noisy, denoised and clean side by side, with their PSNR."""
    from n3net.compare import Panel, side_by_side

    clean = _photo(PHOTO)
    noisy = clean + np.random.default_rng(0).normal(0, SIGMA / 255, clean.shape).astype(np.float32)
    model, about = _model(say)
    restored = denoise(noisy, SIGMA, model)
    panels = [
        Panel(f"noisy, sigma {SIGMA:g} ({_psnr(noisy, clean):.2f} dB)", _bytes(noisy)),
        Panel(f"{about} ({_psnr(restored, clean):.2f} dB)", _bytes(restored)),
        Panel("clean", _bytes(clean)),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part.png")
    side_by_side(panels).save(part)
    part.replace(path)


def _model(say: Callable[[str], None]) -> tuple[Any, str]:
    """The weights that come with n3net, or a small network trained now."""
    from n3net.weights import load

    try:
        return load("gray"), "n3net gray"
    except UserError:
        pass
    say("There are no trained weights yet: training a small network for a minute, on other photographs.")
    from n3net.training import config
    from n3net.training.loop import train

    with tempfile.TemporaryDirectory() as folder:
        for name in OTHERS:
            _write(_photo(name), Path(folder, "train", f"{name}.png"))
        _write(_photo("camera")[128:256, 128:256], Path(folder, "validation", "camera.png"))
        train(config.load("demo", [f"data.root={folder}"]), Path(folder, "run"))
        return load(Path(folder, "run", "weights.safetensors")), "a minute of training"


def _photo(name: str) -> npt.NDArray[np.float32]:
    """A photograph of scikit-image in gray, (H, W) in [0, 1]."""
    try:
        import skimage.color
        import skimage.data
    except ImportError:
        raise UserError("the demo's photographs are scikit-image's: pip install 'n3net[demo]'") from None
    image = getattr(skimage.data, name)()
    gray = skimage.color.rgb2gray(image) if image.ndim == 3 else image / 255
    return np.asarray(gray, np.float32)


def _bytes(image: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    return np.asarray(np.rint(image.clip(0, 1) * 255), np.uint8)


def _write(image: npt.NDArray[np.float32], path: Path) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(_bytes(image)).save(path)


def _psnr(image: npt.NDArray[np.float32], clean: npt.NDArray[np.float32]) -> float:
    return psnr(torch.from_numpy(image), torch.from_numpy(clean))
