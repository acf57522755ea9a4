"""FFDNet (Zhang, Zuo and Zhang 2018): a plain network at half resolution that is told the noise level."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from n3net.models.interface import Network


class FFDNet(Network):
    """Pixels are rearranged into four images of half the size, and put back at the end.

    Args:
        channels: of the image; one more channel of the input is the noise map.
        depth, features: of the network; by default the authors' 15 and 64 for gray, 12 and 96 for colour images.
        norm: whether there is any batch norm; without, every convolution has a bias, as in files that were folded.

    Shape:
        (B, C + 1, H, W) -> (B, C, H, W), the image itself rather than the noise in it.
    """

    def __init__(
        self, channels: int = 1, depth: int | None = None, features: int | None = None, norm: bool = True
    ) -> None:
        super().__init__()
        depth = (15 if channels == 1 else 12) if depth is None else depth
        features = (64 if channels == 1 else 96) if features is None else features
        if depth < 2:
            raise ValueError(f"depth: expected at least 2 convolutions, got {depth}")
        layers: list[nn.Module] = [nn.Conv2d(4 * channels + 1, features, 3, padding=1), nn.ReLU(inplace=True)]
        for _ in range(depth - 2):
            layers.append(nn.Conv2d(features, features, 3, padding=1, bias=not norm))
            layers += [nn.BatchNorm2d(features)] if norm else []
            layers.append(nn.ReLU(inplace=True))
        layers.append(nn.Conv2d(features, 4 * channels, 3, padding=1))
        self.layers = nn.Sequential(*layers)
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d) and not layer.weight.is_meta:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    alignment = 2

    @property
    def reach(self) -> int:
        """How many pixels away an input pixel may influence an output pixel."""
        return 2 * sum(isinstance(layer, nn.Conv2d) for layer in self.layers) + 1

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        x = F.pad(x, (0, width % 2, 0, height % 2), mode="replicate")  # even sizes
        image, noise = x[:, :-1], x[:, -1:, ::2, ::2]
        halves = F.pixel_unshuffle(image, 2)  # (B, 4 C, H / 2, W / 2)
        out = F.pixel_shuffle(self.layers(torch.cat([halves, noise], 1)), 2)  # (B, C, H, W)
        return out[..., :height, :width]
