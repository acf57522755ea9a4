"""Super-resolution in colour by networks that make the large image themselves (Lim et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.imaging.degradation import degrade
from n3net.models import ColorUpscaler
from n3net.tasks import build
from n3net.tasks.data import Batch, choose, random_place, random_turn, stack, to_planes
from n3net.tasks.images import ImageOptions, ImageTask, clipped_psnr


@dataclass(frozen=True)
class ColorSuperResolutionOptions(ImageOptions):
    """The section ``data`` of a config, beside what all tasks on images have.

    Args:
        crop: side of the small image; the large one is as many times larger as the factor says.
        factors: of upscaling, each as often as the others; all that the network knows by default.
    """

    crop: int = 48
    factors: tuple[int, ...] | None = None


class ColorSuperResolution(ImageTask):
    """Crops of small images and what they were made from, with a random factor each, absolute error."""

    Options = ColorSuperResolutionOptions

    def __init__(self, options: ColorSuperResolutionOptions, model: dict[str, Any], seed: int) -> None:
        super().__init__(options, model, seed, channels=3, smallest=1)
        with torch.device("meta"):
            net = self.build_model()
        self.factors = options.factors or net.factors
        if not set(self.factors) <= set(net.factors):
            raise UserError(f"data.factors: {model['name']} knows {net.factors}, got {self.factors}")
        least = options.crop * max(self.factors)
        for path, image in zip(self.train.paths, self.train.images, strict=True):
            if min(image.shape[:2]) < least:
                raise UserError(f"{path}: {image.shape[1]} x {image.shape[0]} pixels, crops need {least} each way")
        self.pairs = [{f: degrade(image, f) for f in self.factors} for image in self.train.images]

    def build_model(self) -> ColorUpscaler:
        model: ColorUpscaler = build(self.model, ColorUpscaler)
        return model

    def item(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        factor, crop = int(rng.choice(self.factors)), self.options.crop
        pair = self.pairs[choose(self.seed, number, len(self.pairs))][factor]
        rows, cols = random_place(pair.small.shape, crop, rng)
        large = pair.large[_times(rows, factor), _times(cols, factor)]
        turn = int(rng.integers(2**32))
        small, large = (
            random_turn(image, np.random.default_rng(turn)) for image in (pair.small[rows, cols], large)
        )  # the same turn
        return {"factor": factor, "small": to_planes(small), "large": to_planes(large)}

    def collate(self, items: list[dict[str, Any]]) -> Batch:
        """Items of the same factor together: ``small-2``, ``large-2`` ..."""
        batch: Batch = {}
        for factor in sorted({item["factor"] for item in items}):
            chosen = [{key: item[key] for key in ("small", "large")} for item in items if item["factor"] == factor]
            batch |= {f"{key}-{factor}": value for key, value in stack(chosen).items()}
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        total, squares, count = torch.zeros(()), torch.zeros(()), 0
        for key, small in batch.items():
            kind, _, factor = key.partition("-")
            if kind == "small":
                difference = model(small, int(factor)).float() - batch[f"large-{factor}"]
                total = total.to(small.device) + len(small) * difference.abs().mean()
                squares = squares.to(small.device) + len(small) * difference.detach().square().mean()
                count += len(small)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            # all parameters take part in every step, those of factors that were not drawn with a gradient of 0
            total = total + 0 * sum(p.sum() for p in model.parameters())
        return total / count, {"psnr": -10 * (squares / count).clamp(min=1e-10).log10()}

    def validate(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, float]:
        device = next(model.parameters()).device
        scores = {}
        for factor in self.factors:
            pair = degrade(self.validation[index], factor)
            small, large = (torch.from_numpy(to_planes(x))[None].to(device) for x in (pair.small, pair.large))
            inner = (..., slice(factor, -factor), slice(factor, -factor))
            scores[f"psnr-x{factor}"] = clipped_psnr(model(small, factor)[inner], large[inner])
        return {"psnr": sum(scores.values()) / len(scores), **scores}


def _times(part: slice, factor: int) -> slice:
    return slice(factor * part.start, factor * part.stop)
