"""NN3D (Cruz, Foi, Katkovnik and Egiazarian 2018): a network and a non-local filter take turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from n3net.models.denoiser import Denoiser
from n3net.models.interface import Stepwise
from n3net.neighbors.backends import distances
from n3net.neighbors.grid import Grid, Matching, col2im, crop, im2col, pad
from n3net.neighbors.reference import slots_of

STRENGTH = 0.25  # tau, where coefficients are halved, in standard deviations of the noise
BAND = 2**22  # numbers of the groups that are filtered at a time


class NN3D(Stepwise):
    """Rounds k = 1, 2: a network removes noise, and a filter what differs among similar patches of its output.

    The first round starts from the noisy image z, the k-th from z / k + (1 - 1 / k) times the result before, in which
    the noise is taken for σ / k. Patches are grouped once, by the network's first output. A Haar transform along a
    group separates what its patches share from where they differ, and a difference q becomes q^3 / (q^2 + τ^2),
    τ = σ / 4 k. Each patch is a weighted mean over the groups that it is a member of: those with little left of their
    differences count more.

    Args:
        bases: the network of each round, or one for all of them. A network that knows one noise level only is asked as
            if it were the right one.
        rounds: K.
        group: patches of a group, a power of 2.
        patch_size, stride, window: of the patches that are compared, see :class:`n3net.nn.N3Block2d`.

    Shape:
        (B, C + 1, H, W) with a noise map as the last channel -> (B, C, H, W)
    """

    haar: Tensor

    def __init__(
        self,
        bases: Sequence[Denoiser],
        rounds: int = 2,
        *,
        group: int = 32,
        patch_size: int = 10,
        stride: int = 5,
        window: int = 15,
    ) -> None:
        super().__init__()
        if group < 2 or group & (group - 1):
            raise ValueError(f"group: expected a power of 2, got {group}")
        if rounds < 1 or len(bases) not in (1, rounds):
            raise ValueError(f"bases: expected one network, or one for each of {rounds} rounds, got {len(bases)}")
        if len({base.channels for base in bases}) > 1:
            raise ValueError("bases: expected networks for images of the same kind, got gray and colour ones")
        self.bases, self.rounds, self.group = nn.ModuleList(bases), rounds, group
        self.channels = bases[0].channels
        self.matching = Matching(patch_size, stride, window)
        self.register_buffer("haar", haar_matrix(group), persistent=False)

    @property
    def step_count(self) -> int:
        """How often :meth:`in_steps` applies a module."""
        return self.rounds

    def in_steps(self, apply: Callable[..., Tensor], x: Tensor) -> Tensor:
        """The method as networks that are applied to whole maps; :mod:`n3net.restoration.running` does it in parts."""
        noisy, noise = x[:, : self.channels], x[:, self.channels :]
        level = noise.square().mean((1, 2, 3)).sqrt()  # (B,)
        out, members = noisy, None
        for k in range(1, self.rounds + 1):
            base: Denoiser = self.bases[min(k, len(self.bases)) - 1]  # type: ignore[assignment]
            told = base.told(torch.lerp(out, noisy, 1 / k), 255 * noise / k)
            out = base.finish(apply(base.net, told), told)
            members = self.find(out) if members is None else members
            out = self.filter(out, members, STRENGTH * level / k)
        return out

    def find(self, image: Tensor) -> Tensor:
        """The patches of each patch's group, itself first: (B, C, H, W) -> (B, Q, group)."""
        image, grid = self._grid(image)
        source = image if self.matching.patch_size % self.matching.stride == 0 else self._columns(image)
        d = distances(source, grid)  # (B, Qh, Qw, M)
        d = d.masked_fill(~grid.candidates(d.device), torch.inf).flatten(1, 2)  # (B, Q, M)
        nearest = d.topk(min(self.group - 1, d.shape[2]), largest=False)  # (B, Q, k)
        index = slots_of(grid, d.device)  # (Q, M)
        itself = torch.arange(len(index), device=d.device)[:, None]  # (Q, 1)
        near = torch.stack([index.gather(1, slots) for slots in nearest.indices])
        near = torch.where(nearest.values.isfinite(), near, itself)
        missing = self.group - near.shape[2]  # of small images; a patch stands for those it has not
        return torch.cat([itself.expand(len(near), -1, missing), near], 2)

    def filter(self, image: Tensor, members: Tensor, tau: Tensor) -> Tensor:
        """The non-local step alone: (B, C, H, W), groups (B, Q, group) and tau (B,) -> (B, C, H, W)."""
        pads = self.matching.padding(*image.shape[-2:])
        image, _ = self._grid(image)
        columns = self._columns(image)  # (B, D, Qh, Qw)
        patches = columns.flatten(-2).transpose(1, 2)  # (B, Q, D)
        results = [self._filtered(*item) for item in zip(patches, members, tau, strict=True)]
        columns = torch.stack(results).transpose(1, 2).reshape(columns.shape)
        m = self.matching
        return crop(col2im(columns, image.shape[-2], image.shape[-1], m.patch_size, m.stride), pads)

    def _filtered(self, patches: Tensor, members: Tensor, tau: Tensor) -> Tensor:
        """(Q, D) -> (Q, D)."""
        total, weights = torch.zeros_like(patches), patches.new_zeros(len(patches))
        square = tau.square().clamp_min(1e-12)
        for part in members.split(max(1, BAND // (self.group * patches.shape[1]))):
            q = self.haar.to(patches.dtype) @ patches[part]  # (q, group, D)
            keep = q.square() / (q.square() + square)
            keep = torch.cat([torch.ones_like(keep[:, :1]), keep[:, 1:]], 1)  # the mean stays
            weight = 1 / keep.square().sum((1, 2))  # (q,)
            filtered = self.haar.mT.to(patches.dtype) @ (q * keep) * weight[:, None, None]
            total = total.index_add(0, part.flatten(), filtered.flatten(0, 1).to(patches.dtype))
            weights = weights.index_add(0, part.flatten(), weight.repeat_interleave(self.group).to(patches.dtype))
        return total / weights[:, None]

    def _grid(self, image: Tensor) -> tuple[Tensor, Grid]:
        """The image with zeros that complete its patches, and their grid."""
        height, width = image.shape[-2:]
        pads = self.matching.padding(height, width)
        return pad(image, pads), self.matching.grid(height, width, pads)

    def _columns(self, image: Tensor) -> Tensor:
        return im2col(image, self.matching.patch_size, self.matching.stride)


def haar_matrix(size: int) -> Tensor:
    """The orthonormal Haar transform, first row the mean: (size, size), size a power of 2."""
    if size == 1:
        return torch.ones(1, 1)
    half = haar_matrix(size // 2)
    means = torch.kron(half, torch.tensor([[1.0, 1.0]]))
    differences = torch.kron(torch.eye(size // 2), torch.tensor([[1.0, -1.0]]))
    return torch.cat([means, differences]) / math.sqrt(2)


def with_filter(bases: Sequence[Denoiser]) -> Denoiser:
    """NN3D on denoisers, as a denoiser that is told the noise level."""
    net = NN3D(bases)
    return Denoiser(net, net.channels, noise_map=True)
