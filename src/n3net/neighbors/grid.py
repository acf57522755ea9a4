"""Who is compared with whom: patches on a stride grid, each with a window of candidates.

| letter | meaning                                                          |
|--------|------------------------------------------------------------------|
| B      | batch                                                            |
| C      | channels                                                         |
| s      | pixels along one side of a cell                                  |
| m      | cells along one side of a patch                                  |
| G      | cells along an axis of the image                                 |
| Q      | patches (queries) along an axis, G - m + 1                       |
| w, M   | patches along one side of a window, slots of a window (M = w²)   |
| F      | features of a cell, C s²                                         |

A patch of P = m s pixels on a grid of stride s is m x m whole cells. Slot (i, j) of the window of query q is the
patch ``start(q) + (i, j)``. A slot that lies outside the image, or is the query itself, is not a candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Border = Literal["shift", "clip"]
Pads = tuple[int, int, int, int]  # pixels (left, right, top, bottom)


@dataclass(frozen=True)
class Grid:
    """The cells of an image and the windows of its patches.

    Args:
        rows, cols: cells of the image.
        cell: s, pixels along one side of a cell.
        patch: m, cells along one side of a patch.
        window: w, patches along one side of a window.
        border: ``"shift"`` moves a window inwards where it would stick out of the image, so that queries at the border
            have as many candidates as the others; ``"clip"`` cuts it off there.
    """

    rows: int
    cols: int
    cell: int
    patch: int
    window: int
    border: Border = "shift"

    @property
    def query_rows(self) -> int:
        return self.rows - self.patch + 1

    @property
    def query_cols(self) -> int:
        return self.cols - self.patch + 1

    @property
    def slots(self) -> int:
        return self.window * self.window

    def start(self, queries: int, device: torch.device) -> Tensor:
        """First patch of the window of each query along one axis -> (Q,)."""
        first = torch.arange(queries, device=device) - self.window // 2
        if self.border == "clip":
            return first
        return torch.minimum(first.clamp(min=0), torch.zeros_like(first) + torch.sym_max(queries - self.window, 0))

    def candidates(self, device: torch.device, itself: bool = False) -> Tensor:
        """True where a slot is a candidate, the query itself only if asked for -> (Qh, Qw, M)."""
        q_rows, q_cols = self.query_rows, self.query_cols
        y = self._patches(q_rows, device)  # (Qh, w)
        x = self._patches(q_cols, device)  # (Qw, w)
        inside_y, inside_x = (y >= 0) & (y < q_rows), (x >= 0) & (x < q_cols)
        inside = inside_y[:, None, :, None] & inside_x[None, :, None, :]  # (Qh, Qw, w, w)
        if itself:
            return inside.flatten(-2)
        own_y = y == torch.arange(q_rows, device=device)[:, None]
        own_x = x == torch.arange(q_cols, device=device)[:, None]
        return (inside & ~(own_y[:, None, :, None] & own_x[None, :, None, :])).flatten(-2)

    def fewest_candidates(self) -> int:
        """Candidates of the query that has fewest of them."""
        if self.border == "shift":
            along = [min(self.window, q) for q in (self.query_rows, self.query_cols)]
        else:
            before, after = self.window // 2, self.window - 1 - self.window // 2
            along = [1 + min(before, after, q - 1) for q in (self.query_rows, self.query_cols)]
        return along[0] * along[1] - 1

    def _patches(self, queries: int, device: torch.device) -> Tensor:
        return self.start(queries, device)[:, None] + torch.arange(self.window, device=device)  # (Q, w)


@dataclass(frozen=True)
class Time:
    """Frames of videos, one behind the other in the batch: a window reaches into those next to its own.

    Args:
        length: T, frames of a video.
        reach: frames before and behind the own one that belong to a window.
        border: of the first and the last frames, as in :class:`Grid`.
    """

    length: int = 1
    reach: int = 0
    border: Border = "shift"

    @property
    def frames(self) -> int:
        """Frames of a window."""
        return 2 * self.reach + 1

    def _slots(self, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Of each image of the batch its own frame, and those in its window, (B T, 1) and (B T, frames)."""
        own = torch.arange(batch, device=device)[:, None] % self.length
        first = own - self.reach
        if self.border == "shift":
            first = first.clamp(0, max(self.length - self.frames, 0))
        return own, first + torch.arange(self.frames, device=device)

    def others(self, images: Tensor) -> list[Tensor]:
        """For each frame of the window, of each image that image, any where there is none: (B T, ...) each."""
        if self.reach == 0:
            return [images]
        own, slots = self._slots(len(images), images.device)
        place = torch.arange(len(images), device=images.device)[:, None] - own + slots.clamp(0, self.length - 1)
        return [images[place[:, i]] for i in range(self.frames)]

    def candidates(self, grid: Grid, batch: int, device: torch.device) -> Tensor:
        """True where a slot of a window is a candidate, (1 or B T, Qh, Qw, M), frames one behind the other."""
        others = grid.candidates(device)[None]
        if self.reach == 0:
            return others
        own, slots = self._slots(batch, device)
        there = ((slots >= 0) & (slots < self.length))[..., None, None, None]  # (B T, frames, 1, 1, 1)
        all_of_them = grid.candidates(device, itself=True)  # (Qh, Qw, M)
        keep = torch.where((slots == own)[..., None, None, None], others, all_of_them) & there
        return keep.permute(0, 2, 3, 1, 4).flatten(-2)

    def fewest_candidates(self, grid: Grid) -> int:
        """Candidates of the query that has fewest of them."""
        frames = min(self.frames, self.length) if self.border == "shift" else 1 + min(self.reach, self.length - 1)
        return frames * (grid.fewest_candidates() + 1) - 1


