"""Networks that tell right from wrong correspondences: CNNet (Yi et al. 2018), and N3Net, which adds an N3 block."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from n3net.models.interface import Model
from n3net.nn import N3Block, N3Options, SetNorm


class SetBlock(nn.Module):
    """Twice a linear layer for each point, context norm, batch norm and ReLU; around them a skip connection.

    Nothing follows the sum. Where the width changes, the first linear layer changes it, and the skip is linear.
    """

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(channels, out_channels), nn.Linear(out_channels, out_channels)])
        self.norms = nn.ModuleList([SetNorm(out_channels), SetNorm(out_channels)])
        self.skip = nn.Identity() if channels == out_channels else nn.Linear(channels, out_channels)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        out = x
        for linear, norm in zip(self.linears, self.norms, strict=True):
            out = torch.relu(norm(linear(out), mask))  # (B, N, C)
        skipped: Tensor = self.skip(x)
        return out + skipped


class PointBlock(nn.Module):
    """Twice a ReLU and a linear layer for each point on its own, with a skip connection as in :class:`SetBlock`."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(channels, out_channels), nn.Linear(out_channels, out_channels)
        self.skip = nn.Identity() if channels == out_channels else nn.Linear(channels, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(torch.relu(self.first(torch.relu(x)))) + self.skip(x)
        return out


def point_net(channels: int, out_channels: int, features: int) -> nn.Sequential:
    """The embedding and temperature nets of the N3 block for correspondences."""
    widths = [channels, features, features, out_channels]
    return nn.Sequential(*(PointBlock(a, b) for a, b in pairwise(widths)))


class CNNet(Model):
    """Scores of correspondences, each judged in the context of all.

    Args:
        features: of the hidden layers.
        depth: residual blocks.
        ratio, mutual: whether the descriptors' distance ratio and whether a match is mutual are inputs, too.

    Shape:
        matches :math:`(B, N, C)`, C = 4 to 6, see :mod:`n3net.correspondence.inputs`; mask :math:`(B, N)`,
        true where there is a match
        -> logits :math:`(B, N)`. A match is kept where its logit is at least 0.

    Example:
        >>> CNNet(features=32, depth=4)(torch.rand(2, 100, 4)).shape
        torch.Size([2, 100])
    """

    purpose = "matches"

    def __init__(self, features: int = 128, depth: int = 12, *, ratio: bool = False, mutual: bool = False) -> None:
        super().__init__()
        self.ratio, self.mutual = ratio, mutual
        self.first = nn.Linear(self.in_channels, features)
        self.blocks = nn.ModuleList([SetBlock(features, features) for _ in range(depth)])
        self.last = nn.Linear(features, 1)
        _initialize(self)

    def example(self, generator: torch.Generator) -> Tensor:
        return self(torch.rand(1, 60, self.in_channels, generator=generator))

    @property
    def in_channels(self) -> int:
        return 4 + self.ratio + self.mutual

    def forward(self, matches: Tensor, mask: Tensor | None = None) -> Tensor:
        if matches.dim() != 3 or matches.shape[2] != self.in_channels:
            raise ValueError(f"matches: expected shape (B, N, {self.in_channels}), got {tuple(matches.shape)}")
        if mask is not None:
            matches = matches.masked_fill(~mask[..., None], 0)  # what a masked match holds must not matter
        x = self.first(matches)  # (B, N, C)
        for block in self.blocks:
            x = block(x, mask)
        out: Tensor = self.last(x).squeeze(-1)  # (B, N)
        return out


class CorrespondenceN3Net(CNNet):
    """CNNet with an N3 block after the middle block, which is narrowed so that the block's output is as wide again.

    Args:
        features, depth, ratio, mutual: as of :class:`CNNet`; ``features`` must be a multiple of ``k + 1``.
        k: neighbours.
        options: of :class:`n3net.nn.N3Block`.
        block_features: of the hidden layers of the embedding and temperature nets.
    """

    def __init__(
        self,
        features: int = 128,
        depth: int = 12,
        k: int = 3,
        *,
        options: str | N3Options = "paper",
        block_features: int = 128,
        ratio: bool = False,
        mutual: bool = False,
    ) -> None:
        if features % (k + 1):
            raise ValueError(f"features: expected a multiple of k + 1 = {k + 1}, got {features}")
        if depth < 2:
            raise ValueError(f"depth: expected at least 2 blocks, one before the N3 block and one after, got {depth}")
        super().__init__(features, depth, ratio=ratio, mutual=mutual)
        narrow, middle = features // (k + 1), depth // 2
        self.blocks[middle - 1] = SetBlock(features, narrow)
        embedding, temperature = point_net(narrow, narrow, block_features), point_net(narrow, 1, block_features)
        block = N3Block(narrow, k, options=options, embedding=embedding, temperature=temperature)
        self.blocks.insert(middle, block)
        _initialize(self)


def _initialize(model: nn.Module) -> None:
    """As CNNet does: a truncated normal distribution of deviation 2 / fan-in, not its root; biases 0."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and not module.weight.is_meta:
            deviation = 2 / module.in_features
            nn.init.trunc_normal_(module.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
            nn.init.zeros_(module.bias)
