"""A picture of matches: both photographs side by side; green agree with the pose, amber are kept only, red rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from n3net.correspondence.matching import Matches
from n3net.io.picture import peak_of, to_type

Array = npt.NDArray[Any]

LONGEST = 1200  # pixels along a side of each photograph
GAP = 12
FINE = 2  # lines are drawn this much larger and scaled down, which smooths them
GREEN, AMBER, RED = (40, 200, 70), (255, 176, 0), (235, 50, 45)
CAPTION = 18


def draw(matches: Matches, image0: Array, image1: Array) -> Image.Image:
    """The picture.

    Rejected matches are thin and faint, the fainter the more there are; kept ones lie on top, and above all those that
    agree with the pose.
    """
    photos = [_photo(image) for image in (image0, image1)]
    scale = [photo.width / view.size[0] for photo, view in zip(photos, matches.views, strict=True)]
    top = 2 * CAPTION
    size = (photos[0].width + GAP + photos[1].width, top + max(photo.height for photo in photos))
    sheet = Image.new("RGB", size, "white")
    corners = [(0, top), (photos[0].width + GAP, top)]
    for photo, corner in zip(photos, corners, strict=True):
        sheet.paste(photo, corner)
    ends = [(p + 0.5) * s + corner for p, s, corner in zip(matches.points, scale, corners, strict=True)]  # (N, 2) each
    lines = np.hstack(ends)
    usable = np.isfinite(lines).all(1)
    for chosen, color, width, strength in (
        (usable & ~matches.kept, RED, 1, 0.8),
        (usable & matches.kept & ~matches.inliers, AMBER, 2, 0.9),
        (usable & matches.inliers, GREEN, 3, 0.9),
    ):
        mask = _mask(size, lines[chosen], width, strength * _fading(int(chosen.sum())))
        sheet.paste(color, (0, 0), mask)
    _caption(sheet, matches, top)
    return sheet


def _photo(image: Array) -> Image.Image:
    """8 bit, not too large, in pale gray, so that the lines stand out."""
    peak = float(image.max()) if image.dtype != np.uint8 else 255.0
    pixels = to_type(image, np.uint8, peak or peak_of(image.dtype))
    photo = Image.fromarray(np.ascontiguousarray(pixels)).convert("L")
    factor = min(1.0, LONGEST / max(photo.size))
    photo = photo.resize(
        (max(1, round(photo.width * factor)), max(1, round(photo.height * factor))), Image.Resampling.BOX
    )
    return photo.point(lambda v: 70 + v * 0.7).convert("RGB")


def _fading(count: int) -> float:
    """How opaque lines are: fully for a few, less for many."""
    return min(1.0, (150 / max(count, 1)) ** 0.4)


def _mask(size: tuple[int, int], lines: Array, width: int, strength: float) -> Image.Image:
    """Where the lines are, and dots at their ends, which stay visible however many there are."""
    layers, radius = [], width + 2
    for dots in (False, True):
        layer = Image.new("L", (size[0] * FINE, size[1] * FINE))
        pen = ImageDraw.Draw(layer)
        for x0, y0, x1, y1 in lines * FINE:
            if dots:
                for x, y in ((x0, y0), (x1, y1)):
                    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
            else:
                pen.line((x0, y0, x1, y1), fill=round(255 * strength), width=width)
        layers.append(np.asarray(layer.resize(size, Image.Resampling.BOX)))
    return Image.fromarray(np.maximum(*layers))


def _caption(sheet: Image.Image, matches: Matches, top: int) -> None:
    kept, count = int(matches.kept.sum()), len(matches.kept)
    agree = int(matches.inliers.sum())
    others = f"kept: {agree} agree with the pose (green), {kept - agree} do not (amber)"
    text = (
        f"{count - kept} matches rejected (red), {f'{kept} kept (amber), no pose' if matches.pose is None else others}"
    )
    pen = ImageDraw.Draw(sheet)
    pen.text((sheet.width / 2, top / 2), text, fill="black", font=ImageFont.load_default(CAPTION), anchor="mm")
