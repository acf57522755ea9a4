"""What a camera's pixels are as directions: K from a file, a focal length, a field of view, EXIF, or a guess."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.correspondence.arrays import read_arrays
from n3net.errors import UserError
from n3net.io.files import opened
from n3net.io.tiff import exif_tags

Array = npt.NDArray[Any]

DIAGONAL = math.hypot(36, 24)  # mm, of the film that "35 mm equivalent" means
MAX_BYTES = 50_000_000  # of a file with K
FALLBACK = "not known: focal length taken as the longer side of the image"
# Tags of EXIF: the directory, what it holds, and millimetres of the units of resolution.
EXIF, FOCAL, FOCAL_35MM, RESOLUTION, UNIT, WIDTH, HEIGHT = 0x8769, 0x920A, 0xA405, 0xA20E, 0xA210, 0xA002, 0xA003
LENS = ("k1", "k2", "p1", "p2")  # lens distortion as in OpenCV, beside K in files of cameras
MILLIMETRES = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}


@dataclass(frozen=True)
class Intrinsics:
    """A pinhole camera: K, (3, 3), in pixels, the centre of the first one is (0, 0); and where it is from, in words."""

    k: npt.NDArray[np.float64]
    source: str
    known: bool = True  # false for the fallback

    def calibrate(self, points: Array) -> npt.NDArray[np.float32]:
        """Pixels (N, 2) to the coordinates that networks and estimators work in."""
        homogeneous = np.c_[np.asarray(points, np.float64), np.ones(len(points))] @ np.linalg.inv(self.k).T
        return homogeneous[:, :2].astype(np.float32)


def from_matrix(k: Any, source: str = "given") -> Intrinsics:
    """From K itself."""
    try:
        matrix = np.asarray(k, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"K ({source}): expected 3 x 3 numbers, got {k!r}") from None
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise UserError(f"K ({source}): expected 3 x 3 finite numbers, got shape {matrix.shape}")
    if min(matrix[0, 0], matrix[1, 1]) <= 0 or matrix[1, 0] or tuple(matrix[2]) != (0, 0, 1):
        rows = "[[fx, s, cx], [0, fy, cy], [0, 0, 1]]"
        raise UserError(f"K ({source}): expected {rows} with positive focal lengths, got {matrix.tolist()}")
    return Intrinsics(matrix, source)


def from_focal(focal: float, width: int, height: int, source: str = "focal length given") -> Intrinsics:
    """From a focal length in pixels; the axis goes through the middle of the image."""
    if not 0 < focal < math.inf:
        raise UserError(f"focal length: expected a positive number of pixels, got {focal}")
    return Intrinsics(_matrix(focal, (width - 1) / 2, (height - 1) / 2), f"{source}, {focal:.4g} pixels")


def from_film(millimetres: float, width: int, height: int, source: str = "focal length given") -> Intrinsics:
    """From a focal length on 35 mm film, by the diagonal of the image."""
    if not 0 < millimetres < math.inf:
        raise UserError(f"focal length: expected a positive number of millimetres, got {millimetres}")
    source = f"{source}, {millimetres:.4g} mm on 35 mm film"
    return from_focal(millimetres * math.hypot(width, height) / DIAGONAL, width, height, source)


def from_fov(degrees: float, width: int, height: int) -> Intrinsics:
    """From the field of view along the longer side of the image."""
    if not 0 < degrees < 180:
        raise UserError(f"field of view: expected degrees between 0 and 180, got {degrees}")
    focal = max(width, height) / 2 / math.tan(math.radians(degrees) / 2)
    return from_focal(focal, width, height, f"field of view given, {degrees:.4g} degrees")


def from_exif(exif: bytes, width: int, height: int) -> Intrinsics | None:
    """From the focal length that a camera wrote into its file, or None.

    Used are the focal length on 35 mm film, or the true one with the resolution of the sensor. Numbers that cannot be
    are taken for none.
    """
    try:
        tags = exif_tags(exif).get_ifd(EXIF)
        film = float(tags.get(FOCAL_35MM, 0))
        if 1 <= film <= 10_000:
            return from_film(film, width, height, "EXIF")
        per_mm = float(tags[RESOLUTION]) / MILLIMETRES[int(tags.get(UNIT, 2))]
        shot = max(float(tags.get(WIDTH, 0)), float(tags.get(HEIGHT, 0))) or max(width, height)
        focal = float(tags[FOCAL]) * per_mm * max(width, height) / shot  # the image may have been scaled since
    except (KeyError, TypeError, ValueError, ZeroDivisionError, SyntaxError, OSError, LookupError):
        return None
    if not 0.1 * max(width, height) <= focal <= 100 * max(width, height):
        return None
    return from_focal(focal, width, height, "EXIF, focal length and resolution of the sensor")


def fallback(width: int, height: int) -> Intrinsics:
    """x = (u - size / 2) / max(width, height): a field of view of 53 degrees along the longer side."""
    return Intrinsics(_matrix(max(width, height), width / 2, height / 2), FALLBACK, known=False)


def from_file(path: str | Path, size: tuple[int, int] | None = None, name: str = "") -> Intrinsics:
    """From a file with K.

    Args:
        path: ``.json`` with a matrix, {"K": matrix}, or {"images": {name: {"K": matrix}}}; beside K, "width" and
            "height" may say for which size it holds; that lens distortion (k1, k2, p1, p2) is not corrected is said
            in the result's source. ``.npy`` or ``.npz`` (the array ``K``, or the only one). Otherwise
            text with nine numbers. The image is meant upright, as its EXIF orientation says.
        size: width and height of the image: where the file states another one, K is scaled.
        name: of the image's file, for files with many.
    """
    path = Path(path)
    try:
        opened(path).close()  # a file, and no pipe
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path}: {path.stat().st_size} bytes are too many for a file with K")
        entry = _parse(path, name)
        value = entry["K"]
        stated = (int(entry["width"]), int(entry["height"])) if {"width", "height"} <= entry.keys() else None
        distorted = any(float(entry.get(key, 0)) for key in LENS)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise UserError(f"{path}: no K in it ({error}); expected 3 x 3 numbers as JSON, npy, npz or text") from None
    found = from_matrix(value, f"{path.name}, lens distortion not corrected" if distorted else path.name)
    return found if size is None or stated is None else resized(found, stated, size)


def _parse(path: Path, name: str) -> dict[str, Any]:
    """K, and what the file says beside it."""
    if path.suffix == ".json":
        document = json.loads(path.read_bytes())
        if isinstance(document, list):
            return {"K": document}
        if "images" in document:
            images = document["images"]
            if name not in images and PurePath(name).name not in images:
                raise LookupError(f"no image {name!r}")
            document = images.get(name) or images[PurePath(name).name]
        return dict(document)
    if path.suffix in (".npy", ".npz"):
        arrays = read_arrays(path, MAX_BYTES)
        return {"K": arrays.get("K", next(iter(arrays.values()), None))}
    numbers = [float(word) for word in path.read_text(encoding="utf8").replace(",", " ").split()]
    return {"K": np.reshape(numbers, (3, 3))}


def resized(found: Intrinsics, stated: tuple[int, int], size: tuple[int, int]) -> Intrinsics:
    """K of an image that was scaled since; both sizes are width and height."""
    if stated == size:
        return found
    x, y = size[0] / max(stated[0], 1), size[1] / max(stated[1], 1)
    if not 0.98 < x / y < 1.02:
        words = f"{stated[0]} x {stated[1]} pixels, the image has {size[0]} x {size[1]}"
        raise UserError(f"{found.source}: K is for {words}: is it turned or cropped?")
    k = found.k.copy()
    k[:2, 2] += 0.5  # scaling leaves the corner of the image where it is, not the centre of the first pixel
    k[0] *= x
    k[1] *= y
    k[:2, 2] -= 0.5
    return Intrinsics(k, f"{found.source}, scaled from {stated[0]} x {stated[1]}")


@dataclass(frozen=True)
class Cameras:
    """What a person says about the cameras of two images, in one of three ways: once for both, or once for each.

    Args:
        files: with K, see :func:`from_file`.
        focal: lengths in pixels, or as "28mm" on 35 mm film.
        fov: degrees, along the longer side.
    """

    files: Sequence[Path] = ()
    focal: Sequence[str] = ()
    fov: Sequence[float] = ()

    def __post_init__(self) -> None:
        given = [values for values in (self.files, self.focal, self.fov) if values]
        if len(given) > 1:
            raise UserError("--intrinsics, --focal and --fov are three ways to say the same: give one of them")
        if given and len(given[0]) > 2:
            raise UserError(
                f"the camera of two images was given {len(given[0])} times: expected once, or once for each"
            )

    @property
    def given(self) -> bool:
        """Whether anything was said."""
        return bool(self.files or self.focal or self.fov)

    @property
    def differ(self) -> bool:
        """Whether each image has its own."""
        return 2 in map(len, (self.files, self.focal, self.fov))

    def of(self, which: int, size: tuple[int, int] | None, name: str = "") -> Intrinsics | None:
        """The camera of the first or second image, None if nothing was said; ``size`` is needed for all but files."""
        if self.files:
            return from_file(self.files[min(which, len(self.files) - 1)], size, name)
        if size is None:
            raise ValueError("size: a focal length and a field of view need it")
        if self.focal:
            return _parse_focal(self.focal[min(which, len(self.focal) - 1)], *size)
        return from_fov(self.fov[min(which, len(self.fov) - 1)], *size) if self.fov else None


def _parse_focal(text: str, width: int, height: int) -> Intrinsics:
    number = text.strip().lower()
    try:
        if number.endswith("mm"):
            return from_film(float(number[:-2]), width, height)
        return from_focal(float(number.removesuffix("px")), width, height)
    except ValueError:
        raise UserError(f"focal length: expected pixels like 1200, or like 28mm on 35 mm film, got {text!r}") from None


def _matrix(focal: float, x: float, y: float) -> npt.NDArray[np.float64]:
    return np.array([[focal, 0, x], [0, focal, y], [0, 0, 1]], np.float64)
