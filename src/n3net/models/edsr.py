"""EDSR and MDSR (Lim et al. 2017): residual networks at the size of the small image, in colour."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from n3net.models.interface import Network

MEAN = (0.4488, 0.4371, 0.4040)  # of DIV2K's colours
FACTORS = (2, 3, 4)


class ResidualBlock(nn.Module):
    """Two convolutions with a ReLU between them, times ``scale``, and their input."""

    def __init__(self, features: int, kernel: int = 3, scale: float = 1.0) -> None:
        super().__init__()
        first, second = (nn.Conv2d(features, features, kernel, padding=kernel // 2) for _ in range(2))
        self.layers, self.scale = nn.Sequential(first, nn.ReLU(inplace=True), second), scale

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return torch.add(x, out, alpha=self.scale)


class MDSR(Network):
    """One body for all factors, with a beginning and an end for each.

    Args:
        factors: of upscaling, 2, 3 and 4 or some of them; with ``factors=(f,)`` and ``pre_blocks=0`` it is EDSR.
        blocks, features: of the body.
        pre_blocks: residual blocks with kernels of 5 x 5 before it, for each factor.
        scale: of what residual blocks add.

    Shape:
        (B, 3, H, W) in [0, 1] and a factor f -> (B, 3, f H, f W)
    """

    mean: Tensor

    def __init__(
        self,
        factors: tuple[int, ...] = FACTORS,
        blocks: int = 80,
        features: int = 64,
        pre_blocks: int = 2,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        if not factors or any(factor not in FACTORS for factor in factors):
            raise ValueError(f"factors: expected some of {FACTORS}, got {factors}")
        self.factors = tuple(factors)
        self.head = nn.Conv2d(3, features, 3, padding=1)
        self.pre = nn.ModuleDict(
            {str(f): nn.Sequential(*(ResidualBlock(features, 5, scale) for _ in range(pre_blocks))) for f in factors}
        )
        self.body = nn.Sequential(*(ResidualBlock(features, 3, scale) for _ in range(blocks)))
        self.body_end = nn.Conv2d(features, features, 3, padding=1)
        self.enlarge = nn.ModuleDict({str(f): enlarging(features, f) for f in factors})
        self.tail = nn.Conv2d(features, 3, 3, padding=1)
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1), persistent=False)

    @property
    def reach(self) -> int:
        """How many pixels of the small image away an input pixel may influence an output pixel."""
        before = max(4 * len(blocks) for blocks in self.pre.values())  # type: ignore[arg-type]
        return 1 + before + 2 * len(self.body) + 1 + 2 + 1

    def forward(self, x: Tensor, factor: int) -> Tensor:
        if factor not in self.factors:
            raise ValueError(f"factor: expected {' or '.join(map(str, self.factors))}, got {factor}")
        x = self.pre[str(factor)](self.head(255 * (x - self.mean)))
        x = self.body_end(self.body(x)) + x
        out: Tensor = self.tail(self.enlarge[str(factor)](x)) / 255 + self.mean  # (B, 3, f H, f W)
        return out


def enlarging(features: int, factor: int) -> nn.Sequential:
    """A convolution that makes the pixels of the larger image, or two of them for 4."""
    steps = [2, 2] if factor == 4 else [factor]
    layers: list[nn.Module] = []
    for step in steps:
        layers += [nn.Conv2d(features, step**2 * features, 3, padding=1), nn.PixelShuffle(step)]
    return nn.Sequential(*layers)
