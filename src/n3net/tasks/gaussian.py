"""Removal of Gaussian noise (Secs. 5.1 and 5.2 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.models import Denoiser, N3Net
from n3net.tasks import build
from n3net.tasks.data import Batch, to_planes
from n3net.tasks.images import SHOWN, ImageOptions, ImageTask, clipped_psnr, missing_psnr, squared_error


@dataclass(frozen=True)
class GaussianOptions(ImageOptions):
    """The section ``data`` of a config, beside what all tasks on images have.

    Args:
        sigma: standard deviation of the noise in gray levels of 0..255: one, or the ends of a range to draw from.
        validation_sigma: noise levels of the validation; by default ``sigma``, or the middle of its range.
        guide: weights of the DnCNN on whose output a model with ``match_on: denoised`` matches.
        loss: ``squared`` error, as the paper; or ``psnr``, what is missing of it, as NLNet and UNLNet have it.
    """

    sigma: float | tuple[float, float] = 25.0
    validation_sigma: list[float] | None = None
    guide: str | None = None
    loss: Literal["squared", "psnr"] = "squared"

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.sigma_range
        if not 0 <= low <= high:
            raise ValueError(f"sigma: expected 0 or more, the smaller end first, got {self.sigma}")

    @property
    def sigma_range(self) -> tuple[float, float]:
        return self.sigma if isinstance(self.sigma, tuple) else (self.sigma, self.sigma)


class GaussianDenoising(ImageTask):
    """Crops of clean images, noise of a level that is fixed or drawn, squared error."""

    Options = GaussianOptions

    def __init__(self, options: GaussianOptions, model: dict[str, Any], seed: int) -> None:
        super().__init__(options, model, seed, model.get("channels", 1), options.crop)
        low, high = options.sigma_range
        self.validation_sigma = options.validation_sigma or [(low + high) / 2]

    def build_model(self) -> nn.Module:
        model: Denoiser = build(self.model, Denoiser)
        low, high = self.options.sigma_range
        if low != high and not model.noise_map:
            raise UserError("data.sigma: a range of noise levels needs a model that is told the level, noise_map: true")
        self._load_guide(model.net.guide if isinstance(model.net, N3Net) else None)
        return model

    def _load_guide(self, guide: nn.Module | None) -> None:
        given = self.options.guide
        if (guide is None) != (given is None):
            wants = "takes none" if guide is None else "needs the weights of the DnCNN that it matches on"
            raise UserError(f"data.guide: {self.model['name']} {wants}, got {given}")
        if guide is not None:
            from n3net.weights import load

            trained: Any = load(given)
            try:
                guide.load_state_dict(trained.net.state_dict())
            except (AttributeError, RuntimeError):
                raise UserError(f"data.guide: {given} is no DnCNN like the guide of {self.model['name']}") from None

    def item(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        crop = self.crop(number, self.options.crop, rng)  # (H, W, C)
        clean = np.ascontiguousarray(crop.transpose(2, 0, 1))  # (C, H, W)
        sigma = np.float32(rng.uniform(*self.options.sigma_range))
        noise = rng.standard_normal(clean.shape, dtype=np.float32)
        return {"clean": clean, "noisy": clean + noise * (sigma / np.float32(255)), "sigma": sigma}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        error = missing_psnr if self.options.loss == "psnr" else squared_error
        return error(model(batch["noisy"], batch["sigma"]), batch["clean"])

    def validate(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, float]:
        clean, noise = self._validation(model, index, rng)
        scores = {}
        for sigma in self.validation_sigma:
            scores[f"psnr-{sigma:g}"] = clipped_psnr(model(clean + noise * (sigma / 255), sigma), clean)
        return {"psnr": sum(scores.values()) / len(scores), **scores}

    def show(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, Tensor]:
        clean, noise = (x[..., :SHOWN, :SHOWN] for x in self._validation(model, index, rng))
        sigma = self.validation_sigma[0]
        noisy = clean + noise * (sigma / 255)
        return {"noisy": noisy[0], "denoised": model(noisy, sigma)[0], "clean": clean[0]}

    def _validation(self, model: nn.Module, index: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """A validation image, and noise of standard deviation 1, (1, C, H, W) each."""
        device = next(model.parameters()).device
        clean = torch.from_numpy(to_planes(self.validation[index]))[None]
        noise = torch.from_numpy(rng.standard_normal(tuple(clean.shape), dtype=np.float32))
        return clean.to(device), noise.to(device)
