"""The picture of ``n3net inspect``: temperatures, sharpness, and the neighbours of some patches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from n3net.errors import UserError
from n3net.inspection.choices import BlockView, mean_largest
from n3net.io.files import writing

COLORS = ["#ff9f1c", "#2ec4b6", "#e84a8a", "#7aa2ff", "#b5e48c", "#c77dff"]
INK, DIM = "#1d232b", "#6b7280"


def draw_inspection(
    path: str | Path,
    noisy: Tensor,
    denoised: Tensor,
    views: Sequence[BlockView],
    pixels: Sequence[tuple[int, int]],
    force: bool = False,
) -> None:
    """Draw to a file (PNG, PDF, SVG).

    Args:
        path: of the picture.
        noisy, denoised: (C, H, W).
        views: of each block, see :func:`n3net.inspection.choices.look`.
        pixels: x, y of the queries.
        force: replace a file that exists.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("a picture needs matplotlib: pip install 'n3net[plots]'") from error
    kinds = Figure().canvas.get_supported_filetypes()
    if kind not in kinds:
        raise UserError(f"{path}: expected a name that ends in one of {', '.join(sorted(kinds))}")
    k = views[0].weights.shape[-2]
    rows = len(pixels) * len(views)
    side = 1.55  # inches of a small panel
    wide = max(len(views) + 2, 3)  # panels of the first line
    width = (k + 1) * side + 0.9
    top = width / wide * min(1.0, noisy.shape[-2] / noisy.shape[-1])
    figure = Figure(figsize=(width, top + 0.9 + rows * (side + 0.05) + 0.3 * len(pixels)), dpi=110, facecolor="white")
    halves: Any = figure.subfigures(2, 1, height_ratios=[top + 0.9, rows * (side + 0.05) + 0.3 * len(pixels)])
    upper, lower = halves
    panels = upper.subplots(
        1, wide, gridspec_kw={"left": 0.055, "right": 0.96, "top": 0.86, "bottom": 0.1, "wspace": 0.1}
    )
    _queries(panels[0], noisy, views[0], pixels)
    for b, view in enumerate(views):
        _temperature(upper, panels[1 + b], view, b, noisy.shape[-2:])
    _sharpness(panels[-1], views)
    groups = np.atleast_1d(lower.subfigures(len(pixels), 1))
    for i, (x, y) in enumerate(pixels):
        axes = np.atleast_2d(
            groups[i].subplots(
                len(views),
                k + 1,
                gridspec_kw={
                    "left": 0.055,
                    "right": 0.985,
                    "top": 0.92,
                    "bottom": 0.01,
                    "wspace": 0.04,
                    "hspace": 0.05,
                },
            )
        )
        for b, view in enumerate(views):
            _neighbors(axes[b], denoised, view, (x, y), COLORS[i % len(COLORS)], f"block {b + 1}", first=b == 0)
    with writing(path, force) as file:
        figure.savefig(file, format=kind)


def _queries(axis: Any, noisy: Tensor, view: BlockView, pixels: Sequence[tuple[int, int]]) -> None:
    _image(axis, noisy)
    size, reach = view.grid.patch * view.grid.cell, _reach(view)
    for i, (x, y) in enumerate(pixels):
        row, col = view.query_at(x, y)
        color = COLORS[i % len(COLORS)]
        first = view.window(row, col)
        _box(axis, view.corner(*first), reach, color, 1.0, ":")
        _box(axis, view.corner(row, col), size, color, 2.0)
    axis.set_title("input, queries and their windows", fontsize=9, color=INK)


def _temperature(figure: Any, axis: Any, view: BlockView, block: int, size: Sequence[int]) -> None:
    height, width = size
    log_t = view.temperature.log10()
    inner = log_t[1:-1, 1:-1] if min(log_t.shape) > 2 else log_t  # patches at the border see the zeros around the image
    low, high = (float(q) for q in inner.flatten().quantile(torch.tensor([0.01, 0.99])))
    middle, half = (low + high) / 2, max((high - low) / 2, 0.02)
    shown = axis.imshow(
        log_t.numpy(),
        cmap="magma",
        extent=(0, width, height, 0),
        interpolation="nearest",
        vmin=middle - half,
        vmax=middle + half,
    )
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_title(f"temperature, block {block + 1} (log$_{{10}}$)", fontsize=9, color=INK)
    inset = axis.inset_axes([0.0, -0.075, 1.0, 0.035])
    bar = figure.colorbar(shown, cax=inset, orientation="horizontal")
    bar.outline.set_visible(False)
    bar.set_ticks([middle - half, middle, middle + half], labels=[f"{middle + i * half:.2f}" for i in (-1, 0, 1)])
    bar.ax.tick_params(labelsize=7, length=2, colors=DIM)
    for label, side in zip(bar.ax.get_xticklabels(), ("left", "center", "right"), strict=True):
        label.set_horizontalalignment(side)


