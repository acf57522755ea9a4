"""Removal of Gaussian noise (Sec. 5.1 of the paper)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.models import create
from n3net.tasks import Task, data_root
from n3net.training.data import Batch, Images, choose, random_crop, to_planes

LOSS_PIXELS = 1600  # the loss of a crop counts like that of 40 x 40 pixels, DnCNN's; weight decay is relative to it


@dataclass(frozen=True)
class GaussianOptions:
    """The section ``data`` of a config.

    Args:
        train, validation: folders of images and single images, below ``root``.
        root: where they are; by default ``$N3NET_DATA``, else the current folder.
        sigma: standard deviation of the noise in gray levels of 0..255: one, or the ends of a range to draw from.
        crop: height and width of training crops.
        crops_per_image: that make an epoch.
        validation_images: how many of the validation images are used, evenly chosen; 0 for all.
        validation_sigma: noise levels of the validation; by default ``sigma``, or the middle of its range.
        guide: weights of the DnCNN on whose output a model with ``match_on: denoised`` matches.
    """

    train: list[str]
    validation: list[str]
    root: str | None = None
    sigma: float | tuple[float, float] = 25.0
    crop: int = 80
    crops_per_image: int = 512
    validation_images: int = 0
    validation_sigma: list[float] | None = None
    guide: str | None = None

    def __post_init__(self) -> None:
        low, high = self.sigma_range
        if not 0 <= low <= high:
            raise ValueError(f"sigma: expected 0 or more, the smaller end first, got {self.sigma}")
        for name in ("crop", "crops_per_image"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")

    @property
    def sigma_range(self) -> tuple[float, float]:
        return self.sigma if isinstance(self.sigma, tuple) else (self.sigma, self.sigma)


class GaussianDenoising(Task):
    """Crops of clean images, noise of a level that is fixed or drawn, squared error."""

    Options = GaussianOptions
    metric = "psnr"
    unit = "crops"

    def __init__(self, options: GaussianOptions, model: dict[str, Any], seed: int) -> None:
        self.options, self.seed, self.model = options, seed, dict(model)
        channels = self.model.get("channels", 1)
        root = data_root(options.root)
        self.train = Images([root / place for place in options.train], channels, options.crop)
        validation = Images([root / place for place in options.validation], channels)
        shared = {p.resolve() for p in self.train.paths} & {p.resolve() for p in validation.paths}
        if shared:
            raise UserError(f"data.validation: {min(shared)} is also a training image")
        count = min(options.validation_images or len(validation), len(validation))
        self.validation = [validation.images[i * len(validation) // count] for i in range(count)]
        low, high = options.sigma_range
        self.validation_sigma = options.validation_sigma or [(low + high) / 2]

    @property
    def items_per_epoch(self) -> int:
        return len(self.train) * self.options.crops_per_image

    def build_model(self) -> nn.Module:
        model = create(**self.model)
        low, high = self.options.sigma_range
        if low != high and not getattr(model, "noise_map", True):
            raise UserError("data.sigma: a range of noise levels needs a model that is told the level, noise_map: true")
        if self.options.guide is not None:
            from n3net.weights import load

            guide: Any = load(self.options.guide)
            net: Any = model.net
            net.guide.load_state_dict(guide.net.state_dict())
        return model

    def item(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        image = self.train.images[choose(self.seed, number, len(self.train))]
        clean = to_planes(random_crop(image, self.options.crop, rng))  # (C, H, W)
        sigma = np.float32(rng.uniform(*self.options.sigma_range))
        noise = rng.standard_normal(clean.shape, dtype=np.float32)
        return {"clean": clean, "noisy": clean + noise * (sigma / np.float32(255)), "sigma": sigma}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        clean: Tensor = batch["clean"]
        errors = (model(batch["noisy"], batch["sigma"]).float() - clean).square().flatten(1).mean(1)  # (B,)
        psnr = -10 * errors.detach().clamp(min=1e-10).log10().mean()
        return 0.5 * LOSS_PIXELS * clean.shape[1] * errors.mean(), {"psnr": psnr}

    @property
    def validation_count(self) -> int:
        return len(self.validation)

    def validate(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, float]:
        device = next(model.parameters()).device
        clean = torch.from_numpy(to_planes(self.validation[index]))[None].to(device)  # (1, C, H, W)
        noise = torch.from_numpy(rng.standard_normal(tuple(clean.shape), dtype=np.float32)).to(device)
        scores = {}
        for sigma in self.validation_sigma:
            error = (model(clean + noise * (sigma / 255), sigma).clamp(0, 1) - clean).square().mean()
            scores[f"psnr-{sigma:g}"] = -10 * math.log10(max(float(error), 1e-10))
        return {"psnr": sum(scores.values()) / len(scores), **scores}

    def card(self) -> dict[str, Any]:
        options = asdict(self.options)
        del options["root"]
        return {"images": len(self.train), **options}
