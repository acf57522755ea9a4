"""Image files to arrays: Pillow, and what it takes to get all 16 bits of colour out of it."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from n3net.errors import UserError
from n3net.io.arrays import not_numbers
from n3net.io.files import opened
from n3net.io.picture import FORMATS, Array, Metadata, Picture

MAX_PIXELS = 400_000_000  # beyond that a file is taken for an attack or an accident

# Modes of Pillow, and the one that has the same pixels in a type that we know.
CONVERT = {"1": "L", "P": "RGB", "PA": "RGBA", "La": "LA", "RGBa": "RGBA", "RGBX": "RGB", "YCbCr": "RGB"}
# How Pillow calls the bytes of 16-bit colours, of which it keeps the higher; under the other name it keeps the lower.
OTHER_BYTE = {
    f"{channels};16{order}": f"{channels};16{other}"
    for channels in ("RGB", "RGBA", "RGBX")
    for order, other in (("B", "L"), ("L", "B"), ("N", "B" if struct.pack("=H", 1) == b"\1\0" else "L"))
}
EXIF_HEAD = b"Exif\0\0"
SUB_DIRECTORIES, DNG_VERSION = 330, 50706  # tags of TIFF
# Tags of TIFF that say how the pixels lie in the file, or that have a place of their own in Metadata.
LAYOUT = {
    *range(254, 267),
    273,
    *range(277, 285),
    *(284, 292, 293, 296, 301, 317),
    *range(320, 331),
    *(338, 339, 347),
    *range(512, 533),
    *(700, 34675),
}


def read_image(source: Path | BinaryIO, max_pixels: int = MAX_PIXELS) -> Picture:
    """Read a PNG, JPEG, TIFF, WebP or BMP file, whatever its name says it is.

    Raises:
        UserError: it is not an image, is damaged, has more than ``max_pixels`` or is of a kind that we do not read.
    """
    try:
        with _opened(source, max_pixels) as image:
            frames = getattr(image, "n_frames", 1)
            if frames > 1 and image.format != "MPO":
                raise UserError(f"it has {frames} pages or frames, expected one; split it first")
            refuse_raw(getattr(image, "tag_v2", {}))
            colors = _sixteen_bit_colors(image, source)
            colors = _array(image) if colors is None else colors
            picture = Picture(colors, None, "JPEG" if image.format == "MPO" else str(image.format), _metadata(image))
            key = image.info.get("transparency") if image.mode in ("L", "RGB", "I;16") else None
    except _PillowCannotError as error:
        from n3net.io.tiff import read_tiff

        picture, key = read_tiff(source, max_pixels, str(error)), None
    colors = picture.pixels
    if colors.ndim == 3 and colors.shape[2] in (2, 4):
        picture.alpha = colors[..., -1]
        picture.pixels = colors[..., 0] if colors.shape[2] == 2 else colors[..., :3]
    elif isinstance(
        key, int | tuple
    ):  # the transparent colour, which would not be the same after a change of the pixels
        same = colors == np.asarray(key)
        same = same.all(-1) if colors.ndim == 3 else same
        picture.alpha = np.where(same, 0, np.iinfo(colors.dtype).max).astype(colors.dtype)
    problem = not_numbers(colors)
    if problem:
        raise UserError(problem)
    return picture


def refuse_raw(tags: Mapping[int, Any]) -> None:
    """Refuse a raw file, of which we would see the small picture that cameras put before the photograph."""
    reduced = bool(int(tags.get(254, 0)) & 1)
    if DNG_VERSION in tags or (reduced and SUB_DIRECTORIES in tags):
        raise UserError("a raw file of a camera; 'n3net denoise' reads it under a name that says so (.dng, .nef ...)")


def image_size(source: Path | BinaryIO, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Height and width from the head of a file."""
    try:
        with _opened(source, max_pixels) as image:
            return image.height, image.width
    except _PillowCannotError as error:
        raise UserError(str(error)) from None


def check_pixels(width: int, height: int, max_pixels: int, what: str = "it has") -> None:
    """Refuse an image that is too large."""
    if width * height > max_pixels:
        raise UserError(
            f"{what} {width} x {height} pixels, more than the limit of {max_pixels / 1e6:g} megapixels; "
            "raise the limit if that is no mistake (--max-megapixels)"
        )


class _PillowCannotError(Exception):
    """An image that Pillow does not read, or not with all its bits."""


@contextmanager
def _opened(source: Path | BinaryIO, max_pixels: int) -> Iterator[Image.Image]:
    """The file as an image of Pillow, and Pillow's exceptions as messages."""
    try:
        with _open(source) as image:
            check_pixels(image.width, image.height, max_pixels)
            yield image
    except (UserError, _PillowCannotError, MemoryError):
        raise
    except UnidentifiedImageError:
        if _head(source) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            raise _PillowCannotError("a TIFF file of a rare kind") from None
        raise UserError(f"not a readable {', '.join(FORMATS)} file") from None
    except OSError as error:
        raise UserError(error.strerror or f"damaged or cut off: {error}") from None
    except Exception as error:  # of a damaged file, Pillow raises whatever its numbers lead to
        raise UserError(f"damaged or cut off: {error or type(error).__name__}") from None