def _sharpness(axis: Any, views: Sequence[BlockView]) -> None:
    means = mean_largest([views])
    k = len(means[0])
    for b, row in enumerate(means):
        color = ["#1f6feb", "#d1495b", "#3a7d44"][b % 3]
        axis.plot(range(1, k + 1), row, "o-", color=color, markersize=4, linewidth=1.6)
        axis.annotate(
            f"block {b + 1}",
            (k, row[-1]),
            xytext=(0, 7),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=color,
        )
    uniform = 1 / views[0].grid.fewest_candidates()
    axis.axhline(uniform, color=DIM, linewidth=1, linestyle=":")
    axis.annotate("uniform", (1, uniform), xytext=(0, 3), textcoords="offset points", fontsize=8, color=DIM)
    axis.set_yscale("log")
    axis.set_ylim(uniform / 1.6, 1)
    axis.set_yticks([0.01, 0.1, 1], labels=["0.01", "0.1", "1"])
    axis.set_xticks(range(1, k + 1))
    axis.set_title("mean of max$_i$ $w_i^j$ over $j$", fontsize=9, color=INK)
    axis.tick_params(labelsize=7, colors=DIM, length=2)
    axis.yaxis.tick_right()
    for name in ("top", "left"):
        axis.spines[name].set_visible(False)
    axis.set_box_aspect(1)


def _neighbors(
    axes: Sequence[Any],
    image: Tensor,
    view: BlockView,
    pixel: tuple[int, int],
    color: str,
    label: str,
    first: bool,
) -> None:
    """The window of a query, and the weights of each neighbour on it."""
    row, col = view.query_at(*pixel)
    start = view.window(row, col)
    left, top = view.corner(*start)
    reach, size = _reach(view), view.grid.patch * view.grid.cell
    crop = _crop(image, left, top, reach)  # (side, side, 3)
    own = (view.corner(row, col)[0] - left, view.corner(row, col)[1] - top)
    axes[0].imshow(crop, interpolation="nearest")
    _box(axes[0], own, size, color, 2.2)
    axes[0].set_ylabel(label, fontsize=8, color=DIM)
    if first:
        axes[0].set_title(f"query ({pixel[0]}, {pixel[1]})", fontsize=9, color=color, fontweight="bold")
    heat = view.spread(row, col).numpy()  # (k, side, side)
    weights = view.weights[row, col]  # (k, M)
    for j, axis in enumerate(axes[1:]):
        axis.imshow(_overlay(crop, heat[j]), interpolation="nearest")
        best = int(weights[j].argmax())
        corner = (best % view.grid.window * view.grid.cell, best // view.grid.window * view.grid.cell)
        _box(axis, corner, size, "white", 1.2)
        _box(axis, own, size, color, 1.2)
        axis.text(
            0.04, 0.05, f"{float(weights[j].max()):.2f}", transform=axis.transAxes, fontsize=8, color="white",
            bbox={"facecolor": "black", "alpha": 0.55, "pad": 1.5, "linewidth": 0},
        )  # fmt: skip
        if first:
            axis.set_title(f"$w^{{{j + 1}}}$", fontsize=9, color=INK)
    for axis in axes:
        axis.set_xticks([])
        axis.set_yticks([])
        for spine in axis.spines.values():
            spine.set_visible(False)


def _overlay(crop: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """Weights as a glow over a darkened picture."""
    from matplotlib import colormaps

    strength = (heat / heat.max()) ** 0.6
    glow = colormaps["inferno"](0.25 + 0.75 * strength)[..., :3]
    alpha = 0.9 * strength[..., None]
    out: np.ndarray = 0.55 * crop * (1 - alpha) + (0.75 * glow + 0.25 * crop) * alpha
    return out.clip(0, 1)


def _reach(view: BlockView) -> int:
    """Pixels along a side of a window."""
    return (view.grid.window - 1 + view.grid.patch) * view.grid.cell


def _crop(image: Tensor, left: int, top: int, side: int) -> np.ndarray:
    """A square of an image as (side, side, 3), black outside of it."""
    padded = F.pad(image.clamp(0, 1), (side, side, side, side))
    part = padded[:, top + side : top + 2 * side, left + side : left + 2 * side]
    return part.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()


def _image(axis: Any, image: Tensor) -> None:
    pixels = torch.clamp(image, 0, 1).expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()
    axis.imshow(pixels, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])


def _box(axis: Any, corner: tuple[int, int], size: int, color: str, width: float, style: str = "-") -> None:
    from matplotlib.patches import Rectangle

    x, y = corner
    axis.add_patch(
        Rectangle((x - 0.5, y - 0.5), size, size, fill=False, edgecolor=color, linewidth=width, linestyle=style)
    )
