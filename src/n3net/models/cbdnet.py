"""CBDNet (Guo et al. 2019): a network estimates the noise of a photograph, a second one is told and removes it."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from n3net.models.interface import Network

ASYMMETRY = 0.3  # an estimate that is too low counts 0.7, one that is too high 0.3
ESTIMATE, SMOOTH = 0.5, 0.05  # what the errors of the estimate and its steps count in the loss


class CBDNet(Network):
    """An estimator of the noise level of each pixel and channel, and a U-shaped network that is given its result.

    Args:
        features: of the full resolution; twice and four times as many below. The estimator has half of them.

    Shape:
        (B, 3, H, W) in [0, 1] -> (B, 3, H, W)
    """

    alignment = 4
    estimates_noise = True

    def __init__(self, features: int = 64) -> None:
        super().__init__()
        f, half = features, max(features // 2, 1)
        self.estimator = convolutions(3, half, half, half, half, 3)
        self.down0 = convolutions(6, f, f, f, f)
        self.shrink0 = nn.Sequential(nn.Conv2d(f, 4 * f, 2, stride=2), nn.Conv2d(4 * f, 2 * f, 1))
        self.down1 = convolutions(2 * f, 2 * f, 2 * f, 2 * f)
        self.shrink1 = nn.Sequential(nn.Conv2d(2 * f, 8 * f, 2, stride=2), nn.Conv2d(8 * f, 4 * f, 1))
        self.bottom = convolutions(*[4 * f] * 7, 8 * f)
        self.grow1 = nn.ConvTranspose2d(8 * f, 2 * f, 2, stride=2, bias=False)
        self.up1 = convolutions(2 * f, 2 * f, 2 * f, 4 * f)
        self.grow0 = nn.ConvTranspose2d(4 * f, f, 2, stride=2, bias=False)
        self.up0 = convolutions(f, f, f)
        self.last = nn.Conv2d(f, 3, 3, padding=1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d) and not layer.weight.is_meta:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        if not self.last.weight.is_meta:
            nn.init.normal_(self.last.weight, std=1e-3)  # starts near the identity

    @property
    def reach(self) -> int:
        """How many pixels away an input pixel may influence an output pixel."""
        estimator, full, half, quarter = 5, 4 + 3, 3 + 3, 7
        return estimator + full + 2 * half + 4 * quarter + self.alignment

    def forward(self, x: Tensor) -> Tensor:
        return self.both(x)[0]

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The image without noise, and the standard deviation of the noise in it, as it was estimated."""
        height, width = x.shape[-2:]
        more = (0, -width % 4, 0, -height % 4)  # to sides that are multiples of 4
        x = F.pad(x, more, mode="reflect" if min(height, width) > 3 else "replicate")
        noise = self.estimator(x)
        a = self.down0(torch.cat([x, noise], 1))  # (B, f, H, W)
        b = self.down1(self.shrink0(a))  # (B, 2 f, H / 2, W / 2)
        y = self.grow1(self.bottom(self.shrink1(b))) + b  # (B, 2 f, H / 2, W / 2)
        y = self.grow0(self.up1(y)) + a  # (B, f, H, W)
        out = x + self.last(self.up0(y))
        return out[..., :height, :width], noise[..., :height, :width]


def convolutions(*channels: int) -> nn.Sequential:
    """3 x 3 convolutions from each number of channels to the next, each with a ReLU behind it."""
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def cbdnet_loss(out: Tensor, clean: Tensor, estimate: Tensor, noise: Tensor) -> Tensor:
    """Squared errors of the image and of the noise level, of which too low ones count more, and steps of the latter.

    Args:
        out, clean: images (B, 3, H, W).
        estimate, noise: standard deviations of the noise in units of white, estimated and true, (B, 3, H, W).
    """
    weight = (ASYMMETRY - (estimate < noise).float()).abs()
    asymmetric = (weight * (estimate - noise).square()).mean()
    smooth = sum((estimate.diff(dim=dim).square().mean() for dim in (2, 3)), start=out.new_zeros(()))
    return (out - clean).square().mean() + ESTIMATE * asymmetric + SMOOTH * smooth
