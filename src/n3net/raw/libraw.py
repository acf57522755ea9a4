"""LibRaw (the extra 'raw'), which reads and develops raw files: two functions for a process of their own.

It is C++ that takes a broken file at its word. Where it crashes, or never ends, it does so in a worker process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from n3net.errors import UserError
from n3net.io.reading import check_pixels
from n3net.raw.tags import ARTIST, DATE, EXIF

Array = npt.NDArray[Any]

NEAR_WHITE = 0.75  # of the white level, as in LibRaw


@dataclass(frozen=True)
class Plane:
    """The pixels of one colour filter in the cells of two by two.

    Args:
        row, column: of its pixel in a cell.
        color: ``"R"``, ``"G"`` or ``"B"``.
        black, white: raw values.
    """

    row: int
    column: int
    color: str
    black: float
    white: float

    @property
    def place(self) -> tuple[slice, slice]:
        return slice(self.row, None, 2), slice(self.column, None, 2)


@dataclass(frozen=True)
class Decoded:
    """What LibRaw makes of a file.

    Args:
        mosaic: (H, W) uint16, the visible pixels.
        planes: the four of them, row by row.
        saturation: what is developed to white, above black.
        area: of the mosaic on the sensor: top, left, bottom, right.
        gains: white balances, of the camera and for daylight, for red, green and blue each.
        matrix: (3, 3) from XYZ to the camera's colours; zeros where it is not known.
        flip: LibRaw's number of the orientation.
        exif: the little that it knows about the photograph.
    """

    mosaic: npt.NDArray[np.uint16]
    planes: list[Plane]
    saturation: int
    area: tuple[int, int, int, int]
    gains: tuple[list[float], list[float]]
    matrix: npt.NDArray[np.float64]
    flip: int
    exif: bytes


def decode(path: Path, max_pixels: int) -> Decoded:
    """Read a file with a Bayer colour filter array."""
    with _opened(path) as raw:
        sizes = raw.sizes
        check_pixels(sizes.raw_width, sizes.raw_height, max_pixels)
        raw.unpack()
        planes = _planes(raw)
        mosaic = np.array(raw.raw_image_visible, np.uint16)
        top, left = sizes.top_margin, sizes.left_margin
        return Decoded(
            mosaic,
            planes,
            _brightest(mosaic, planes),
            (top, left, top + mosaic.shape[0], left + mosaic.shape[1]),
            ([float(g) for g in raw.camera_whitebalance[:3]], [float(g) for g in raw.daylight_whitebalance[:3]]),
            np.asarray(raw.rgb_xyz_matrix, np.float64)[:3],
            int(sizes.flip),
            _known(raw),
        )


def develop(path: Path, mosaic: Array, saturation: int, bits: int, auto_bright: bool) -> Array:
    """Develop a file with another mosaic, (H, W, 3): camera's white balance and colours, sRGB, upright."""
    with _opened(path) as raw:
        raw.unpack()
        raw.raw_image_visible[:] = mosaic
        return np.array(
            raw.postprocess(
                use_camera_wb=True,
                no_auto_bright=not auto_bright,
                output_bps=bits,
                gamma=(2.4, 12.92),
                user_sat=saturation,
                adjust_maximum_thr=0.0,
            )
        )


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, and LibRaw's exceptions as messages."""
    try:
        import rawpy
    except ImportError:
        raise UserError("raw files need the package rawpy: pip install 'n3net[raw]'") from None
    with rawpy.RawPy() as raw:
        try:
            raw.open_file(str(path))
            yield raw
        except (UserError, MemoryError):
            raise
        except Exception as error:  # of a damaged file, whatever its numbers lead to
            text = error.args[0] if error.args else ""
            words = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
            raise UserError(f"LibRaw cannot read it: {words or type(error).__name__}") from None


def _planes(raw: Any) -> list[Plane]:
    import rawpy

    sizes = raw.sizes
    if raw.raw_type != rawpy.RawType.Flat or raw.raw_pattern is None or raw.raw_pattern.shape != (2, 2):
        raise UserError("only sensors with a Bayer colour filter array (two by two) can be denoised, not this one")
    if min(sizes.height, sizes.width) < 4:
        raise UserError(f"{sizes.width} x {sizes.height} pixels are too few")
    names, planes = raw.color_desc.decode(), []
    for row in (0, 1):
        for column in (0, 1):
            index = raw.raw_color(sizes.top_margin + row, sizes.left_margin + column)
            black, white = float(raw.black_level_per_channel[index]), float(raw.white_level)
            if names[index] not in "RGB":
                raise UserError(f"colour filters {names} are not supported, only red, green and blue")
            if not black < white:
                raise UserError(f"its white level {white:g} is not above its black level {black:g}")
            planes.append(Plane(row, column, names[index], black, white))
    return planes


def _brightest(mosaic: Array, planes: list[Plane]) -> int:
    """LibRaw's rule, applied once to the mosaic as it was read.

    The brightest pixel counts where it is near the white level, which some cameras never reach. Denoising changes the
    brightest pixel, and must not change the exposure.
    """
    white = planes[0].white - min(plane.black for plane in planes)
    peak = max(float(mosaic[plane.place].max()) - plane.black for plane in planes)
    return round(peak if NEAR_WHITE * white < peak < white else white)


def _known(raw: Any) -> bytes:
    other = getattr(raw, "other", None)  # of newer versions
    if other is None:
        return b""
    tags = Image.Exif()
    found = {
        33434: other.shutter_speed,
        33437: other.aperture,
        34855: int(other.iso_speed),
        37386: other.focal_length,
    }
    tags.get_ifd(EXIF).update({tag: value for tag, value in found.items() if value > 0})
    if other.timestamp.year > 1970:
        tags[DATE] = other.timestamp.strftime("%Y:%m:%d %H:%M:%S")
    if other.artist:
        tags[ARTIST] = other.artist
    return tags.tobytes()
