"""Super-resolution of bicubically downscaled images (Sec. 5.4 of the paper; supplement, "Training details")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from n3net.imaging.degradation import degrade
from n3net.models import MemNet, Upscaler
from n3net.tasks import build
from n3net.tasks.data import Batch, choose, random_place, random_turn
from n3net.tasks.images import ImageOptions, ImageTask, clipped_psnr, squared_error


@dataclass(frozen=True)
class SuperResolutionOptions(ImageOptions):
    """The section ``data`` of a config, beside what all tasks on images have.

    Args:
        factors: of upscaling, whole numbers, each as often as the others.
    """

    factors: tuple[int, ...] = (2, 3, 4)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.factors or min(self.factors) < 1:
            raise ValueError(f"factors: expected whole numbers of at least 1, got {self.factors}")
        if self.colors:
            raise ValueError(f"colors: expected 0, as super-resolution trains on luminance, got {self.colors}")


class SuperResolution(ImageTask):
    """Crops of the luminance, as it is and as bicubic upscaling gives it, squared error."""

    Options = SuperResolutionOptions
    every = False  # whether all outputs of the network are compared

    def __init__(self, options: SuperResolutionOptions, model: dict[str, Any], seed: int) -> None:
        super().__init__(options, model, seed, channels=3, smallest=1)
        self.factors = options.factors
        least = options.crop + max(self.factors) - 1
        self.pairs = [{f: degrade(_at_least(image, least), f) for f in self.factors} for image in self.train.images]

    def build_model(self) -> nn.Module:
        model: Upscaler = build(self.model, Upscaler)
        self.every = isinstance(model.net, MemNet)
        return model

    def item(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        pair = self.pairs[choose(self.seed, number, len(self.pairs))][int(rng.choice(self.factors))]
        part = random_place(pair.high.shape, self.options.crop, rng)
        both = random_turn(np.dstack([pair.high[part], pair.upscaled(part)]), rng)  # (H, W, 2)
        return {"clean": both[None, ..., 0].copy(), "upscaled": both[None, ..., 1].copy()}  # (1, H, W) each

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        if self.every:  # all outputs are compared, and count alike
            outputs = model(batch["upscaled"], every=True)  # (M + 1, B, 1, H, W)
            losses = [squared_error(out, batch["clean"]) for out in outputs]
            loss, figures = torch.stack([loss for loss, _ in losses]).sum(), losses[0][1]
        else:
            loss, figures = squared_error(model(batch["upscaled"]), batch["clean"])
        _, bicubic = squared_error(batch["upscaled"], batch["clean"])
        return loss, {**figures, "gain": figures["psnr"] - bicubic["psnr"]}

    def validate(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, float]:
        device = next(model.parameters()).device
        scores = {}
        for factor in self.factors:
            pair = degrade(self.validation[index], factor)
            high, upscaled = (torch.from_numpy(y)[None, None].to(device) for y in (pair.high, pair.upscaled()))
            inner = (..., slice(factor, -factor), slice(factor, -factor))
            scores[f"psnr-x{factor}"] = clipped_psnr(model(upscaled)[inner], high[inner])
        return {"psnr": sum(scores.values()) / len(scores), **scores}


def _at_least(image: npt.NDArray[np.uint8], side: int) -> npt.NDArray[np.uint8]:
    """An image, mirrored at its lower and right border where it is smaller than training needs."""
    more = [(0, max(0, side - length)) for length in image.shape[:2]]
    return np.pad(image, [*more, (0, 0)], mode="symmetric")
