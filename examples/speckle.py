"""A task and a network of one's own, without touching n3net: speckle, the noise of radar and ultrasound images.

    n3net train examples/speckle.yaml data.root=photos 'data.train=[train]' 'data.validation=[check]'

Speckle multiplies: where the image is bright it is strong. docs/training.md walks through this file. The network works
on logarithms, where speckle is added, and looks for similar patches with an N3 block between two small DnCNNs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from n3net.models import DnCNN, Model, register
from n3net.nn import N3Block2d
from n3net.tasks import build
from n3net.tasks.data import Batch, to_planes
from n3net.tasks.images import ImageOptions, ImageTask, clipped_psnr, squared_error

DARKEST = 1 / 255  # what a logarithm is taken of


class SpeckleNet(Model):
    """(B, 1, H, W) with speckle -> without. Keyword arguments are what the section ``model`` of a config sets."""

    purpose = "speckle"

    def __init__(self, depth: int = 4, features: int = 32, block_channels: int = 8, k: int = 5) -> None:
        super().__init__()
        self.first = DnCNN(1, block_channels, depth, features)
        self.block = N3Block2d(block_channels, k=k)
        self.last = DnCNN((k + 1) * block_channels, 1, depth, features)

    def forward(self, x: Tensor) -> Tensor:
        logarithm = x.clamp(min=DARKEST).log()  # each DnCNN adds what it finds to the first channels of its input
        return self.last(self.block(self.first(logarithm))).exp()  # type: ignore[no-any-return]

    def example(self, generator: torch.Generator) -> Tensor:
        """What `n3net weights verify` runs."""
        return self(torch.rand(1, 1, 40, 40, generator=generator))


register("speckle-net", SpeckleNet, "two DnCNNs on logarithms with an N3 block between them")


@dataclass(frozen=True)
class SpeckleOptions(ImageOptions):
    """The section ``data`` of a config: what all tasks on images have, and how many looks are averaged."""

    looks: int = 4


class Speckle(ImageTask):
    """Crops of clean images, multiplied with noise of mean 1."""

    Options = SpeckleOptions

    def __init__(self, options: SpeckleOptions, model: dict[str, Any], seed: int) -> None:
        super().__init__(options, model, seed, 1, options.crop)

    def build_model(self) -> nn.Module:
        return build(self.model, SpeckleNet)  # type: ignore[no-any-return]

    def item(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        clean = np.ascontiguousarray(self.crop(number, self.options.crop, rng).transpose(2, 0, 1))  # (1, H, W)
        return {"clean": clean, "noisy": self.spoil(clean, rng)}

    def spoil(self, clean: Any, rng: np.random.Generator) -> Any:
        looks = self.options.looks
        return clean * rng.gamma(looks, 1 / looks, clean.shape).astype(np.float32)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return squared_error(model(batch["noisy"]), batch["clean"])

    def validate(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, float]:
        noisy, out, clean = self.show(model, index, rng).values()
        return {"psnr": clipped_psnr(out, clean), "psnr-noisy": clipped_psnr(noisy, clean)}

    def show(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, Tensor]:
        clean = to_planes(self.validation[index])  # (1, H, W)
        pair = (torch.from_numpy(x).to(next(model.parameters()).device) for x in (self.spoil(clean, rng), clean))
        noisy, truth = pair
        return {"noisy": noisy, "denoised": model(noisy[None])[0], "clean": truth}
