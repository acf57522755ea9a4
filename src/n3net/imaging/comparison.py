"""Pictures side by side, with what they are and how good they are written above them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from n3net.io.orientation import upright
from n3net.io.picture import Picture

Array = npt.NDArray[Any]

WIDEST = 1600  # pixels of a panel; larger pictures are scaled down
GAP = 8
MARGIN = 1.6  # height of the line of text, in font sizes


@dataclass(frozen=True)
class Panel:
    """A picture of a comparison and its caption."""

    caption: str
    pixels: Array  # (H, W) or (H, W, 3), uint8


def side_by_side(panels: Sequence[Panel]) -> Image.Image:
    """One image with all panels, each under its caption; as tall as the tallest."""
    width = max(panel.pixels.shape[1] for panel in panels)
    scale = min(1.0, WIDEST / width)
    images = []
    for panel in panels:
        image = Image.fromarray(np.ascontiguousarray(panel.pixels)).convert("RGB")
        small = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        images.append(image if scale == 1 else image.resize(small, Image.Resampling.BOX))
    longest = max(len(panel.caption) for panel in panels)
    size = max(9, min(20, int(1.7 * min(i.width for i in images) / longest)))
    font = ImageFont.load_default(size)
    top = int(MARGIN * size)
    widths = [max(image.width, math.ceil(font.getlength(p.caption))) for image, p in zip(images, panels, strict=True)]
    sheet = Image.new("RGB", (sum(widths) + GAP * (len(images) - 1), top + max(i.height for i in images)), "white")
    draw, x = ImageDraw.Draw(sheet), 0
    for image, panel, place in zip(images, panels, widths, strict=True):
        draw.text((x + place / 2, top / 2), panel.caption, fill="black", font=font, anchor="mm")
        sheet.paste(image, (x + (place - image.width) // 2, top))
        x += place + GAP
    return sheet


def for_display(picture: Picture) -> Array:
    """8 bit pixels, turned as the picture's orientation says."""
    return upright(picture.as_type(np.uint8), picture.metadata.exif)
