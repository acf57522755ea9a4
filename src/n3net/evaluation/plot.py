"""What was measured as one picture, methods side by side, and as one plot: how good they are, how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from n3net.errors import UserError
from n3net.evaluation.restoration import Shown, level_of
from n3net.imaging.comparison import Panel, side_by_side
from n3net.io.files import writing

SIDE = 160  # pixels of the part that is shown
ZOOM = 2
COLUMNS = 4


def check_plot(path: Path | None) -> None:
    """Refuse, before anything is measured, a plot that could not be drawn."""
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UserError(f"--plot {path}: expected a name that ends in .png, .svg or .pdf")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("--plot draws with matplotlib, which is not installed: pip install 'n3net[demo]'") from None


def draw_plot(report: dict[str, Any], path: Path, force: bool = False) -> None:
    """PSNR over seconds per megapixel, a panel for each data set and level."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels: dict[str, list[dict[str, Any]]] = {}
    for result in report["results"]:
        panels.setdefault(f"{result['dataset']}, {level_of(result)}", []).append(result)
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4), squeeze=False, layout="constrained")
    for axis, (title, results) in zip(axes[0], panels.items(), strict=True):
        for result in results:
            axis.plot(result["seconds_per_megapixel"], result["psnr"], "o")
            place = (result["seconds_per_megapixel"], result["psnr"])
            axis.annotate(result["model"], place, xytext=(5, 4), textcoords="offset points", fontsize=9)
        axis.set(title=title, xscale="log", xlabel="seconds per megapixel", ylabel="PSNR (dB)")
        axis.grid(alpha=0.3)
        axis.margins(0.15)
    threads = report["threads"]
    figure.suptitle(f"{threads} thread{'s' if threads > 1 else ''}", fontsize=9)
    with writing(path, force) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=120)
    plt.close(figure)


def draw_picture(seen: Sequence[Shown], path: Path, force: bool = False) -> None:
    """The part of the first image in which methods differ most: degraded, by each of them, and as it should be."""
    picture = seen[0]
    stack = np.stack([output.numpy() for output in picture.outputs.values()])  # (M, C, H, W)
    rows, cols = _liveliest(stack.std(0).mean(0))
    panels = [
        ("degraded", picture.degraded),
        *((f"{name} {picture.psnr[name]:.2f} dB", output) for name, output in picture.outputs.items()),
        ("original", picture.truth),
    ]
    shown = [Panel(caption, _pixels(image.numpy()[:, rows, cols])) for caption, image in panels]
    sheets = [np.asarray(side_by_side(shown[i : i + COLUMNS])) for i in range(0, len(shown), COLUMNS)]
    width = max(sheet.shape[1] for sheet in sheets)
    sheet = np.concatenate([np.pad(s, ((0, 8), (0, width - s.shape[1]), (0, 0)), constant_values=255) for s in sheets])
    from PIL import Image

    with writing(path, force) as file:
        Image.fromarray(sheet).save(file, "PNG")


def _liveliest(difference: Any) -> tuple[slice, slice]:
    """Rows and columns of the part with the largest sum."""
    height, width = (min(SIDE, side) for side in difference.shape)
    sums = np.pad(difference, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    parts = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    y, x = np.unravel_index(int(parts.argmax()), parts.shape)
    return slice(int(y), int(y) + height), slice(int(x), int(x) + width)


def _pixels(image: Any) -> Any:
    """(C, h, w) in [0, 1] -> (h, w) or (h, w, 3) of 8 bits, larger."""
    pixels = np.rint(255 * image.clip(0, 1)).astype(np.uint8).transpose(1, 2, 0)
    pixels = pixels.repeat(ZOOM, 0).repeat(ZOOM, 1)
    return pixels[..., 0] if pixels.shape[2] == 1 else pixels
