"""What tasks on images have in common: crops of training images, squared error, PSNR of whole validation images."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from n3net.errors import UserError
from n3net.tasks import Task, training_root
from n3net.tasks.data import Images, choose, random_crop
from n3net.tasks.recoloring import recolor

LOSS_PIXELS = 1600  # the loss of a crop counts like that of 40 x 40 pixels, DnCNN's; weight decay is relative to it
SHOWN = 256  # pixels along a side of what is shown of a validation image
LEAST = 0.01  # part of the noise; what is left below it hardly counts, so that empty crops do not rule the loss


@dataclass(frozen=True)
class ImageOptions:
    """What the section ``data`` of a config says for every task on images.

    Args:
        train, validation: folders of images and single images, below ``root``.
        root: where they are; by default ``$N3NET_DATA``, else the current folder.
        crop: height and width of training crops.
        crops_per_image: that make an epoch.
        colors: part of the crops that are given other colours, see :mod:`n3net.tasks.recoloring`.
        validation_images: how many of the validation images are used, evenly chosen; 0 for all.
    """

    train: list[str]
    validation: list[str]
    root: str | None = None
    crop: int = 80
    crops_per_image: int = 512
    colors: float = 0.0
    validation_images: int = 0

    def __post_init__(self) -> None:
        for name, least in (("crop", 1), ("crops_per_image", 1), ("validation_images", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: expected at least {least}, got {getattr(self, name)}")
        if not 0 <= self.colors <= 1:
            raise ValueError(f"colors: expected a part, 0 to 1, got {self.colors}")


class ImageTask(Task):
    """A task whose items are crops of images; images of (H, W, channels) with at least ``smallest`` pixels a side."""

    metric = "psnr"
    unit = "crops"

    def __init__(self, options: Any, model: dict[str, Any], seed: int, channels: int, smallest: int) -> None:
        self.options, self.seed, self.model = options, seed, dict(model)
        root = training_root(options.root)
        self.train = Images([root / place for place in options.train], channels, smallest)
        validation = Images([root / place for place in options.validation], channels)
        shared = {p.resolve() for p in self.train.paths} & {p.resolve() for p in validation.paths}
        if shared:
            raise UserError(f"data.validation: {min(shared)} is also a training image")
        count = min(options.validation_images or len(validation), len(validation))
        self.validation = [validation.images[i * len(validation) // count] for i in range(count)]

    @property
    def items_per_epoch(self) -> int:
        return len(self.train) * int(self.options.crops_per_image)

    def crop(self, number: int, size: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """A square of the training image of an item, turned and perhaps recoloured, (H, W, C) in [0, 1]."""
        crop = random_crop(self.train.images[choose(self.seed, number, len(self.train))], size, rng)
        if self.options.colors and rng.random() < self.options.colors:
            return recolor(crop, rng)
        return np.asarray(crop, np.float32) / np.float32(255)

    @property
    def validation_count(self) -> int:
        return len(self.validation)

    def card(self) -> dict[str, Any]:
        options = asdict(self.options)
        del options["root"]
        return {"images": len(self.train), **options}


def squared_error(out: Tensor, clean: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a batch (B, C, H, W), half the sum of squares of an item, and its PSNR to show beside it."""
    errors = (out.float() - clean).square().flatten(1).mean(1)  # (B,)
    shown = -10 * errors.detach().clamp(min=1e-10).log10().mean()
    return 0.5 * LOSS_PIXELS * clean.shape[1] * errors.mean(), {"psnr": shown}


def missing_psnr(out: Tensor, clean: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """What is missing to 100 dB, for which all noise levels count nearly alike, and the PSNR to show beside it."""
    psnr = -10 * (out.float() - clean).square().flatten(1).mean(1).clamp(min=1e-10).log10().mean()
    return 100 - psnr, {"psnr": psnr.detach()}


def relative_error(out: Tensor, clean: Tensor, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The logarithm of the mean square error against that of the noise, (B,), for which all noise levels count alike.

    And how much less it is in dB, to show beside it.
    """
    left = (out.float() - clean).square().flatten(1).mean(1) / noise  # (B,), part of the noise
    gain = -10 * left.detach().clamp(min=1e-6).log10().mean()
    return (left / LEAST).log1p().mean(), {"gain": gain}


def clipped_psnr(out: Tensor, clean: Tensor) -> float:
    """Of an output that is clipped to [0, 1] first."""
    return -10 * math.log10(max(float((out.clamp(0, 1) - clean).square().mean()), 1e-10))
