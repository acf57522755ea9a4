"""Directories of tags in TIFF files, which most raw files are: what cameras say about a photograph."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from PIL import Image, TiffImagePlugin

Directory = TiffImagePlugin.ImageFileDirectory_v2

HEADS = (b"II*\0", b"MM\0*", b"IIU\0", b"IIRO", b"IIRS", b"MMOR")  # the last are dialects of cameras
SUB_DIRECTORIES, EXIF, GPS, MAKER_NOTE, ORIENTATION = 330, 34665, 34853, 37500, 274
DATE, ARTIST, NOISE_PROFILE = 306, 315, 51041
KEPT = (270, 271, 272, DATE, ARTIST, 33432, EXIF, GPS)  # first description, maker and model; 33432 is copyright
MOST = 16  # sub-directories that are looked at
DAMAGED = (
    *(OSError, SyntaxError, ValueError, KeyError, TypeError, AttributeError),
    *(struct.error, OverflowError, RuntimeError),
)


def directories(path: Path) -> list[Directory]:
    """The first directory and those below it; none of a file that is not a TIFF file or is damaged."""
    found: list[Directory] = []
    try:
        with path.open("rb") as file:
            head = file.read(8)
            if head[:4] not in HEADS:
                return []
            plain = head[:2] + (b"*\0" if head[:2] == b"II" else b"\0*") + head[4:]
            first = Directory(plain)
            places = [first.next]
            while places and len(found) < MOST:
                directory = Directory(plain)
                file.seek(places.pop(0))
                directory.load(file)
                found.append(directory)
                below = directory.get(SUB_DIRECTORIES, ())
                places += list(below if isinstance(below, tuple) else (below,))
    except DAMAGED:
        pass
    return found


def noise_profile(path: Path) -> list[tuple[float, float]]:
    """Pairs (a, b) of a DNG's tag NoiseProfile, one for all colours or one for each; none without such a tag."""
    for directory in directories(path):
        values: Any = directory.get(NOISE_PROFILE)
        if isinstance(values, tuple) and len(values) >= 2 and len(values) % 2 == 0:
            numbers = [float(v) for v in values]
            pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
            if all(0 <= a < 1 and 0 <= b < 1 and a + b > 0 for a, b in pairs):
                return pairs
    return []


def exif_of(path: Path, orientation: bool) -> bytes:
    """What a raw file says about the photograph, as EXIF data, without what is about the file and the maker's notes."""
    tags, kept = Image.Exif(), Image.Exif()
    try:
        with path.open("rb") as file:
            head = file.read(8)
            if head[:4] not in HEADS:
                return b""
            file.seek(0)
            tags.load_from_fp(file)
            for tag in (*KEPT, *([ORIENTATION] if orientation else [])):
                if tag in (EXIF, GPS):
                    inside = {k: v for k, v in tags.get_ifd(tag).items() if k != MAKER_NOTE}
                    if inside:
                        kept.get_ifd(tag).update(inside)
                elif tag in tags:
                    kept[tag] = tags[tag]
            return kept.tobytes()
    except DAMAGED:
        return b""
