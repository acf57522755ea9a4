"""UNLNet (Lefkimmiatis 2018): NLNet with free filters, told the noise level, whose every stage stays near its input."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from n3net.models.interface import Network, Stepwise
from n3net.models.nlnet import NOISE, dct_atoms
from n3net.models.patch_groups import (
    Members,
    PatchGroups,
    RadialShrinkage,
    folded,
    image_of,
    mirrored,
    removing,
    rows_of,
)

PEAK = 255.0


class UNLNet(Stepwise):
    """Stages v = x - L'φ(L x), then x is the image nearest v whose distance from the noisy one fits the noise.

    That distance is a norm over the whole image, so the network works on whole images, see :meth:`in_steps`.

    Args:
        channels: of the image; one more channel of the input is the noise map, of which the root mean square counts.
        patch_size: by default the authors' 7 for gray images and 5 for colour ones.
        filters: by default as many as there are without the mean: 48 for gray images, 74 for colour ones.
        stages, group, radius: see :class:`~n3net.models.patch_groups.PatchGroups`; a group of 1 is the authors' UNet,
            the same network without neighbours.
    """

    def __init__(
        self,
        channels: int = 1,
        patch_size: int | None = None,
        filters: int | None = None,
        stages: int = 5,
        group: int = 8,
        radius: int = 15,
    ) -> None:
        super().__init__()
        patch_size = (7 if channels == 1 else 5) if patch_size is None else patch_size
        if stages < 1:
            raise ValueError(f"stages: expected at least 1, got {stages}")
        self.channels = channels
        self.groups = PatchGroups(patch_size, group, radius)
        most = channels * patch_size**2 - 1
        filters = most if filters is None else filters
        if not 1 <= filters <= most:
            raise ValueError(f"filters: expected 1 to {most}, got {filters}")
        self.stages = nn.ModuleList(UNLStage(self.groups, channels, filters, stages) for _ in range(stages))

    @property
    def step_count(self) -> int:
        """How often :meth:`in_steps` applies a module."""
        return 1 + len(self.stages)

    def in_steps(self, apply: Callable[..., Tensor], x: Tensor) -> Tensor:
        """The network as modules that are applied to whole maps; :mod:`n3net.restoration.running` does it in parts."""
        noise = x[:, self.channels :].square().mean((1, 2, 3), keepdim=True).sqrt()  # (B, 1, 1, 1)
        x = noisy = PEAK * x[:, : self.channels]
        radius = PEAK * noise * math.sqrt(max(noisy[0].numel() - 1, 1))  # of the noise, as a vector
        codes = apply(self.groups, noisy)
        for stage in self.stages:
            change = x - apply(stage, x, codes) - noisy
            allowed = radius * stage.slack.exp()  # type: ignore[operator]
            length = change.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
            x = noisy + change * (allowed / torch.maximum(length, allowed).clamp_min(1e-12))
        return (x / PEAK).clamp(0, 1)


class UNLStage(Network):
    """L'φ(L x) of one stage; see :class:`~n3net.models.nlnet.NLStage` for the arguments."""

    def __init__(self, groups: PatchGroups, channels: int, filters: int, stages: int) -> None:
        super().__init__()
        self.patch_size, self.radius = groups.patch_size, groups.radius
        start = dct_atoms(self.patch_size, channels)[1 : filters + 1]
        self.kernels = nn.Parameter(start.float())  # (M, C, P, P)
        self.scales = nn.Parameter(torch.ones(filters))
        self.weights = nn.Parameter(torch.eye(1, groups.group)[0])
        gain = 1 / (stages * self.patch_size**2)
        self.shrinkage = RadialShrinkage(filters, 100.0, 4.0, 0.1, removing(100.0, 4.0, 2 * NOISE * PEAK, gain))
        self.slack = nn.Parameter(torch.tensor(0.0))

    @property
    def reach(self) -> int:
        """How many pixels away an input pixel may influence an output pixel."""
        return 2 * (self.radius + self.patch_size // 2)

    @property
    def out_channels(self) -> int:
        """What memory it needs."""
        return 4 * len(self.kernels)

    def filters(self) -> Tensor:
        """(M, C, P, P), of mean 0 and norms that are learned."""
        centred = self.kernels - self.kernels.mean((1, 2, 3), keepdim=True)
        return F.normalize(centred.flatten(1), dim=1).view_as(centred) * self.scales.view(-1, 1, 1, 1)

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        filters, margin = self.filters(), self.patch_size // 2
        weights = self.weights / self.weights.sum()
        members = Members(codes, self.radius)
        found = rows_of(F.conv2d(mirrored(x, margin), filters))  # (B H W, M)
        u = members.spread(self.shrinkage(members.gather(found, weights)), weights)
        return folded(F.conv_transpose2d(image_of(u, batch, height, width), filters), margin)
