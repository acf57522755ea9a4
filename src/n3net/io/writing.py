"""Arrays to image files, with the metadata that the format has a place for."""

from __future__ import annotations

import math
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from n3net.errors import UserError
from n3net.io.arrays import not_numbers
from n3net.io.orientation import upright
from n3net.io.picture import Array, Metadata, Picture, to_type
from n3net.io.png import write_png16
from n3net.io.tiff import write_tiff

QUALITY = 95  # of JPEG and WebP
# Bytes of metadata that a format has a place for, or with which common programs read the file again: 64 kB a segment of
# JPEG, of which a profile may have 255, and Pillow's limit for what is compressed in a PNG.
MOST = {
    ("JPEG", "exif"): 65533,
    ("JPEG", "xmp"): 65533 - 29,
    ("JPEG", "icc_profile"): 255 * 65519,
    ("PNG", "icc_profile"): 1 << 20,
}
LONGEST = {"JPEG": 65500, "WEBP": 16383}  # sides in pixels; formats that are not here take all that there are


def write_image(file: BinaryIO, picture: Picture, format: str | None = None, quality: int | None = None) -> None:
    """Write a picture.

    Args:
        file: open for writing.
        picture: values that are more precise than the format are rounded to what it has: floats in PNG to 16 bits,
            16 bits in JPEG, WebP and BMP to 8.
        format: one of FORMATS, by default the picture's own.
        quality: 1 to 100, of JPEG and WebP.
    """
    format = format or picture.format
    check_sides(format, *picture.pixels.shape[:2])
    check_metadata(format, picture.metadata)
    problem = not_numbers(picture.pixels)
    if problem:
        raise UserError(f"the result cannot be written: {problem}")
    if format in ("JPEG", "BMP") and picture.alpha is not None:
        raise UserError(f"it has an alpha channel, which {format} cannot store; write PNG, WebP or TIFF")
    dtype = _stored_type(format, picture.pixels.dtype)
    colors = picture.pixels if picture.pixels.dtype == dtype else picture.as_type(dtype)
    if picture.alpha is not None:
        colors = np.dstack([colors, to_type(picture.alpha, dtype)])
    if format == "TIFF":
        write_tiff(file, colors, picture.metadata)
    elif colors.dtype == np.uint16 and colors.ndim == 3:
        write_png16(file, colors, picture.metadata)
    else:
        _write_with_pillow(file, colors, picture, format, quality)


def check_sides(format: str, height: int, width: int) -> None:
    """Refuse an image that is longer than a format can store."""
    if max(height, width) > LONGEST.get(format, math.inf):
        raise UserError(
            f"{format} stores at most {LONGEST[format]} pixels a side, not {width} x {height}; write PNG or TIFF"
        )


def check_metadata(format: str, metadata: Metadata) -> None:
    """Refuse what a format has no place for, instead of leaving out colours or a photographer's words."""
    for (name, kind), most in MOST.items():
        size = len(getattr(metadata, kind) or b"") if name == format else 0
        if size > most:
            what = {"exif": "EXIF data", "xmp": "XMP data", "icc_profile": "colour profile"}[kind]
            raise UserError(f"its {what} of {size} bytes is more than the {most} that {format} can have; write TIFF")


def _stored_type(format: str, dtype: np.dtype[Any]) -> type[np.generic]:
    """What a format stores of a type."""
    if dtype == np.uint8 or format in ("JPEG", "WEBP", "BMP"):
        return np.uint8
    return np.uint16 if dtype == np.uint16 or format == "PNG" else np.float32


def _write_with_pillow(file: BinaryIO, colors: Array, picture: Picture, format: str, quality: int | None) -> None:
    metadata = picture.metadata
    if format == "BMP":  # has no place for an orientation
        colors = upright(colors, metadata.exif)
    image = Image.fromarray(np.ascontiguousarray(colors))
    options: dict[str, Any] = {}
    if metadata.icc_profile is not None:
        options["icc_profile"] = metadata.icc_profile
    if metadata.dpi is not None:
        options["dpi"] = metadata.dpi
    if metadata.exif:
        options["exif"] = metadata.exif
    if metadata.xmp is not None and format in ("JPEG", "WEBP"):
        options["xmp"] = metadata.xmp
    if format == "JPEG":
        options |= {"quality": quality or QUALITY, "subsampling": 0}
    elif format == "WEBP":
        options |= {"quality": quality or QUALITY, "exact": True}
    image.save(file, format, **options)
