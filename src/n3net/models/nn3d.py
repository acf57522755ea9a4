"""NN3D (Cruz et al. 2018): a non-local filter on the output of a network that was trained before."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from n3net.neighbors.backends import distances
from n3net.neighbors.grid import Matching, Pads, col2im, crop, im2col, pad
from n3net.neighbors.reference import slots_of


class NN3D(nn.Module):
    """One round: the network, then a filter across groups of similar patches of its output.

    Each patch is stacked with the ``group - 1`` most similar ones around it; a Haar transform along the stack separates
    what they share from where they differ, and differences below a threshold are dropped.

    Args:
        base: the network, (B, C, H, W) -> (B, C, H, W).
        channels: C of the image; one more channel of the input is the noise map, which only the filter sees.
        group: patches of a stack, a power of 2.
        patch_size, stride, window: see :class:`n3net.nn.N3Block2d`.
        threshold: in standard deviations of the noise; the default is best on BSDS500 val for DnCNN at σ = 25 and 50.
    """

    def __init__(
        self,
        base: nn.Module,
        channels: int = 1,
        *,
        group: int = 8,
        patch_size: int = 10,
        stride: int = 5,
        window: int = 15,
        threshold: float = 0.1,
    ) -> None:
        super().__init__()
        if group < 2 or group & (group - 1):
            raise ValueError(f"group: expected a power of 2, got {group}")
        self.base, self.channels, self.group, self.threshold = base, channels, group, threshold
        self.matching = Matching(patch_size, stride, window)
        self.register_buffer("haar", haar_matrix(group), persistent=False)

    @property
    def reach(self) -> int | None:
        """How many pixels away an input pixel may influence an output pixel, where no window is shifted."""
        base, m = getattr(self.base, "reach", None), self.matching
        # a pixel's patch, the patches in whose stacks it is, and what these look at
        return None if base is None else base + m.patch_size - 1 + 2 * (m.window // 2) * m.stride

    def forward(self, x: Tensor, pads: Pads | None = None) -> Tensor:
        noise = x[:, self.channels :].mean((1, 2, 3))  # (B,)
        return self.filter(self.base(x[:, : self.channels]), noise * self.threshold, pads)

    def filter(self, image: Tensor, threshold: Tensor, pads: Pads | None = None) -> Tensor:
        """The non-local step alone: (B, C, H, W) and a threshold each (B,) -> (B, C, H, W)."""
        m, (height, width) = self.matching, image.shape[-2:]
        pads = m.padding(height, width) if pads is None else pads
        grid = m.grid(height, width, pads)
        image = pad(image, pads)
        columns = im2col(image, m.patch_size, m.stride)  # (B, D, Qh, Qw)
        patches = columns.flatten(-2).transpose(1, 2)  # (B, Q, D)
        source = image if m.patch_size % m.stride == 0 else columns
        d = distances(source, grid)  # (B, Qh, Qw, M)
        d = d.masked_fill(~grid.candidates(d.device), torch.inf).flatten(1, 2)  # (B, Q, M)
        slots = d.topk(self.group - 1, largest=False).indices  # (B, Q, group - 1)
        index = slots_of(grid, d.device)  # (Q, M)
        out = torch.empty_like(patches)
        for b in range(len(image)):
            near = index.gather(1, slots[b])  # (Q, group - 1)
            itself = torch.arange(len(index), device=d.device)[:, None]
            members = torch.cat([itself, near], 1)  # (Q, group)
            haar: Tensor = self.haar  # type: ignore[assignment]
            coefficients = haar @ patches[b][members]  # (Q, group, D)
            small = coefficients[:, 1:].abs() < threshold[b]
            coefficients[:, 1:] = coefficients[:, 1:].masked_fill(small, 0)
            filtered = (haar.mT @ coefficients).to(patches.dtype)  # (Q, group, D)
            total = torch.zeros_like(patches[b]).index_add_(0, members.flatten(), filtered.flatten(0, 1))
            out[b] = total / torch.bincount(members.flatten(), minlength=len(index))[:, None]
        columns = out.transpose(1, 2).reshape(columns.shape)
        return crop(col2im(columns, image.shape[-2], image.shape[-1], m.patch_size, m.stride), pads)


def haar_matrix(size: int) -> Tensor:
    """The orthonormal Haar transform, first row the mean: (size, size), size a power of 2."""
    if size == 1:
        return torch.ones(1, 1)
    half = haar_matrix(size // 2)
    means = torch.kron(half, torch.tensor([[1.0, 1.0]]))
    differences = torch.kron(torch.eye(size // 2), torch.tensor([[1.0, -1.0]]))
    return torch.cat([means, differences]) / math.sqrt(2)
