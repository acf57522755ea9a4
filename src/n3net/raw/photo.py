"""Raw files, read and developed by LibRaw (the extra 'raw')."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from n3net.errors import UserError
from n3net.io.picture import Metadata, Picture
from n3net.io.reading import MAX_PIXELS, check_pixels
from n3net.noise.sensor import NoiseLevel
from n3net.raw.tags import ARTIST, DATE, EXIF, exif_of, noise_profile

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


class RawPhoto:
    """An open raw file with a Bayer colour filter array.

    Args:
        path: of the file.
        max_pixels: refuse larger ones.

    Attributes:
        mosaic: (H, W) uint16, the visible pixels. What is written into it is what :meth:`develop` develops.
        planes: the four of them, row by row.
    """

    def __init__(self, path: Path, max_pixels: int = MAX_PIXELS) -> None:
        try:
            import rawpy
        except ImportError:
            raise UserError("raw files need the package rawpy: pip install 'n3net[raw]'") from None
        if not path.is_file():
            raise UserError(f"{path}: no such file")
        self.path, self._raw, self._rawpy = path, rawpy.RawPy(), rawpy
        try:
            self._raw.open_file(str(path))
            sizes = self._raw.sizes
            check_pixels(sizes.raw_width, sizes.raw_height, max_pixels)
            self._raw.unpack()
            self.planes = self._planes()
            self.mosaic: Array = self._raw.raw_image_visible
            self._saturation = self._brightest()
        except (rawpy.LibRawError, ValueError, RuntimeError, OverflowError) as error:
            self._raw.close()
            if isinstance(error, UserError):
                raise
            raise UserError(f"LibRaw cannot read it: {_reason(error)}") from None
        except BaseException:
            self._raw.close()
            raise

    def __enter__(self) -> RawPhoto:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._raw.close()

    def _planes(self) -> list[Plane]:
        raw, sizes = self._raw, self._raw.sizes
        if raw.raw_type != self._rawpy.RawType.Flat or raw.raw_pattern is None or raw.raw_pattern.shape != (2, 2):
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

    def _brightest(self) -> int:
        """What is developed to white, above black: LibRaw's rule, applied once to the mosaic as it was read.

        The brightest pixel counts where it is near the white level, which some cameras never reach. Denoising changes
        the brightest pixel, and must not change the exposure.
        """
        white = self.planes[0].white - min(plane.black for plane in self.planes)
        peak = max(float(self.mosaic[plane.place].max()) - plane.black for plane in self.planes)
        return round(peak if NEAR_WHITE * white < peak < white else white)

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
        try:
            pixels = self._raw.postprocess(
                use_camera_wb=True,
                no_auto_bright=not auto_bright,
                output_bps=bits,
                gamma=(2.4, 12.92),
                user_sat=self._saturation,
                adjust_maximum_thr=0.0,
            )
        except (self._rawpy.LibRawError, ValueError, RuntimeError) as error:
            raise UserError(f"LibRaw cannot develop it: {_reason(error)}") from None
        from PIL import ImageCms

        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        return Picture(pixels, None, "TIFF", Metadata(self.exif(orientation=False), profile))

    def exif(self, orientation: bool) -> bytes:
        """What the file says about the photograph; the little that LibRaw knows where the file is not like TIFF."""
        return exif_of(self.path, orientation) or self._known()

    def _known(self) -> bytes:
        other = getattr(self._raw, "other", None)  # of newer versions
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

    # What a DNG file needs to know

    @property
    def area(self) -> tuple[int, int, int, int]:
        """Of the mosaic on the sensor: top, left, bottom, right."""
        sizes, (height, width) = self._raw.sizes, self.mosaic.shape
        return sizes.top_margin, sizes.left_margin, sizes.top_margin + height, sizes.left_margin + width

    @property
    def neutral(self) -> tuple[float, float, float]:
        """White balance: what the camera's red, green and blue are for something gray."""
        gains = [float(g) for g in self._raw.camera_whitebalance[:3]]
        if min(gains) <= 0:
            gains = [float(g) for g in self._raw.daylight_whitebalance[:3]]
        if min(gains) <= 0:
            return 1.0, 1.0, 1.0
        return gains[1] / gains[0], 1.0, gains[1] / gains[2]

    @property
    def matrix(self) -> list[float]:
        """From XYZ to the camera's colours, row by row, in daylight."""
        matrix: Array = np.asarray(self._raw.rgb_xyz_matrix, np.float64)[:3]
        if not np.abs(matrix).sum() > 0:  # not known: the camera's colours are taken for sRGB's
            matrix = np.linalg.inv([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        return [float(v) for v in matrix.ravel()]

    @property
    def flip(self) -> int:
        """The orientation by its number in EXIF."""
        return {0: 1, 3: 3, 5: 8, 6: 6}.get(int(self._raw.sizes.flip), 1)


def _reason(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    return (text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)) or type(error).__name__
