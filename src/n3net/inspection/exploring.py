"""What blocks choose by, for a page that shows the choice of any patch and what would change it.

The page is given distances and temperatures, not weights: it computes the weights of the patch under the mouse itself
(``page/selection.js``), so it can follow the mouse, and show other temperatures and the other forms of the update.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.inspection.choices import layout, watch
from n3net.nn import N3Block2d

MAGIC = b"n3net-look 1\n"
RULES = ("continuous", "hard")
MODULES = ("selection.js", "look.js", "explorer.js", "file.js")  # in the order in which they import each other
MOST_PIXELS = 1_100_000  # of an image: 25 pixels take the 225 distances of a patch, for each block
IMPORT = re.compile(r"^import\b[^;]*;\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(async )?(function|class|const|let))", re.MULTILINE)


def explore(model: nn.Module, image: Tensor, sigma: float | None = None, title: str = "") -> bytes:
    """Run a model on an image (C, H, W) in [0, 1] and keep what its blocks choose by.

    Returns:
        A document for the page: a line, the length of a header (8 bytes, little endian), the header as JSON, and
        arrays one after the other, whose places (bytes behind the header, shape, type) the header says.
    """
    height, width = image.shape[-2:]
    if height * width > MOST_PIXELS:
        raise UserError(f"{width} x {height} pixels are too many to explore; crop to at most {MOST_PIXELS / 1e6:g} MP")
    out, calls = watch(model, image, sigma)
    arrays = [_eight_bits(image), _eight_bits(out)]
    blocks = []
    with torch.inference_mode():
        for call in calls:
            block, found = _block(model, *call)
            block |= {name: len(arrays) + i for i, name in enumerate(("distances", "scale", "inverse"))}
            blocks.append(block)
            arrays += found
    places, start = [], 0
    for array in arrays:
        places.append({"start": start, "shape": array.shape, "type": str(array.dtype)})
        start += -(-array.nbytes // 8) * 8
    head = {"title": title, "width": width, "height": height, "sigma": sigma, "blocks": blocks, "arrays": places}
    text = json.dumps(head).encode()
    text += b" " * (-(len(MAGIC) + 8 + len(text)) % 8)
    parts = [MAGIC, len(text).to_bytes(8, "little"), text]
    for array in arrays:
        parts += [array.tobytes(), b"\0" * (-array.nbytes % 8)]
    return b"".join(parts)


def page(document: bytes) -> bytes:
    """One HTML file with everything in it: it fetches nothing and needs no server."""
    folder = files("n3net.inspection") / "page"
    parts = {
        "style": (folder / "explorer.css").read_text(encoding="utf-8"),
        "script": bundle([(folder / name).read_text(encoding="utf-8") for name in MODULES]),
        "title": html.escape(json.loads(document[len(MAGIC) + 8 : len(MAGIC) + 8 + _head_length(document)])["title"]),
        "data": base64.b64encode(document).decode("ascii"),
    }
    template = (folder / "file.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], template).encode()


def bundle(modules: Sequence[str]) -> str:
    """Modules that stand in the order of their imports, as one: their names are told apart by whoever writes them."""
    return "\n".join(EXPORT.sub("", IMPORT.sub("", text)) for text in modules)


def _head_length(document: bytes) -> int:
    return int.from_bytes(document[len(MAGIC) : len(MAGIC) + 8], "little")


def _block(
    model: nn.Module, block: N3Block2d, x: Tensor, match_on: Tensor | None
) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
    """What is the same for all patches of a block, and the distances, scales and 1 / t of each."""
    if block.rule not in RULES:
        raise UserError(f"explore: only for blocks that choose by the rules {' and '.join(RULES)}, not {block.rule}")
    grid, pads = layout(model, block, x)
    distances, scale, inverse = (tensor[0].float() for tensor in block.distances(x, match_on))
    distances = distances.masked_fill(~grid.candidates(distances.device), torch.inf)  # (Qh, Qw, M)
    about = {
        "k": block.k,
        "rule": block.rule,
        "update": block.options.update,
        "rows": grid.query_rows,
        "cols": grid.query_cols,
        "cell": grid.cell,
        "patch": grid.patch,
        "window": grid.window,
        "border": grid.border,
        "pads": pads,
    }
    return about, [np.ascontiguousarray(tensor.numpy()) for tensor in (distances, scale, inverse)]


def _eight_bits(image: Tensor) -> npt.NDArray[np.uint8]:
    """(C, H, W) -> (H, W, 3)."""
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    return np.ascontiguousarray(pixels.expand(3, -1, -1).permute(1, 2, 0).numpy())
