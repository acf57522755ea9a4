"""Mosaics to DNG files, which raw developers open, and to plain TIFF files."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from PIL import TiffImagePlugin

from n3net.io.picture import Metadata
from n3net.io.tiff import exif_tags, save_directory, write_tiff
from n3net.raw.photo import RawPhoto
from n3net.raw.tags import EXIF, GPS, ORIENTATION, Directory, directories
from n3net.version import __version__

BYTE, ASCII, SHORT, LONG, RATIONAL, UNDEFINED, SIGNED_RATIONAL = 1, 2, 3, 4, 5, 7, 10
CFA = 32803  # photometric interpretation
DAYLIGHT = 21  # D65
ACTIVE_AREA = 50829
DNG_VERSION, CAMERA_MODEL, COLOR_MATRIX, NEUTRAL, ILLUMINANT = 50706, 50708, 50721, 50728, 50778
# What a DNG says about colours, and which still holds after denoising.
COLORS = (
    *range(50721, 50737),
    *(50739, 50778, 50779, 50931, 50932),
    *range(50936, 50943),
    *(50964, 50965, 50981, 50982),
    *range(51107, 51111),
)
# Which part of the active area is the picture, and its proportions.
CROP = (50718, 50719, 50720)
# Lists of what a raw developer is to correct, like shading and distortion of the lens. The first refers to the whole
# sensor, the others to its active area.
CORRECTIONS = (51008, 51009, 51022)


def write_dng(file: BinaryIO, photo: RawPhoto) -> None:
    """The mosaic as it is now, with colours, corrections and EXIF data of its file; a noise profile is left out."""
    mosaic = np.ascontiguousarray(photo.mosaic)
    height, width = mosaic.shape
    ifd = TiffImagePlugin.ImageFileDirectory_v2()  # in the byte order of this machine, like the pixels
    tags = exif_tags(photo.exif(orientation=True))
    for tag, value in tags.items():
        ifd[tag] = tags.get_ifd(tag) if tag in (EXIF, GPS) else value
    camera = " ".join(str(tags[tag]) for tag in (271, 272) if tag in tags) or "unknown camera"

    def put(tag: int, kind: int, value: Any) -> None:
        ifd.tagtype[tag] = kind
        ifd[tag] = value

    put(254, LONG, 0)  # the main picture
    put(258, SHORT, 16)
    put(259, SHORT, 1)  # not compressed
    put(262, SHORT, CFA)
    put(ORIENTATION, SHORT, int(tags.get(ORIENTATION, photo.flip)))
    put(277, SHORT, 1)
    put(284, SHORT, 1)
    put(305, ASCII, f"n3net {__version__}")
    put(33421, SHORT, (2, 2))
    put(33422, BYTE, bytes("RGB".index(plane.color) for plane in photo.planes))
    put(DNG_VERSION, BYTE, bytes((1, 4, 0, 0)))
    put(50707, BYTE, bytes((1, 1, 0, 0)))  # oldest reader's version
    put(CAMERA_MODEL, ASCII, camera)
    put(50710, BYTE, bytes((0, 1, 2)))  # colours of the array: red, green, blue
    put(50711, SHORT, 1)  # rectangular
    put(50713, SHORT, (2, 2))
    put(50714, LONG, tuple(round(plane.black) for plane in photo.planes))
    put(50717, LONG, round(photo.planes[0].white))
    for tag, data in corrections(photo)[0].items():
        put(tag, UNDEFINED, data)
    raw, _, active = _sensor(photo)
    for tag in CROP if photo.area == active else ():
        if tag in raw:
            put(tag, raw.tagtype[tag], raw[tag])
    _put_colors(ifd, photo)
    rows = [mosaic[y : y + 64].tobytes() for y in range(0, height, 64)]
    save_directory(file, ifd, (width, height), 64, rows)


def corrections(photo: RawPhoto) -> tuple[dict[int, bytes], bool]:
    """The file's lists of corrections that hold for the mosaic, by tag, and whether there are others that do not."""
    raw, sensor, active = _sensor(photo)
    lists = {tag: raw[tag] for tag in CORRECTIONS if isinstance(raw.get(tag), bytes)}
    kept = {tag: v for tag, v in lists.items() if photo.area == (sensor if tag == CORRECTIONS[0] else active)}
    return kept, len(kept) < len(lists)


def _sensor(photo: RawPhoto) -> tuple[Directory, Any, Any]:
    """The file's directory of the mosaic, and top, left, bottom, right of the sensor and of its active area."""
    raw = next((d for d in directories(photo.path) if d.get(262) == CFA), Directory())
    sensor = (0, 0, raw.get(257), raw.get(256))
    return raw, sensor, raw.get(ACTIVE_AREA, sensor)


def _put_colors(ifd: Directory, photo: RawPhoto) -> None:
    """As the DNG that the photograph was read from says it, else as LibRaw knows it."""
    found = next((d for d in directories(photo.path) if COLOR_MATRIX in d and DNG_VERSION in d), None)
    if found is not None:
        for tag in (CAMERA_MODEL, *COLORS):
            if tag in found:
                ifd.tagtype[tag] = found.tagtype[tag]
                ifd[tag] = found[tag]
        return
    for tag, kind, value in (
        (COLOR_MATRIX, SIGNED_RATIONAL, tuple(_rational(v) for v in photo.matrix)),
        (NEUTRAL, RATIONAL, tuple(_rational(v) for v in photo.neutral)),
        (ILLUMINANT, SHORT, DAYLIGHT),
    ):
        ifd.tagtype[tag] = kind
        ifd[tag] = value


def _rational(value: float) -> TiffImagePlugin.IFDRational:
    return TiffImagePlugin.IFDRational(round(value * 1_000_000), 1_000_000)


def write_mosaic(file: BinaryIO, photo: RawPhoto) -> None:
    """The mosaic as a gray TIFF file of 16 bits: raw values, and no orientation by which a reader would turn them."""
    write_tiff(file, np.ascontiguousarray(photo.mosaic), Metadata(photo.exif(orientation=False)))
