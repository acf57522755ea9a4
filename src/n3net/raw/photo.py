"""Raw files of cameras: their mosaic, what is known about it, and how it is developed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.errors import UserError
from n3net.io.isolation import WorkerError, isolated
from n3net.io.picture import Metadata, Picture
from n3net.io.reading import MAX_PIXELS
from n3net.noise.sensor import NoiseLevel
from n3net.raw import libraw
from n3net.raw.libraw import Plane
from n3net.raw.tags import exif_of, noise_profile

Array = npt.NDArray[Any]

# Of LibRaw, for a file: seconds; bytes, and bytes for each pixel, of which developing takes most.
SECONDS, BYTES, BYTES_PER_PIXEL = 600.0, 2_000_000_000, 40


class RawPhoto:
    """A raw file with a Bayer colour filter array, read by LibRaw in a process of its own.

    Args:
        path: of the file, which is read again when it is developed.
        max_pixels: refuse larger ones.

    Attributes:
        mosaic: (H, W) uint16, the visible pixels. What is written into it is what :meth:`develop` develops.
        planes: the four of them, row by row.
        area: of the mosaic on the sensor: top, left, bottom, right.
    """

    def __init__(self, path: Path, max_pixels: int = MAX_PIXELS) -> None:
        if not path.is_file():
            raise UserError(f"{path}: no such file")
        self.path = path
        self._decoded = _libraw(libraw.decode, max_pixels, path.resolve(), max_pixels)
        self.mosaic: Array = self._decoded.mosaic
        self.planes: list[Plane] = self._decoded.planes
        self.area: tuple[int, int, int, int] = self._decoded.area

    def levels(self) -> list[NoiseLevel] | None:
        """Noise of each plane as the file says it, or None."""
        profile = noise_profile(self.path)
        if not profile:
            return None
        pairs = [profile["RGB".index(p.color)] if len(profile) >= 3 else profile[0] for p in self.planes]
        return [NoiseLevel(a, b) for a, b in pairs]

    def values(self, plane: Plane) -> npt.NDArray[np.float32]:
        """A plane, black 0 and white 1."""
        pixels = self.mosaic[plane.place].astype(np.float32)
        return (pixels - np.float32(plane.black)) / np.float32(plane.white - plane.black)

    def develop(self, bits: int = 16, auto_bright: bool = False) -> Picture:
        """LibRaw's development of the mosaic as it is now: camera's white balance and colours, sRGB, upright."""
        what = self.path.resolve(), self.mosaic, self._decoded.saturation, bits, auto_bright
        pixels = _libraw(libraw.develop, self.mosaic.size, *what)
        return Picture(pixels, None, "TIFF", Metadata(self.exif(orientation=False), _srgb()))

    def exif(self, orientation: bool) -> bytes:
        """What the file says about the photograph; the little that LibRaw knows where the file is not like TIFF."""
        return exif_of(self.path, orientation) or self._decoded.exif

    # What a DNG file needs to know

    @property
    def neutral(self) -> tuple[float, float, float]:
        """White balance: what the camera's red, green and blue are for something gray."""
        for gains in self._decoded.gains:
            if min(gains) > 0:
                return gains[1] / gains[0], 1.0, gains[1] / gains[2]
        return 1.0, 1.0, 1.0

    @property
    def matrix(self) -> list[float]:
        """From XYZ to the camera's colours, row by row, in daylight."""
        matrix: Array = self._decoded.matrix
        if not np.abs(matrix).sum() > 0:  # not known: the camera's colours are taken for sRGB's
            matrix = np.linalg.inv([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        return [float(v) for v in matrix.ravel()]

    @property
    def flip(self) -> int:
        """The orientation by its number in EXIF."""
        return {0: 1, 3: 3, 5: 8, 6: 6}.get(self._decoded.flip, 1)


def _srgb() -> bytes:
    """A colour profile of sRGB, the same bytes at any time: littleCMS writes the hour of its making into it."""
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile[:24] + struct.pack(">6H", 2000, 1, 1, 0, 0, 0) + profile[36:]


def _libraw(function: Any, pixels: int, *args: Any) -> Any:
    """A function of :mod:`n3net.raw.libraw` in a process of its own, which it may crash."""
    try:
        return isolated(function, *args, memory=BYTES + BYTES_PER_PIXEL * pixels, seconds=SECONDS)
    except WorkerError as error:
        raise UserError(f"LibRaw cannot read it: {error}") from None