def grid_for(height: int, width: int, patch_size: int, stride: int, window: int, border: Border) -> Grid:
    """The grid of an image whose size :func:`pad` has made fit; where P is not m s, of its im2col (s = 1, m = 1)."""
    if patch_size % stride == 0:
        return Grid(height // stride, width // stride, stride, patch_size // stride, window, border)
    rows, cols = (height - patch_size) // stride + 1, (width - patch_size) // stride + 1
    return Grid(rows, cols, 1, 1, window, border)


def padding(height: int, width: int, patch_size: int, stride: int) -> Pads:
    """Zeros (left, right, top, bottom) that make (size - P) a multiple of s: half before, the larger half after."""

    def missing(size: int) -> int:
        if not torch.compiler.is_exporting() and size < patch_size:
            return patch_size - size
        steps = (size - patch_size + stride - 1) // stride
        return steps * stride + patch_size - size

    x, y = missing(width), missing(height)
    return x // 2, x - x // 2, y // 2, y - y // 2


def pad(image: Tensor, pads: Pads) -> Tensor:
    return F.pad(image, pads) if torch.compiler.is_exporting() or any(pads) else image


def crop(image: Tensor, pads: Pads) -> Tensor:
    """The reverse of :func:`pad`, a view."""
    left, right, top, bottom = pads
    if torch.compiler.is_exporting():  # a copy: the strides of a view would tie the program to sizes like the example's
        return F.pad(image, (-left, -right, -top, -bottom))
    return image[..., top : image.shape[-2] - bottom, left : image.shape[-1] - right] if any(pads) else image


def im2col(image: Tensor, patch_size: int, stride: int) -> Tensor:
    """All patches as the pixels of a smaller image, (B, C, H, W) -> (B, C P², Qh, Qw)."""
    rows = (image.shape[-2] - patch_size) // stride + 1
    return F.unfold(image, patch_size, stride=stride).unflatten(-1, (rows, -1))


def col2im(patches: Tensor, height: int, width: int, patch_size: int, stride: int) -> Tensor:
    """The reverse of :func:`im2col`, averaging where patches overlap; pixels in no patch are 0."""
    size = (height, width)
    total = F.fold(patches.flatten(-2), size, patch_size, stride=stride)
    ones = patches.new_ones(1, patch_size**2, patches.shape[-2] * patches.shape[-1])
    return total / F.fold(ones, size, patch_size, stride=stride).clamp(min=1)


@dataclass(frozen=True)
class Matching:
    """Which patches are compared: P x P pixels every ``stride`` pixels, with ``window`` x ``window`` around them."""

    patch_size: int = 10
    stride: int = 5
    window: int = 15
    border: Border = "shift"

    def __post_init__(self) -> None:
        for name in ("patch_size", "stride", "window"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: expected an integer of at least 1, got {value!r}")
        if self.stride > self.patch_size:
            raise ValueError(
                f"stride: expected at most patch_size = {self.patch_size}, so that every pixel lies in a patch, "
                f"got {self.stride}"
            )
        if self.border not in ("shift", "clip"):
            raise ValueError(f"border: expected 'shift' or 'clip', got {self.border!r}")

    def padding(self, height: int, width: int) -> Pads:
        """Zeros (left, right, top, bottom) that complete the patches of an image of this size."""
        return padding(height, width, self.patch_size, self.stride)

    def grid(self, height: int, width: int, pads: Pads | None = None) -> Grid:
        """The grid of an image of this size after padding."""
        left, right, top, bottom = self.padding(height, width) if pads is None else pads
        return grid_for(
            height + top + bottom, width + left + right, self.patch_size, self.stride, self.window, self.border
        )

    def at_patches(self, image: Tensor, where: Literal["center", "mean"], pads: Pads | None = None) -> Tensor:
        """The value of a map at each patch, its centre pixel or its mean: (B, 1, H, W) -> (B, Qh, Qw)."""
        image = pad(image, self.padding(image.shape[-2], image.shape[-1]) if pads is None else pads)
        p, s = self.patch_size, self.stride
        if where == "mean":
            return F.avg_pool2d(image, p, s).squeeze(1)
        height, width = image.shape[-2:]
        return image[:, 0, p // 2 : height - p + p // 2 + 1 : s, p // 2 : width - p + p // 2 + 1 : s]
