"""MemNet (Tai, Yang, Liu and Xu 2017): blocks whose gates see the outputs of all blocks before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from n3net.models.interface import Network


class MemNet(Network):
    """``blocks`` memory blocks of ``units`` residual units each, and an image from each of them, which are weighted.

    All convolutions come behind a batch norm and a ReLU. The units of a block share their two convolutions, the images
    share one; their norms they do not share.

    Args:
        blocks, units: M and R, 6 and 6 or 10 and 10.
        features: of all layers but the first and the last.

    Shape:
        (B, 1, H, W) -> (B, 1, H, W)
    """

    def __init__(self, blocks: int = 6, units: int = 6, features: int = 64) -> None:
        super().__init__()
        if min(blocks, units, features) < 1:
            raise ValueError(f"blocks, units, features: expected at least 1, got {blocks}, {units}, {features}")
        self.first = nn.Sequential(nn.BatchNorm2d(1), nn.ReLU(), nn.Conv2d(1, features, 3, padding=1))
        self.blocks = nn.ModuleList(MemoryBlock(features, units, 1 + m) for m in range(blocks))
        self.last_norms = nn.ModuleList(norm(features) for _ in range(blocks))
        self.last = nn.Conv2d(features, 1, 3, padding=1)
        self.weights = nn.Parameter(torch.full((blocks,), 1 / blocks))
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d) and not layer.weight.is_meta:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    @property
    def reach(self) -> int:
        """How many pixels away an input pixel may influence an output pixel."""
        return 2 + sum(2 * len(block.units) for block in self.blocks if isinstance(block, MemoryBlock))

    def forward(self, x: Tensor) -> Tensor:
        return self.combined(torch.stack(self.outputs(x)))

    def combined(self, images: Tensor) -> Tensor:
        """The result, from the images of all blocks: (M, B, 1, H, W) -> (B, 1, H, W)."""
        return torch.einsum("m,mbchw->bchw", self.weights, images)

    def outputs(self, x: Tensor) -> list[Tensor]:
        """The images of all blocks, of which the result is the weighted sum; in training each is compared, too."""
        memory = [self.first(x)]
        images = []
        for block, last_norm in zip(self.blocks, self.last_norms, strict=True):
            memory.append(block(memory))
            images.append(x + self.last(last_norm(memory[-1])))
        return images


class MemoryBlock(nn.Module):
    """Residual units, and a gate that chooses from their outputs and those of all blocks before, ``longterm`` many."""

    def __init__(self, features: int, units: int, longterm: int) -> None:
        super().__init__()
        self.units = nn.ModuleList(nn.ModuleList([norm(features), norm(features)]) for _ in range(units))
        self.convolutions = nn.ModuleList(nn.Conv2d(features, features, 3, padding=1) for _ in range(2))
        wide = (longterm + units) * features
        self.gate = nn.Sequential(nn.BatchNorm2d(wide), nn.ReLU(inplace=True), nn.Conv2d(wide, features, 1))

    def forward(self, memory: list[Tensor]) -> Tensor:
        """Of the outputs of the first layer and all blocks before, (B, C, H, W) each, the next one."""
        first, second = self.convolutions
        recent = [memory[-1]]
        for norms in self.units:
            recent.append(recent[-1] + second(norms[1](first(norms[0](recent[-1])))))  # type: ignore[index]
        out: Tensor = self.gate(torch.cat([*memory, *recent[1:]], 1))  # (B, C, H, W)
        return out


def norm(features: int) -> nn.Sequential:
    """A batch norm and a ReLU."""
    return nn.Sequential(nn.BatchNorm2d(features), nn.ReLU(inplace=True))
