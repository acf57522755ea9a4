"""Removal of the noise of raw data (Sec. 5.3 of the paper, "Real image denoising")."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.models import create
from n3net.models.raw import RawDenoiser
from n3net.raw.noise import NoiseLevel, heteroscedastic, variance
from n3net.raw.simulation import PATTERNS, Scene, draw_level, draw_scene
from n3net.tasks import Task, data_root
from n3net.tasks.gaussian import LOSS_PIXELS
from n3net.training.data import Batch, Images, choose, random_crop

LEVELS = {"low": NoiseLevel(3e-4, 1e-6), "middle": NoiseLevel(3e-3, 2e-5), "high": NoiseLevel(3e-2, 4e-4)}
VALIDATION_SCENE = Scene(0.625, 2.2, (2.0, 1.6))
LEAST = 0.01  # part of the noise; what is left below it hardly counts, so that empty crops do not rule the loss


@dataclass(frozen=True)
class RawOptions:
    """The section ``data`` of a config.

    Args:
        train, validation: folders of images and single images, below ``root``.
        root: where they are; by default ``$N3NET_DATA``, else the current folder.
        factor, exponent: ranges of f_c and f_e, see :class:`n3net.raw.simulation.Scene`.
        bayer: part of the crops that are a plane of a colour filter array, with a random pattern and white balance;
            the others are the luminance.
        log_a: range of log10 a.
        spread: log10 b lies so far at most from log10 a - 2.3.
        clip_black: part of the crops whose noise is cut off at black; at white it always is.
        loss: ``squared`` error, as the paper; or ``relative``, its logarithm against the noise, for which all noise
            levels count alike.
        crop: height and width of training crops.
        crops_per_image: that make an epoch.
    """

    train: list[str]
    validation: list[str]
    root: str | None = None
    factor: tuple[float, float] = (0.25, 1.0)
    exponent: tuple[float, float] = (1.25, 10.0)
    bayer: float = 0.0
    log_a: tuple[float, float] = (-4.0, -1.0)
    spread: float = 1.3
    clip_black: float = 1.0
    loss: str = "squared"
    crop: int = 80
    crops_per_image: int = 512

    def __post_init__(self) -> None:
        for name in ("factor", "exponent", "log_a"):
            low, high = getattr(self, name)
            if low > high or (name != "log_a" and low <= 0):
                raise ValueError(f"{name}: expected the ends of a range, the smaller first, got {(low, high)}")
        for name in ("bayer", "clip_black"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected a part, 0 to 1, got {getattr(self, name)}")
        if self.loss not in ("squared", "relative"):
            raise ValueError(f"loss: expected squared or relative, got {self.loss!r}")
        for name in ("crop", "crops_per_image"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")


class RawDenoising(Task):
    """Crops of pictures turned back into raw values, noise whose variance is a·y + b."""

    Options = RawOptions
    metric = "psnr"
    unit = "crops"

    def __init__(self, options: RawOptions, model: dict[str, Any], seed: int) -> None:
        self.options, self.seed, self.model = options, seed, dict(model)
        root = data_root(options.root)
        smallest = 2 * options.crop if options.bayer else options.crop
        self.train = Images([root / place for place in options.train], 3, smallest)
        self.validation = Images([root / place for place in options.validation], 3)
        shared = {p.resolve() for p in self.train.paths} & {p.resolve() for p in self.validation.paths}
        if shared:
            raise UserError(f"data.validation: {min(shared)} is also a training image")

    @property
    def items_per_epoch(self) -> int:
        return len(self.train) * self.options.crops_per_image

    def build_model(self) -> nn.Module:
        model = create(**self.model)
        if not isinstance(model, RawDenoiser):
            raise UserError(f"model: {self.model.get('name')} is not for raw data; raw-n3net, raw-dncnn, n3net-dnd are")
        return model

    def item(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        options = self.options
        image = self.train.images[choose(self.seed, number, len(self.train))]
        scene = draw_scene(rng, options.factor, options.exponent)
        level = draw_level(rng, options.log_a, spread=options.spread)
        if rng.random() < options.bayer:
            rgb = _unit(random_crop(image, 2 * options.crop, rng))  # (2 H, 2 W, 3)
            row, column = rng.integers(2, size=2)
            plane = scene.bayer(rgb, str(rng.choice(PATTERNS)))[row::2, column::2]  # (H, W)
        else:
            plane = scene.luminance(_unit(random_crop(image, options.crop, rng)))
        clean = torch.from_numpy(np.ascontiguousarray(plane, np.float32))[None]  # (1, H, W)
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        floor = 0.0 if rng.random() < options.clip_black else -math.inf
        noisy = heteroscedastic(clean, level.a, level.b, generator).clamp(floor, 1.0)
        return {"clean": clean.numpy(), "noisy": noisy.numpy(), "a": np.float32(level.a), "b": np.float32(level.b)}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        clean, a, b = batch["clean"], batch["a"], batch["b"]
        errors = (model(batch["noisy"], a, b).float() - clean).square().flatten(1).mean(1)  # (B,)
        relative = errors / variance(clean, a, b).flatten(1).mean(1)  # (B,), part of the noise that is left
        removed = -10 * relative.detach().clamp(min=1e-6).log10().mean()
        if self.options.loss == "relative":
            return (relative / LEAST).log1p().mean(), {"gain": removed}
        return 0.5 * LOSS_PIXELS * errors.mean(), {"gain": removed}

    @property
    def validation_count(self) -> int:
        return len(self.validation)

    def validate(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, float]:
        device = next(model.parameters()).device
        rgb = _unit(self.validation.images[index])
        clean = torch.from_numpy(VALIDATION_SCENE.luminance(rgb).astype(np.float32))[None, None]  # (1, 1, H, W)
        scores = {}
        for name, level in LEVELS.items():
            generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
            noisy = heteroscedastic(clean, level.a, level.b, generator).clamp(0, 1)
            out = model(noisy.to(device), level.a, level.b).clamp(0, 1).cpu()
            scores[f"psnr-{name}"] = -10 * math.log10(max(float((out - clean).square().mean()), 1e-10))
        return {"psnr": sum(scores.values()) / len(scores), **scores}

    def card(self) -> dict[str, Any]:
        options = asdict(self.options)
        del options["root"]
        return {"images": len(self.train), **options}


def _unit(image: Any) -> Any:
    """uint8 of 0..255 -> float32 of [0, 1]."""
    return np.asarray(image, np.float32) / np.float32(255)
