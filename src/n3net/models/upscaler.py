"""A network that finishes what bicubic upscaling has begun."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Upscaler(nn.Module):
    """Restores the luminance of bicubically upscaled images with any network for images, one for all factors.

    Args:
        net: (B, 1, H, W) -> (B, 1, H, W).
        unit: what a change of 1 by the net counts for. What bicubic upscaling misses is a few hundredths; with a unit
            of that size, a step of Adam changes the last layer's output less than what it is to learn.
    """

    channels = 1

    def __init__(self, net: nn.Module, unit: float = 1.0) -> None:
        super().__init__()
        self.net, self.unit = net, unit

    def forward(self, x: Tensor) -> Tensor:
        """Add what is missing.

        Args:
            x: Y of the image in [0, 1], upscaled, (B, 1, H, W); see :mod:`n3net.imaging`.
        """
        told = self.told(x)
        return self.finish(self.net(told), told)

    def told(self, x: Tensor) -> Tensor:
        """What the net is given."""
        if x.dim() != 4 or x.shape[1] != self.channels:
            raise ValueError(f"x: expected shape (B, {self.channels}, H, W), got {tuple(x.shape)}")
        return x

    def finish(self, out: Tensor, told: Tensor) -> Tensor:
        """The restored image from what the net made of it, pixel by pixel."""
        return out if self.unit == 1 else torch.lerp(told, out.to(told.dtype), self.unit)
