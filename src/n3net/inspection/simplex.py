"""Pictures of the selection: the paper's Figure 1 with numbers of our own."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from n3net.io.files import writing
from n3net.selection import select

QUERY = torch.tensor([0.26, 0.50])
ITEMS = torch.tensor([[0.13, 0.66], [0.95, 0.68], [0.46, 0.10]])
TEMPERATURES = (0.03, 0.1, 0.15, 0.2, 0.3, 1.0)
CORNERS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]])


def draw_selection(path: Path) -> None:
    """Hard, stochastic and continuous selection of 3 among 3 items, as paths on the simplex of their weights."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    distances = (ITEMS - QUERY).norm(dim=-1)  # (3,)
    colours = plt.get_cmap("coolwarm")(torch.linspace(0, 1, len(TEMPERATURES)).numpy())
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.9), gridspec_kw={"width_ratios": [1, 1, 1, 1]})
    _query(axes[0], distances)

    _simplex(axes[1], "Hard (Eqs. 1-2)")
    _path(axes[1], select(distances, 3, rule="hard"), "#1f2430", width=2.5)

    _simplex(axes[2], "Stochastic (Eqs. 3-7)")
    generator = torch.Generator().manual_seed(4)
    walks = select(distances.expand(400, 3), 3, 0.2, rule="stochastic", generator=generator)  # (400, 3, 3)
    kinds, counts = walks.unique(dim=0, return_counts=True)
    for number, (walk, count) in enumerate(sorted(zip(kinds, counts, strict=True), key=lambda pair: int(pair[1]))):
        share = float(count) / len(walks)
        _path(
            axes[2], walk, plt.get_cmap("viridis")(number / len(kinds)), width=0.8 + 7 * share, bend=0.05 * (number - 2)
        )
    axes[2].text(0.5, -0.23, "400 draws at t = 0.2, width = share", ha="center", fontsize=9, color="#555555")

    _simplex(axes[3], "Continuous (Eqs. 8-11)")
    for temperature, colour in reversed(list(zip(TEMPERATURES, colours, strict=True))):
        _path(axes[3], select(distances, 3, temperature), colour, width=2.2, label=f"t = {temperature:g}")
    handles, labels = axes[3].get_legend_handles_labels()
    axes[3].legend(
        handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(0.98, 0.55), fontsize=9, frameon=False
    )

    figure.subplots_adjust(left=0.02, right=0.91, bottom=0.02, top=0.9, wspace=0.12)
    with writing(path, force=True) as file:
        figure.savefig(file, format="png", dpi=150)
    plt.close(figure)


def _query(axis: Any, distances: torch.Tensor) -> None:
    axis.set_title("Query q and items x", fontsize=11)
    for i, (item, d) in enumerate(zip(ITEMS, distances, strict=True)):
        axis.plot(*torch.stack([QUERY, item]).T.numpy(), color="#b8bcc6", linewidth=1.2, zorder=1)
        middle = (QUERY + item) / 2
        axis.text(*middle.tolist(), f"{d:.2f}", fontsize=9, color="#555555", ha="center", va="center",
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
        axis.plot(*item.tolist(), "o", color="#2a6fbb", markersize=10)
        axis.annotate(f"$x_{i + 1}$", item.tolist(), textcoords="offset points", xytext=(9, 5), fontsize=12)
    axis.plot(*QUERY.tolist(), "*", color="#d1495b", markersize=17)
    axis.annotate("$q$", QUERY.tolist(), textcoords="offset points", xytext=(-18, -5), fontsize=13)
    axis.set(xlim=(0, 1.05), ylim=(-0.06, 0.86), xticks=[], yticks=[], aspect="equal")
    for spine in axis.spines.values():
        spine.set_color("#d5d8de")


def _simplex(axis: Any, title: str) -> None:
    axis.set_title(title, fontsize=11)
    axis.fill(*CORNERS.T.numpy(), facecolor="#f5f6f8", edgecolor="#9aa0ac", linewidth=1.2, zorder=0)
    for i, corner in enumerate(CORNERS):
        outwards = (corner - CORNERS.mean(0)) * 0.17
        axis.text(*(corner + outwards).tolist(), f"$x_{i + 1}$", ha="center", va="center", fontsize=12)
    axis.set(xlim=(-0.16, 1.16), ylim=(-0.26, 1.06), aspect="equal")
    axis.axis("off")


def _path(axis: Any, weights: torch.Tensor, colour: Any, width: float, bend: float = 0.0, label: str = "") -> None:
    """w^1 -> w^2 -> w^3, (3, 3), with arrowheads and a number at each."""
    points = (weights @ CORNERS).numpy()
    for a, b in pairwise(points):
        style = {"arrowstyle": "-|>,head_width=0.25,head_length=0.5", "color": colour, "linewidth": width}
        style |= {"connectionstyle": f"arc3,rad={bend + 0.08}", "shrinkA": 0, "shrinkB": 3}
        axis.annotate("", b, a, arrowprops=style, zorder=3)
    axis.plot(*points.T, "o", color=colour, markersize=5, zorder=4, label=label)
