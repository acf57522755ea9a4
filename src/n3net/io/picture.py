"""What is read from an image file and written to one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.errors import UserError

Array = npt.NDArray[Any]

# Ending of a file's name -> format, by Pillow's names.
SUFFIXES = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WEBP",
    ".bmp": "BMP",
}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))


@dataclass(frozen=True)
class Metadata:
    """What a file knows beside its pixels, as Pillow gives it."""

    exif: bytes = b""
    icc_profile: bytes | None = None
    xmp: bytes | None = None
    dpi: tuple[float, float] | None = None


@dataclass
class Picture:
    """An image of one of the types that files have.

    Args:
        pixels: (H, W) or (H, W, 3), uint8, uint16 or float32.
        alpha: (H, W) of the same type, or None.
        format: of the file, one of FORMATS.
        metadata: the orientation in it says how to turn the pixels for display; they are as in the file.
        white: the value of white, by default that of :func:`peak_of`.
    """

    pixels: Array
    alpha: Array | None = None
    format: str = "PNG"
    metadata: Metadata = field(default_factory=Metadata)
    white: float | None = None

    @property
    def peak(self) -> float:
        """The value of white."""
        return peak_of(self.pixels.dtype) if self.white is None else self.white

    def as_type(self, dtype: npt.DTypeLike) -> Array:
        """The pixels in another type."""
        return to_type(self.pixels, dtype, self.peak)


def peak_of(dtype: np.dtype[Any]) -> float:
    """The value of white."""
    return float(np.iinfo(dtype).max) if np.issubdtype(dtype, np.integer) else 1.0


def to_type(pixels: Array, dtype: npt.DTypeLike, peak: float | None = None) -> Array:
    """Another type for the same picture, rounded and clipped where it is an integer.

    Args:
        pixels: of any type.
        dtype: wanted.
        peak: the value of white in ``pixels``, by default :func:`peak_of` their type.
    """
    dtype = np.dtype(dtype)
    peak = peak_of(pixels.dtype) if peak is None else peak
    if pixels.dtype == dtype and peak == peak_of(dtype):
        return pixels
    scaled = pixels.astype(np.float32) * np.float32(peak_of(dtype) / peak)
    if np.issubdtype(dtype, np.integer):
        np.clip(np.rint(scaled, out=scaled), 0, peak_of(dtype), out=scaled)
    return scaled.astype(dtype, copy=False)


def format_for(name: str | PurePath) -> str:
    """The format that a file's name asks for."""
    suffix = PurePath(str(name)).suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{name}: cannot write {suffix or 'a file without ending'}; use one of {' '.join(SUFFIXES)}")
    return SUFFIXES[suffix]
