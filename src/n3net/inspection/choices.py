"""What the N3 blocks of a network have learned: how sharply they choose, and whom, on an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from n3net.errors import UserError
from n3net.models.interface import Model
from n3net.neighbors.grid import Grid, Pads
from n3net.nn import N3Block2d
from n3net.restoration.tiles import fold_of, smallest_size


@dataclass(frozen=True)
class BlockView:
    """One block on one image.

    Args:
        weights: of each patch's window, (Qh, Qw, k, M).
        temperature: of each patch, (Qh, Qw).
        grid: of the patches.
        pads: zeros around the image (left, right, top, bottom) that complete the patches.
    """

    weights: Tensor
    temperature: Tensor
    grid: Grid
    pads: Pads

    @property
    def largest(self) -> Tensor:
        """max_i w_i^j of each patch and neighbour, (Qh, Qw, k)."""
        return self.weights.amax(-1)

    def without_weights(self) -> BlockView:
        """The same with only the largest weights, for means over many images."""
        return replace(self, weights=self.largest[..., None])

    def query_at(self, x: float, y: float) -> tuple[int, int]:
        """Row and column of the patch whose centre is nearest to a pixel."""
        half = self.grid.cell * self.grid.patch / 2
        row = round((y + self.pads[2] - half) / self.grid.cell)
        col = round((x + self.pads[0] - half) / self.grid.cell)
        return min(max(row, 0), self.grid.query_rows - 1), min(max(col, 0), self.grid.query_cols - 1)

    def corner(self, row: int, col: int) -> tuple[int, int]:
        """Left and top pixel of a patch in the image."""
        return col * self.grid.cell - self.pads[0], row * self.grid.cell - self.pads[2]

    def window(self, row: int, col: int) -> tuple[int, int]:
        """First row and column of patches in the window of a query."""
        device = self.weights.device
        first = self.grid.start(self.grid.query_rows, device)[row], self.grid.start(self.grid.query_cols, device)[col]
        return int(first[0]), int(first[1])

    def spread(self, row: int, col: int) -> Tensor:
        """The weights of a query put on the pixels of its window: (k, side, side), side in pixels."""
        w = self.weights[row, col].reshape(-1, self.grid.window, self.grid.window)  # (k, w, w)
        size, step = self.grid.patch * self.grid.cell, self.grid.cell
        kernel = w.new_ones(1, 1, size, size)
        return F.conv_transpose2d(w[:, None], kernel, stride=step)[:, 0]


Call = tuple[N3Block2d, Tensor, Tensor | None]  # a block, its input, and what it matched on if that came from outside


def look(model: nn.Module, image: Tensor, sigma: float | None = None) -> tuple[Tensor, list[BlockView]]:
    """Run a model on an image (C, H, W), and see what its blocks do.

    Returns:
        The model's output (C, H, W), and a view of each block in the order they are passed.
    """
    out, calls = watch(model, image, sigma)
    views = []
    with torch.inference_mode():
        for block, x, match_on in calls:
            weights, temperature = block.weights(x, match_on)
            views.append(BlockView(weights[0], temperature[0], *layout(model, block, x)))
    return out, views


def layout(model: nn.Module, block: N3Block2d, x: Tensor) -> tuple[Grid, Pads]:
    """The patches of a block's input (B, C, H, W), and the zeros around it, in pixels of the image."""
    size, fold = (x.shape[-2], x.shape[-1]), fold_of(model)
    grid, (left, right, top, bottom) = block.matching.grid(*size), block.matching.padding(*size)
    return replace(grid, cell=fold * grid.cell), (fold * left, fold * right, fold * top, fold * bottom)


def watch(model: nn.Module, image: Tensor, sigma: float | None = None) -> tuple[Tensor, list[Call]]:
    """Run a model on an image (C, H, W): its output (C, H, W), and how its blocks were called."""
    blocks = [m for m in model.modules() if isinstance(m, N3Block2d)]
    if not blocks:
        name = model.recipe.name if isinstance(model, Model) else type(model).__name__
        raise UserError(f"{name}: this model has no N3 blocks to look into")
    if any(block.matching.patch_size % block.matching.stride for block in blocks):
        raise UserError("inspect: only for blocks whose patch_size is a multiple of their stride")
    size = (image.shape[-2], image.shape[-1])
    if smallest_size(model, *size) != size:
        raise UserError(f"inspect: {size[1]} x {size[0]} pixels have fewer patches than the model looks for")
    calls: list[Call] = []

    def remember(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        match_on = args[1] if len(args) > 1 else kwargs.get("match_on")
        calls.append((block, args[0], match_on))  # type: ignore[arg-type]

    hooks = [block.register_forward_pre_hook(remember, with_kwargs=True) for block in blocks]
    try:
        with torch.inference_mode():
            out = (model(image[None]) if sigma is None else model(image[None], sigma=sigma))[0]
    finally:
        for hook in hooks:
            hook.remove()
    return out, calls


def interesting_pixels(view: BlockView, image: Tensor, count: int = 3, apart: float = 0.25) -> list[tuple[int, int]]:
    """Pixels (x, y) of an image (C, H, W) where there is something to see, and a neighbour that stands out.

    The score of a patch is its contrast times the largest weight, on average over its neighbours, of a patch that it
    does not overlap; pixels keep a distance of ``apart`` of the shorter side, and half a window from the border.
    """
    size = view.grid.patch * view.grid.cell
    slots = torch.arange(view.grid.window)
    gray = image.mean(0)
    step, half = view.grid.cell, view.grid.window * view.grid.cell // 2
    scores = []
    for row in range(view.grid.query_rows):
        for col in range(view.grid.query_cols):
            left, top = view.corner(row, col)
            patch = gray[max(top, 0) : top + size, max(left, 0) : left + size]
            inside = half <= left < gray.shape[1] - half - step and half <= top < gray.shape[0] - half - step
            first_row, first_col = view.window(row, col)
            near_y = (slots + first_row - row).abs() < view.grid.patch
            near_x = (slots + first_col - col).abs() < view.grid.patch
            far = ~(near_y[:, None] & near_x).flatten()  # (M,)
            score = float(patch.std() * (view.weights[row, col].mean(0) * far).max()) * (1 if inside else 0.1)
            scores.append((score, left + size // 2, top + size // 2))
    chosen: list[tuple[int, int]] = []
    least = apart * min(gray.shape)
    for _, x, y in sorted(scores, reverse=True):
        if all((x - a) ** 2 + (y - b) ** 2 >= least**2 for a, b in chosen):
            chosen.append((x, y))
        if len(chosen) == count:
            break
    return chosen


def mean_largest(views: Sequence[Sequence[BlockView]]) -> list[list[float]]:
    """Mean of max_i w_i^j over all patches of all images, for each block and neighbour."""
    means = []
    for block in zip(*views, strict=True):
        every = torch.cat([view.largest.flatten(0, 1) for view in block])  # (patches, k)
        means.append(every.mean(0).tolist())
    return means
