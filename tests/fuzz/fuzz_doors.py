"""The doors of the package: all that reads files of strangers.

Each takes the bytes of a file. It may do its work or raise :class:`UserError`; anything else is a finding. What can be
read must also be what it says: written again, it is read again.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from n3net.errors import UserError
from n3net.io import FORMATS, Metadata, Picture, read_image, write_image
from n3net.io.orientation import upright

MAX_PIXELS = 1_000_000


def image(data: bytes) -> None:
    """Whatever format it is: it is read, and written in all of them."""
    picture = read_image(io.BytesIO(data), MAX_PIXELS)
    assert picture.pixels.dtype in (np.uint8, np.uint16, np.float32)
    assert picture.pixels.ndim == 2 or picture.pixels.shape[2] == 3
    assert np.isfinite(picture.pixels).all()
    assert picture.alpha is None or picture.alpha.shape == picture.pixels.shape[:2]
    if picture.pixels.size < 100_000:
        _in_all_formats(picture)


def metadata(data: bytes) -> None:
    """As EXIF data, as a profile and as XMP of an image."""
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    _in_all_formats(Picture(pixels, metadata=Metadata(exif=data, icc_profile=data or None, xmp=data)))
    _in_all_formats(Picture(pixels.astype(np.uint16), metadata=Metadata(exif=b"Exif\0\0" + data)))


def _in_all_formats(picture: Picture) -> None:
    for format in FORMATS:
        file = io.BytesIO()
        try:
            write_image(file, picture, format)
        except UserError:
            continue
        back = read_image(file, 10 * MAX_PIXELS)
        whole = upright(picture.pixels, picture.metadata.exif).shape[:2]
        assert sorted(back.pixels.shape[:2]) == sorted(whole)
        if format == "PNG" and picture.pixels.dtype != np.float32:
            assert np.array_equal(back.pixels, picture.pixels)
        if format in ("PNG", "TIFF", "WEBP"):
            assert back.metadata.icc_profile == picture.metadata.icc_profile


def raw(data: bytes) -> None:
    from n3net.raw import libraw
    from n3net.raw.tags import exif_of, noise_profile

    with _file(data, ".dng") as path:
        noise_profile(path)
        exif_of(path, True)
        decoded = libraw.decode(path, MAX_PIXELS)
        assert decoded.mosaic.dtype == np.uint16
        libraw.develop(path, decoded.mosaic, decoded.saturation, 8, False)


def weights(data: bytes) -> None:
    from n3net.weights import info, load

    with _file(data, ".safetensors") as path:
        info(path)
        load(path)


def importer(data: bytes) -> None:
    from n3net.weights import import_file

    with _file(data, ".pth") as path:
        import_file(path)


def config(data: bytes) -> None:
    from n3net.training.config import dump, load

    with _file(data, ".yaml") as path:
        dump(load(str(path)))


def override(data: bytes) -> None:
    from n3net.training.config import load

    load("gaussian-25", [data.decode("utf-8", "replace")])


def pairs(data: bytes) -> None:
    from n3net.correspondence.matchfile import PairFile

    with _file(data, ".pairs") as path:
        for pair in PairFile(path):
            assert pair.x0.shape == pair.x1.shape


def npz(data: bytes) -> None:
    from n3net.correspondence.foreign import read_foreign
    from n3net.correspondence.intrinsics import Cameras

    with _file(data, ".npz") as path:
        read_foreign(path, Cameras())


def cameras(data: bytes) -> None:
    from n3net.correspondence.intrinsics import from_file
    from n3net.correspondence.scenes import read_scene

    with _file(data, ".json") as path:
        for read in (read_scene, from_file):
            try:
                read(path)
            except UserError:
                continue


def database(data: bytes) -> None:
    from n3net.correspondence.adapters import filter_database

    with _file(data, ".db") as path:
        list(filter_database(path, path.with_name("out.db")))


class _file:  # noqa: N801
    """The bytes in a file of their own, with nothing else beside them."""

    def __init__(self, data: bytes, suffix: str) -> None:
        self.data, self.suffix = data, suffix

    def __enter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory(prefix="n3net-fuzz-")
        path = Path(self._folder.name) / f"file{self.suffix}"
        path.write_bytes(self.data)
        return path

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


DOORS: dict[str, Callable[[bytes], None]] = {
    door.__name__: door
    for door in (image, metadata, raw, weights, importer, config, override, pairs, npz, cameras, database)
}


def enter(name: str, data: bytes) -> None:
    """Give bytes to a door, and refuse nothing but what is refused in words."""
    words = "done"
    try:
        DOORS[name](data)
    except UserError as error:
        words = str(error)
    assert 0 < len(words) < 3000, "words, and not too many"
