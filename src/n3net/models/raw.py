"""A network and the noise level of raw data that it is told."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from n3net.matching.images import Pads
from n3net.raw.noise import Stabilizer


class RawDenoiser(nn.Module):
    """Removes noise of variance a·y + b from planes of one colour, linear, black 0 and white 1.

    Args:
        net: (B, 3, H, W) -> (B, 1, H, W); behind the image the net is given two constant maps.
        stabilize: whether the net works on values whose noise is equally strong everywhere (:class:`Stabilizer`): the
            maps are then its ``sigma`` and ``offset``, and what the net adds to its input counts in units of sigma, so
            that weak and strong noise ask the same of it. Otherwise it sees the values as they are, and the maps are
            a and b, as in the program of 2018.
    """

    def __init__(self, net: nn.Module, stabilize: bool = True) -> None:
        super().__init__()
        self.net, self.stabilize = net, stabilize

    def forward(self, x: Tensor, a: float | Tensor, b: float | Tensor, pads: Pads | None = None) -> Tensor:
        """Denoise.

        Args:
            x: noisy planes (B, 1, H, W), black 0 and white 1, values beyond not cut off where the sensor has them.
            a, b: of the noise, numbers or (B,).
            pads: see :func:`n3net.matching.match_images`; only for nets with N3 blocks.
        """
        if x.dim() != 4 or x.shape[1] != 1:
            raise ValueError(f"x: expected shape (B, 1, H, W), got {tuple(x.shape)}")
        first, second = (torch.as_tensor(level, dtype=x.dtype, device=x.device).reshape(-1) for level in (a, b))
        if not self.stabilize:
            return self._run(x, first, second, pads)
        scale = Stabilizer.of(x, first, second)
        v = scale.forward(x)
        correction = self._run(v, scale.sigma, scale.offset, pads) - v  # in units of sigma
        return scale.inverse(v + scale.sigma * correction)

    def _run(self, x: Tensor, first: Tensor, second: Tensor, pads: Pads | None) -> Tensor:
        maps = [level.reshape(-1, 1, 1, 1).expand_as(x) for level in (first, second)]
        told = torch.cat([x, *maps], 1)  # (B, 3, H, W)
        out: Tensor = self.net(told) if pads is None else self.net(told, pads=pads)
        return out
