"""NLNet (Lefkimmiatis 2017): a few steps of a non-local filter, whose parts are learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from n3net.models.interface import Network, Stepwise
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

OPPONENT = ((1 / 3, 1 / 3, 1 / 3), (0.5, 0.0, -0.5), (0.25, -0.5, 0.25))  # luminance and two differences of RGB
NOISE = 25.0 / 255  # that the first weights are made for


class NLNet(Stepwise):
    """Stages x ← (1 - λ) x + λ y - L'φ(L x): what L finds in groups of similar patches, φ judges and L' takes away.

    L filters the image with M zero-mean filters and sums the results over each pixel's group with weights that all
    filters share; L' is its adjoint, φ a function for each filter. The groups are found once, on the noisy image y.

    Args:
        channels: 1, or 3: then the network sees luminance and two differences of colours, with the same filters for
            the three of them and the groups of their mean.
        patch_size: of the filters and of the patches that are compared; by default the authors' 7 for gray images and 5
            for colour ones.
        stages, group, radius: see :class:`~n3net.models.patch_groups.PatchGroups`.
    """

    def __init__(
        self, channels: int = 1, patch_size: int | None = None, stages: int = 5, group: int = 8, radius: int = 15
    ) -> None:
        super().__init__()
        patch_size = (7 if channels == 1 else 5) if patch_size is None else patch_size
        if stages < 1:
            raise ValueError(f"stages: expected at least 1, got {stages}")
        self.channels, self.peak = channels, 255.0 if channels == 1 else 1.0
        self.groups = PatchGroups(patch_size, group, radius)
        self.stages = nn.ModuleList(NLStage(self.groups, channels, self.peak, stages) for _ in range(stages))
        self.register_buffer("opponent", torch.tensor(OPPONENT), persistent=False)

    @property
    def step_count(self) -> int:
        """How often :meth:`in_steps` applies a module."""
        return 1 + len(self.stages)

    def in_steps(self, apply: Callable[..., Tensor], x: Tensor) -> Tensor:
        """The network as modules that are applied to whole maps; :mod:`n3net.restoration.running` does it in parts."""
        codes = apply(self.groups, x.mean(1, keepdim=True) * 255)
        x = noisy = self._coded(x)
        for stage in self.stages:
            mix = stage.mix
            x = torch.lerp(x, noisy, mix) - apply(stage, x, codes)  # type: ignore[arg-type]
        return self._decoded(x).clamp(0, 1)

    def _coded(self, x: Tensor) -> Tensor:
        if self.channels == 1:
            return x * self.peak
        out = torch.einsum("ij,bjhw->bihw", self.opponent, x)
        return out + out.new_tensor([0, 0.5, 0.5]).view(-1, 1, 1)

    def _decoded(self, x: Tensor) -> Tensor:
        if self.channels == 1:
            return x / self.peak
        opponent: Any = self.opponent
        return torch.einsum("ij,bjhw->bihw", opponent.inverse(), x - x.new_tensor([0, 0.5, 0.5]).view(-1, 1, 1))


class NLStage(Network):
    """L'φ(L x) of one stage.

    Args:
        groups: that the network sums over.
        channels: planes that share their filters and have functions of their own.
        peak: white.
        stages: of the network, which share the work at first.
    """

    atoms: Tensor

    def __init__(self, groups: PatchGroups, channels: int, peak: float, stages: int) -> None:
        super().__init__()
        self.patch_size, self.radius, self.channels = groups.patch_size, groups.radius, channels
        atoms = dct_atoms(self.patch_size)[1:]  # (M, P, P), without the mean
        self.register_buffer("atoms", atoms[:, None].float(), persistent=False)  # (M, 1, P, P)
        self.mixing = nn.Parameter(torch.eye(len(atoms)))
        self.weights = nn.Parameter(torch.eye(1, groups.group)[0])
        limit, spacing, step = (100.0, 4.0, 0.1) if channels == 1 else (0.5, 0.02, 0.0005)
        start = removing(limit, spacing, 2 * NOISE * peak, 1 / (stages * self.patch_size**2))
        self.shrinkage = RadialShrinkage(channels * len(atoms), limit, spacing, step, start)
        self.mix = nn.Parameter(torch.tensor(0.0))

    @property
    def reach(self) -> int:
        """How many pixels away an input pixel may influence an output pixel."""
        return 2 * (self.radius + self.patch_size // 2)

    @property
    def out_channels(self) -> int:
        """What memory it needs."""
        return 4 * len(self.atoms) * self.channels

    def filters(self) -> Tensor:
        """(M, 1, P, P), of norm 1."""
        return torch.einsum("mk,kcij->mcij", F.normalize(self.mixing, dim=1), self.atoms)

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        filters, margin = self.filters(), self.patch_size // 2
        members = Members(codes, self.radius)
        planes = mirrored(x, margin).flatten(0, 1)[:, None]  # (B C, 1, H + P - 1, W + P - 1)
        found = F.conv2d(planes, filters).view(batch, -1, height, width)  # (B, C M, H, W)
        z = self.shrinkage(members.gather(rows_of(found), self.weights))  # (B H W, C M)
        u = image_of(members.spread(z, self.weights), batch, height, width)
        u = u.reshape(batch * channels, -1, height, width)  # (B C, M, H, W)
        return folded(F.conv_transpose2d(u, filters), margin).view(batch, channels, height, width)


def dct_atoms(size: int, depth: int | None = None) -> Tensor:
    """Orthonormal cosines, (size^2, size, size), or (depth size^2, depth, size, size); the first is the mean."""
    flat = _cosines(size)
    planes = torch.einsum("aj,bi->abij", flat, flat).reshape(-1, size, size)
    if depth is None:
        return planes
    return torch.einsum("cd,mij->cmdij", _cosines(depth), planes).reshape(-1, depth, size, size)


def _cosines(size: int) -> Tensor:
    k, n = torch.arange(size, dtype=torch.float64)[:, None], torch.arange(size, dtype=torch.float64)
    waves = torch.cos(math.pi * k * (n + 0.5) / size)
    return waves / waves.norm(dim=1, keepdim=True)
