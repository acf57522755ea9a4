"""Removal of the noise of raw data (Sec. 5.3 of the paper, "Real image denoising")."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from n3net.imaging.demosaicking import PATTERNS
from n3net.models.raw import RawDenoiser
from n3net.noise.sensor import heteroscedastic, variance
from n3net.raw.simulation import LEVELS, SCENE, draw_level, draw_scene
from n3net.tasks import build
from n3net.tasks.data import Batch
from n3net.tasks.images import ImageOptions, ImageTask, clipped_psnr, relative_error, squared_error


@dataclass(frozen=True)
class RawOptions(ImageOptions):
    """The section ``data`` of a config, beside what all tasks on images have.

    Args:
        factor, exponent: ranges of f_c and f_e, see :class:`n3net.raw.simulation.Scene`.
        bayer: part of the crops that are a plane of a colour filter array, with a random pattern and white balance;
            the others are the luminance.
        log_a: range of log10 a.
        spread: log10 b lies so far at most from log10 a - 2.3.
        clip_black: part of the crops whose noise is cut off at black; at white it always is.
        loss: ``squared`` error, as the paper; or ``relative``, its logarithm against the noise, for which all noise
            levels count alike.
    """

    factor: tuple[float, float] = (0.25, 1.0)
    exponent: tuple[float, float] = (1.25, 10.0)
    bayer: float = 0.0
    log_a: tuple[float, float] = (-4.0, -1.0)
    spread: float = 1.3
    clip_black: float = 1.0
    loss: Literal["squared", "relative"] = "squared"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("factor", "exponent", "log_a"):
            low, high = getattr(self, name)
            if low > high or (name != "log_a" and low <= 0):
                raise ValueError(f"{name}: expected the ends of a range, the smaller first, got {(low, high)}")
        for name in ("bayer", "clip_black"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected a part, 0 to 1, got {getattr(self, name)}")


class RawDenoising(ImageTask):
    """Crops of pictures turned back into raw values, noise whose variance is a·y + b."""

    Options = RawOptions

    def __init__(self, options: RawOptions, model: dict[str, Any], seed: int) -> None:
        super().__init__(options, model, seed, 3, 2 * options.crop if options.bayer else options.crop)

    def build_model(self) -> nn.Module:
        model: nn.Module = build(self.model, RawDenoiser)
        return model

    def item(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        options: RawOptions = self.options
        scene = draw_scene(rng, options.factor, options.exponent)
        level = draw_level(rng, options.log_a, spread=options.spread)
        if rng.random() < options.bayer:
            rgb = self.crop(number, 2 * options.crop, rng)  # (2 H, 2 W, 3)
            row, column = rng.integers(2, size=2)
            plane = scene.bayer(rgb, str(rng.choice(PATTERNS)))[row::2, column::2]  # (H, W)
        else:
            plane = scene.luminance(self.crop(number, options.crop, rng))
        clean = torch.from_numpy(np.ascontiguousarray(plane, np.float32))[None]  # (1, H, W)
        floor = 0.0 if rng.random() < options.clip_black else -math.inf
        noisy = heteroscedastic(clean, level.a, level.b, _generator(rng)).clamp(floor, 1.0)
        return {"clean": clean.numpy(), "noisy": noisy.numpy(), "a": np.float32(level.a), "b": np.float32(level.b)}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        clean, a, b = batch["clean"], batch["a"], batch["b"]
        out = model(batch["noisy"], a, b)
        loss, figures = relative_error(out, clean, variance(clean, a, b).flatten(1).mean(1))
        return squared_error(out, clean)[0] if self.options.loss == "squared" else loss, figures

    def validate(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, float]:
        device = next(model.parameters()).device
        plane = SCENE.luminance(_unit(self.validation[index])).astype(np.float32)
        clean = torch.from_numpy(plane)[None, None].to(device)  # (1, 1, H, W)
        scores = {}
        for name, level in LEVELS.items():
            noisy = heteroscedastic(clean.cpu(), level.a, level.b, _generator(rng)).clamp(0, 1).to(device)
            scores[f"psnr-{name}"] = clipped_psnr(model(noisy, level.a, level.b), clean)
        return {"psnr": sum(scores.values()) / len(scores), **scores}


def _unit(image: Any) -> Any:
    """uint8 of 0..255 -> float32 of [0, 1]."""
    return np.asarray(image, np.float32) / np.float32(255)


def _generator(rng: np.random.Generator) -> torch.Generator:
    """PyTorch's random numbers, seeded by numpy's."""
    return torch.Generator().manual_seed(int(rng.integers(2**63)))
