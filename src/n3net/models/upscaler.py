"""A network that finishes what bicubic upscaling has begun."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from n3net.models.interface import Model, Network


class Upscaler(Model):
    """Restores the luminance of bicubically upscaled images with any network for images, one for all factors.

    Args:
        net: (B, 1, H, W) -> (B, 1, H, W).
        unit: what a change of 1 by the net counts for. What bicubic upscaling misses is a few hundredths; with a unit
            of that size, a step of Adam changes the last layer's output less than what it is to learn.
    """

    purpose = "super-resolution"
    channels = 1

    def __init__(self, net: nn.Module, unit: float = 1.0) -> None:
        super().__init__()
        self.net, self.unit = net, unit

    @staticmethod
    def ends(**_: Any) -> tuple[int, int]:
        return 1, 1

    def example(self, generator: torch.Generator) -> Tensor:
        return self(torch.rand(1, 1, 60, 60, generator=generator))

    def forward(self, x: Tensor, every: bool = False) -> Tensor:
        """Add what is missing.

        Args:
            every: of a network that has several outputs, as MemNet has: all of them behind the result, (M + 1, B, 1, H,
                W), for training.
            x: Y of the image in [0, 1], upscaled, (B, 1, H, W); see :mod:`n3net.imaging`.
        """
        told = self.told(x)
        if every:
            images = torch.stack(self.net.outputs(told))  # type: ignore[operator]
            images = torch.cat([self.net.combined(images)[None], images])  # type: ignore[operator]
            return self.finish(images, told.expand_as(images))
        return self.finish(self.net(told), told)

    def told(self, x: Tensor) -> Tensor:
        """What the net is given."""
        if x.dim() != 4 or x.shape[1] != self.channels:
            raise ValueError(f"x: expected shape (B, {self.channels}, H, W), got {tuple(x.shape)}")
        return x

    def finish(self, out: Tensor, told: Tensor) -> Tensor:
        """The restored image from what the net made of it, pixel by pixel."""
        return out if self.unit == 1 else torch.lerp(told, out.to(told.dtype), self.unit)


class ColorUpscaler(Model):
    """Makes small colour images larger with a network that does the whole of it, by whole factors.

    Args:
        net: (B, 3, h, w) in [0, 1] and a factor f -> (B, 3, f h, f w); its ``factors`` say which it knows.
    """

    purpose = "super-resolution"
    channels = 3

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def example(self, generator: torch.Generator) -> Tensor:
        return self(torch.rand(1, 3, 24, 24, generator=generator), self.factors[0])

    @property
    def factors(self) -> tuple[int, ...]:
        """That the network knows, ascending."""
        known: tuple[int, ...] = self.net.factors  # type: ignore[assignment]
        return tuple(sorted(known))

    def forward(self, x: Tensor, factor: int) -> Tensor:
        """Enlarge images (B, 3, h, w)."""
        if x.dim() != 4 or x.shape[1] != self.channels:
            raise ValueError(f"x: expected shape (B, {self.channels}, H, W), got {tuple(x.shape)}")
        out: Tensor = self.net(x, factor)
        return out

    def at(self, factor: int) -> AtFactor:
        """The network for one factor, as one whose output is as large as its input."""
        return AtFactor(self.net, factor)

    def next_factor(self, factor: float) -> int:
        """The smallest factor that the network knows and that is not smaller, or its largest."""
        return next((known for known in self.factors if known >= factor), self.factors[-1])


class AtFactor(Network):
    """A network that enlarges, with all f x f pixels of the result that belong to a pixel in channels of that pixel."""

    def __init__(self, net: nn.Module, factor: int) -> None:
        super().__init__()
        self.net, self.factor = net, factor

    @property
    def reach(self) -> int:
        """How many pixels away an input pixel may influence an output pixel."""
        reach: int = self.net.reach  # type: ignore[assignment]
        return reach

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(self.net(x, self.factor), self.factor)  # (B, 3 f f, h, w)