@contextmanager
def _open(source: Path | BinaryIO) -> Iterator[Image.Image]:
    # As a file, not by its name: by name Pillow maps some TIFF files into memory, and then turns them wrongly.
    with _without_pillows_limit(), opened(source) if isinstance(source, Path) else nullcontext(source) as file:
        file.seek(0)
        with Image.open(file, formats=FORMATS) as image:
            yield image


_limit_lock = threading.Lock()
_limit: list[int | None] = []  # Pillow's own, once for each image that is open


@contextmanager
def _without_pillows_limit() -> Iterator[None]:
    """Pillow's limit is lower than ours, and is one of the whole process: the last reader puts it back."""
    with _limit_lock:
        _limit.append(_limit[0] if _limit else Image.MAX_IMAGE_PIXELS)
        Image.MAX_IMAGE_PIXELS = None
    try:
        yield
    finally:
        with _limit_lock:
            limit = _limit.pop()
            if not _limit:
                Image.MAX_IMAGE_PIXELS = limit


def _head(source: Path | BinaryIO) -> bytes:
    if isinstance(source, Path):
        with opened(source) as file:
            return file.read(4)
    source.seek(0)
    return source.read(4)


def _array(image: Image.Image) -> Array:
    """Pixels in the type of the file, (H, W) or (H, W, C)."""
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode in CONVERT:
        image = image.convert(CONVERT[image.mode])
    if image.mode in ("L", "LA", "RGB", "RGBA", "F"):
        return np.asarray(image)
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):  # "I" before Pillow 11.3
        return np.asarray(image).astype(np.uint16, copy=False)
    raise UserError(f"pixels of kind {image.mode} are not supported; convert it to gray or RGB first")


def _sixteen_bit_colors(image: Image.Image, source: Path | BinaryIO) -> Array | None:
    """Colours of 16 bits, (H, W, C), or None where the image has none.

    Pillow has no such mode and keeps the higher byte of each. So the file is decoded a second time, with the order of
    the bytes exchanged, to get the lower one.
    """
    names = {_raw_mode(tile) for tile in getattr(image, "tile", [])}
    if image.format == "TIFF" and image.mode in ("RGB", "RGBA") and image.getexif().get(284) == 2:
        bits = image.getexif().get(258, 8)
        if np.max(bits) > 8:
            raise _PillowCannotError("a TIFF file with 16 bit colours in separate planes")
    if not any(";16" in name for name in names) or image.mode.startswith("I"):
        return None
    if names == {"LA;16B"}:  # four bytes, as in 8 bit RGBA
        _decode_as(image, {"LA;16B": "RGBA"})
        return np.asarray(image).copy().view(">u2").astype(np.uint16)
    if not names <= OTHER_BYTE.keys():
        raise _PillowCannotError(f"16 bit colours stored as {', '.join(sorted(names))}")
    colors = np.asarray(image).astype(np.uint16)
    colors <<= 8
    with _open(source) as again:
        _decode_as(again, OTHER_BYTE)
        colors |= np.asarray(again)
    return colors


def _raw_mode(tile: Any) -> str:
    """Pillow's name for the bytes of a part of the file."""
    args = tile[3]
    return str(args if isinstance(args, str) else args[0] if args else "")


def _decode_as(image: Image.Image, names: dict[str, str]) -> None:
    """Have Pillow take the bytes of the file for something else."""
    assert isinstance(image, ImageFile.ImageFile)
    tiles: list[Any] = list(image.tile)
    for i, tile in enumerate(tiles):
        args = names[tile[3]] if isinstance(tile[3], str) else (names[tile[3][0]], *tile[3][1:])
        tiles[i] = type(tile)(*tile[:3], args) if hasattr(tile, "_fields") else (*tile[:3], args)
    image.tile = tiles


def _metadata(image: Image.Image) -> Metadata:
    """After decoding, when Pillow has turned TIFF files upright."""
    xmp, profile = image.info.get("xmp"), image.info.get("icc_profile")
    return Metadata(
        exif=_exif(image),
        icc_profile=profile if isinstance(profile, bytes) and profile else None,
        xmp=xmp if isinstance(xmp, bytes) else None,
        dpi=checked_dpi(image.info.get("dpi")),
    )


def _exif(image: Image.Image) -> bytes:
    """Empty where it is damaged: the pixels are not."""
    exif = image.info.get("exif", b"")
    if image.format == "TIFF" or not exif:
        try:
            tags = image.getexif()
            for tag in [tag for tag in tags if tag in LAYOUT]:
                del tags[tag]
            exif = tags.tobytes() if len(tags) else b""
        except Exception:  # whatever the numbers in it lead to
            exif = b""
    if not isinstance(exif, bytes):
        return b""
    return EXIF_HEAD + exif if exif and not exif.startswith(EXIF_HEAD) else exif  # WebP has it without


def checked_dpi(dpi: Any) -> tuple[float, float] | None:
    """A resolution that every format can store; none where it is not."""
    try:
        x, y = float(dpi[0]), float(dpi[1])
    except (TypeError, ValueError, LookupError, ArithmeticError):
        return None
    return (x, y) if all(1 < value <= 65535 for value in (x, y)) else None  # Pillow says 1 where a TIFF file says none
