"""A network and the noise level of raw data that it is told."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from n3net.models.interface import Model
from n3net.noise.sensor import Stabilizer


class RawDenoiser(Model):
    """Removes noise of variance a·y + b from planes of one colour, linear, black 0 and white 1.

    Args:
        net: (B, 3, H, W) -> (B, 1, H, W); behind the image the net is given two constant maps.
        stabilize: whether the net works on values whose noise is equally strong everywhere (:class:`Stabilizer`): the
            maps are then its ``sigma`` and ``offset``, and what the net adds to its input counts in units of sigma, so
            that weak and strong noise ask the same of it. Otherwise it sees the values as they are, and the maps are
            a and b, as in the program of 2018.
    """

    purpose = "raw data"

    def __init__(self, net: nn.Module, stabilize: bool = True) -> None:
        super().__init__()
        self.net, self.stabilize = net, stabilize

    @staticmethod
    def ends(**_: Any) -> tuple[int, int]:
        return 3, 1

    def example(self, generator: torch.Generator) -> Tensor:
        return self(torch.rand(1, 1, 60, 60, generator=generator), 1e-2, 1e-4)

    def forward(self, x: Tensor, a: float | Tensor, b: float | Tensor) -> Tensor:
        """Denoise.

        Args:
            x: noisy planes (B, 1, H, W), black 0 and white 1, values beyond not cut off where the sensor has them.
            a, b: of the noise, numbers or (B,).
        """
        told = self.told(x, a, b)
        return self.finish(self.net(told), told, a, b)

    def told(self, x: Tensor, a: float | Tensor, b: float | Tensor) -> Tensor:
        """What the net is given for planes, pixel by pixel."""
        if x.dim() != 4 or x.shape[1] != 1:
            raise ValueError(f"x: expected shape (B, 1, H, W), got {tuple(x.shape)}")
        levels = _levels(x, a, b)
        if self.stabilize:
            scale = Stabilizer.of(x, *levels)
            x, levels = scale.forward(x), (scale.sigma, scale.offset)
        maps = [level.reshape(-1, 1, 1, 1).expand_as(x) for level in levels]
        return torch.cat([x, *maps], 1)  # (B, 3, H, W)

    def finish(self, out: Tensor, told: Tensor, a: float | Tensor, b: float | Tensor) -> Tensor:
        """Clean planes from what the net made of what it was told, pixel by pixel."""
        if not self.stabilize:
            return out
        v = told[:, :1]
        scale = Stabilizer.of(v, *_levels(v, a, b))
        return scale.inverse(v + scale.sigma * (out - v))  # the net's correction is in units of sigma


def _levels(x: Tensor, a: float | Tensor, b: float | Tensor) -> tuple[Tensor, Tensor]:
    """a and b for each item of a batch, (B,) or (1,)."""
    first, second = (torch.as_tensor(level, dtype=x.dtype, device=x.device).reshape(-1) for level in (a, b))
    return first, second
