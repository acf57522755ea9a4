"""A network that finishes what bicubic upscaling has begun."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from n3net.matching.images import Pads


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

    def forward(self, x: Tensor, pads: Pads | None = None) -> Tensor:
        """Add what is missing.

        Args:
            x: Y of the image in [0, 1], upscaled, (B, 1, H, W); see :mod:`n3net.color` and :mod:`n3net.resizing`.
            pads: see :func:`n3net.matching.match_images`; only for nets with N3 blocks.
        """
        if x.dim() != 4 or x.shape[1] != self.channels:
            raise ValueError(f"x: expected shape (B, {self.channels}, H, W), got {tuple(x.shape)}")
        out: Tensor = self.net(x) if pads is None else self.net(x, pads=pads)
        return out if self.unit == 1 else torch.lerp(x, out.to(x.dtype), self.unit)
