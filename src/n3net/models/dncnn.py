"""DnCNN, the local network that N3Net is made of and measured against."""

from __future__ import annotations

from torch import Tensor, nn

from n3net.models.interface import Network
from n3net.nn.convolutions import FusedSequential


class DnCNN(Network):
    """Conv/BN/ReLU layers with a skip connection around them (Zhang et al. 2017; supplement, Table 9).

    Args:
        in_channels, out_channels: of the image. The input is added to the first ``min(in, out)`` channels of the
            output.
        depth: number of convolutions.
        features: of the hidden layers.
        first_norm: whether the first convolution is followed by a batch norm, as the paper's table has it, or only by
            its own bias, as in the programs.
        norm: whether there is any batch norm; without, every convolution has a bias, as in files that were folded.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int | None = None,
        depth: int = 17,
        features: int = 64,
        *,
        first_norm: bool = True,
        norm: bool = True,
    ) -> None:
        super().__init__()
        if depth < 2:
            raise ValueError(f"depth: expected at least 2 convolutions, got {depth}")
        out_channels = in_channels if out_channels is None else out_channels
        self.skip = min(in_channels, out_channels)
        layers: list[nn.Module] = []
        for i in range(depth - 1):
            normed = norm and (i > 0 or first_norm)
            layers.append(nn.Conv2d(in_channels if i == 0 else features, features, 3, padding=1, bias=not normed))
            if normed:
                layers.append(nn.BatchNorm2d(features))
            layers.append(nn.ReLU(inplace=True))
        layers.append(nn.Conv2d(features, out_channels, 3, padding=1))
        self.layers = nn.Sequential(*layers)
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d) and not layer.weight.is_meta:  # normal_ of a meta tensor takes seconds
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    @property
    def reach(self) -> int:
        """How many pixels away an input pixel may influence an output pixel."""
        return sum(isinstance(layer, nn.Conv2d) for layer in self.layers)

    def forward(self, x: Tensor) -> Tensor:
        same = x[:, : self.skip]
        if isinstance(self.layers, FusedSequential):
            return self.layers(x, add=same)
        out: Tensor = self.layers(x)
        if self.skip == out.shape[1]:
            return out + same
        out[:, : self.skip] += same
        return out
