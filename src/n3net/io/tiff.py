"""TIFF files, with more bits of colour and more of the metadata than Pillow has a way for."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, TiffImagePlugin, TiffTags

from n3net.errors import UserError
from n3net.io.picture import Array, Metadata, Picture

ROWS = 64  # of a strip
EXIF, PIXEL_WIDTH, PIXEL_HEIGHT = 34665, 40962, 40963  # tags


def read_tiff(source: Path | BinaryIO, max_pixels: int, what: str) -> Picture:
    """Read colours of 16 bits or floats with tifffile, an extra."""
    from n3net.io.reading import check_pixels, checked_dpi, refuse_raw

    try:
        import tifffile
    except ImportError:
        raise UserError(f"{what} needs the package tifffile: pip install 'n3net[images]'") from None
    if not isinstance(source, Path):
        source.seek(0)
    try:
        with tifffile.TiffFile(source) as file:
            if len(file.pages) != 1:
                raise UserError(f"it has {len(file.pages)} pages, expected one; split it first")
            page: Any = file.pages[0]
            check_pixels(page.imagewidth, page.imagelength, max_pixels)
            pixels = page.asarray()
            tags = {tag.code: tag.value for tag in page.tags}
            refuse_raw(tags)
    except UserError:
        raise
    except Exception as error:  # of a damaged file, tifffile raises whatever its numbers lead to
        raise UserError(f"damaged, or a TIFF file of an unknown kind: {error}") from None
    if pixels.ndim == 3 and pixels.shape[0] in (3, 4) and tags.get(284) == 2:  # planes
        pixels = np.moveaxis(pixels, 0, -1)
    if (
        pixels.ndim not in (2, 3)
        or (pixels.ndim == 3 and pixels.shape[2] not in (2, 3, 4))
        or tags.get(262) not in (1, 2)
    ):
        raise UserError(
            f"a TIFF file with pixels of shape {pixels.shape} is not supported; convert it to gray or RGB first"
        )
    if np.issubdtype(pixels.dtype, np.floating):
        pixels = pixels.astype(np.float32, copy=False)
    if pixels.dtype not in (np.uint8, np.uint16, np.float32):
        raise UserError(f"pixels of type {pixels.dtype} are not supported; convert it to 8 bit, 16 bit or float first")
    metadata = Metadata(exif=_orientation(tags.get(274)), icc_profile=tags.get(34675), dpi=checked_dpi(_dpi(tags)))
    return Picture(pixels, None, "TIFF", metadata)


def _dpi(tags: dict[int, Any]) -> tuple[float, float] | None:
    """Of the tags for resolution: two fractions, and whether they are for an inch or a centimetre."""
    try:
        unit = {2: 1.0, 3: 2.54}[int(tags.get(296, 2))]
        x, y = (tags[code][0] / tags[code][1] * unit for code in (282, 283))
    except (KeyError, TypeError, ValueError, LookupError, ArithmeticError):
        return None
    return x, y


def write_tiff(file: BinaryIO, colors: Array, metadata: Metadata) -> None:
    """Write (H, W) or (H, W, C) of uint8, uint16 or float32: gray, gray and alpha, RGB, RGB and alpha."""
    height, width = colors.shape[:2]
    channels = 1 if colors.ndim == 2 else colors.shape[2]
    tags = exif_tags(metadata.exif)
    strips = [zlib.compress(np.ascontiguousarray(colors[y : y + ROWS]).tobytes(), 6) for y in range(0, height, ROWS)]
    ifd = TiffImagePlugin.ImageFileDirectory_v2()  # in the byte order of this machine, like the pixels
    for tag in tags:
        _copy(tags, tag, ifd)
    ifd[258] = (8 * colors.itemsize,) * channels
    ifd[259] = 8  # deflate
    ifd[262] = 1 if channels < 3 else 2  # gray, RGB
    ifd[277] = channels
    ifd[339] = (3 if colors.dtype == np.float32 else 1,) * channels
    if channels in (2, 4):
        ifd[338] = 2  # alpha that is not multiplied into the colours
    if metadata.dpi is not None:
        ifd[282], ifd[283], ifd[296] = *metadata.dpi, 2
    for tag, data in ((34675, metadata.icc_profile), (700, metadata.xmp)):
        if data is not None:
            ifd.tagtype[tag] = 7 if tag == 34675 else 1
            ifd[tag] = data
    save_directory(file, ifd, (width, height), ROWS, strips)


def _copy(tags: Image.Exif, tag: int, ifd: TiffImagePlugin.ImageFileDirectory_v2) -> None:
    """A tag as it is, and nothing of one that is damaged."""
    trial = TiffImagePlugin.ImageFileDirectory_v2()
    with suppress(Exception):  # Pillow raises whatever the values lead to
        value = tags.get_ifd(tag) if tag in TiffTags.TAGS_V2_GROUPS else tags[tag]
        trial[tag] = value
        trial.tobytes()
        ifd[tag] = value


def save_directory(
    file: BinaryIO,
    ifd: TiffImagePlugin.ImageFileDirectory_v2,
    size: tuple[int, int],
    rows: int,
    strips: Sequence[bytes],
) -> None:
    """Write a directory of tags and the strips of pixels it stands for.

    Args:
        file: open for writing.
        ifd: all tags but those for size and strips.
        size: width and height.
        rows: of a strip.
        strips: of pixels, as the tags say they are stored.
    """
    sizes = [len(strip) for strip in strips]
    ifd[256], ifd[257] = size
    ifd[278] = rows
    ifd.tagtype[273] = ifd.tagtype[279] = 4
    ifd[279] = tuple(sizes)
    ifd[273] = tuple(int(offset) for offset in np.cumsum([0, *sizes[:-1]]))  # Pillow adds where the directory ends
    ifd.save(file)
    for strip in strips:
        file.write(strip)


def _orientation(value: Any) -> bytes:
    if not isinstance(value, int) or value == 1:
        return b""
    tags = Image.Exif()
    tags[274] = int(value)
    return tags.tobytes()


def exif_tags(exif: bytes) -> Image.Exif:
    """EXIF data by tag; none of them where it is damaged."""
    tags = Image.Exif()
    try:
        if exif:
            tags.load(exif)
    except Exception:  # Pillow raises whatever the numbers in it lead to
        return Image.Exif()
    return tags


def exif_of_size(exif: bytes, height: int, width: int) -> bytes:
    """EXIF data with another size of the image where it names one."""
    tags = exif_tags(exif)
    try:
        inside = tags.get_ifd(EXIF)
        if not {PIXEL_WIDTH, PIXEL_HEIGHT} & inside.keys():
            return exif
        inside |= {PIXEL_WIDTH: width, PIXEL_HEIGHT: height}
        return tags.tobytes()
    except Exception:  # it is damaged
        return exif
