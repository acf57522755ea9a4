"""For patches on a grid, the most similar ones around each: the block matching of BM3D and of what came after it.

Unlike :mod:`n3net.neighbors.images`, where patches of a grid are compared with each other, a patch may begin at any
pixel.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from n3net import kernel

INTERFACE_FIELDS = ("channels", "height", "width", "patch", "step", "radius", "count", "band", "wiener", "threads")
ROWS = 16  # of the grid that PyTorch takes at a time


class Problem(ctypes.Structure):
    """Mirrors ``Patches`` in kernel.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in INTERFACE_FIELDS),
        ("farthest", ctypes.c_double),
        ("threshold", ctypes.c_double),
    ]


@dataclass(frozen=True)
class Search:
    """Which patches are compared, and how many of them are kept.

    Args:
        patch: side of a patch in pixels.
        step: pixels between the patches that get a group; the last ones of a row and of a column end with the image.
        radius: how many pixels away, each way, a member of a group may lie.
        count: members of a group, itself included, at most.
        farthest: mean squared difference of a member at most.
    """

    patch: int = 8
    step: int = 3
    radius: int = 19
    count: int = 16
    farthest: float = float("inf")

    def starts(self, size: int) -> Tensor:
        """Where the patches of the grid begin along a side."""
        last = size - self.patch
        return torch.arange(-(-last // self.step) + 1).mul(self.step).clamp(max=last)

    def problem(self, shape: torch.Size | tuple[int, ...]) -> Problem:
        """As the kernel has it, for an image (C, H, W)."""
        threads = torch.get_num_threads()
        return Problem(*shape, self.patch, self.step, self.radius, self.count, 0, 0, threads, self.farthest, 0.0)


def similar_patches(image: Tensor, search: Search) -> tuple[Tensor, Tensor]:
    """The group of each patch of the grid.

    Args:
        image: (C, H, W), no side shorter than a patch.
        search: what is looked for.

    Returns:
        Pixels y W + x at which members begin, (Qh, Qw, count), int32, the patch itself first, then by distance, of
        equals the one further up, then further left; -1 where there are fewer. Their mean squared differences from it,
        of the same shape.
    """
    if image.dim() != 3 or min(image.shape[1:]) < search.patch:
        raise ValueError(
            f"image: expected shape (C, H, W) with sides of at least {search.patch}, got {tuple(image.shape)}"
        )
    if kernel.why_not(image) is not None:
        return by_torch(image, search)
    image = image.contiguous()
    shape = (len(search.starts(image.shape[1])), len(search.starts(image.shape[2])), search.count)
    index, distance = torch.empty(shape, dtype=torch.int32), image.new_empty(shape)
    kernel.run("similar", search.problem(image.shape), image, index, distance)
    return index, distance


def by_torch(image: Tensor, search: Search) -> tuple[Tensor, Tensor]:
    """The same by PyTorch alone: a difference of the image with itself for each shift."""
    height, width = image.shape[1:]
    ys, xs = search.starts(height).to(image.device), search.starts(width).to(image.device)
    found = [_rows(image, rows, xs, search) for rows in ys.split(ROWS)]
    return torch.cat([index for index, _ in found]), torch.cat([distance for _, distance in found])


def _rows(image: Tensor, ys: Tensor, xs: Tensor, search: Search) -> tuple[Tensor, Tensor]:
    """The groups of some rows of the grid."""
    height, width = image.shape[1:]
    r, p = search.radius, search.patch
    top, bottom = int(ys[0]), int(ys[-1]) + p
    rows = image[:, top:bottom]  # (C, h, W)
    distances, places = [], []
    for dy in range(-r, r + 1):
        for dx in range(-r, r + 1):
            from_y, to_y = max(top, -dy), min(bottom, height - dy)
            from_x, to_x = max(0, -dx), min(width, width - dx)
            if min(to_y - from_y, to_x - from_x) < p:
                continue
            difference = image.new_full(rows.shape[1:], torch.inf)
            here = image[:, from_y:to_y, from_x:to_x]
            there = image[:, from_y + dy : to_y + dy, from_x + dx : to_x + dx]
            difference[from_y - top : to_y - top, from_x:to_x] = (here - there).square().mean(0)
            mean = F.avg_pool2d(difference[None, None], p, 1)[0, 0]  # (h - P + 1, W - P + 1)
            distances.append(mean[ys[:, None] - top, xs])  # (Qh, Qw)
            places.append(dy * width + dx)
    d = torch.stack(distances, -1)  # (Qh, Qw, M)
    d[..., places.index(0)] = -1
    d = d.masked_fill(~(d <= search.farthest), torch.inf)
    if d.shape[-1] < search.count:
        d = F.pad(d, (0, search.count - d.shape[-1]), value=torch.inf)
    nearest, slots = (t[..., : search.count] for t in d.sort(dim=-1, stable=True))  # (Qh, Qw, count)
    offsets = torch.tensor(places + [0] * max(0, search.count - len(places)), device=image.device)
    index = (ys[:, None] * width + xs)[..., None] + offsets[slots]
    missing = ~nearest.isfinite()
    return index.masked_fill(missing, -1).int(), nearest.clamp(min=0).masked_fill(missing, torch.inf)
