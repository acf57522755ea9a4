"""Image files that are broken, or were made to break something, and metadata that does not fit where it goes."""

from __future__ import annotations

import io
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from n3net.errors import UserError
from n3net.io import FORMATS, Metadata, Picture, read_image, write_image
from n3net.io.orientation import upright

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)


def encoded(picture: Picture, format: str) -> io.BytesIO:
    file = io.BytesIO()
    write_image(file, picture, format)
    return file


def tiff_of_one_color(width: int, height: int) -> bytes:
    """A gray TIFF file of any size in a few kilobytes: all of its strips are the same bytes."""
    rows = 1000
    strip = zlib.compress(bytes(width * rows))
    count = -(-height // rows)
    places = struct.pack(f"<{count}I", *[8 + 2 + 12 * 9 + 4 + 8 * count] * count)
    sizes = struct.pack(f"<{count}I", *[len(strip)] * count)
    lists = 8 + 2 + 12 * 9 + 4
    tags = [
        *((256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1)),
        *((273, 4, count, lists), (277, 3, 1, 1), (278, 4, 1, rows), (279, 4, count, lists + 4 * count)),
    ]
    directory = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + directory + struct.pack("<I", 0) + places + sizes + strip


def test_tiff_files_above_pillows_own_limit(tmp_path: Path) -> None:
    path = tmp_path / "large.tif"
    path.write_bytes(tiff_of_one_color(20_000, 9_500))  # 190 megapixels
    assert read_image(path).pixels.shape == (9_500, 20_000)
    with pytest.raises(UserError, match="megapixels"):
        read_image(path, 100_000_000)


def test_pillows_limit_is_as_it_was_after_reading_in_threads(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encoded(Picture(PIXELS), "PNG").getvalue())
    before = Image.MAX_IMAGE_PIXELS
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: read_image(path), range(400)))
    assert before == Image.MAX_IMAGE_PIXELS
    assert before is not None


@pytest.mark.parametrize("resolution", [(0, 0), (1, 0), (0, 1), (2**32 - 1, 1)])
@pytest.mark.parametrize("format", FORMATS)
def test_resolutions_that_are_none(resolution: tuple[int, int], format: str) -> None:
    file = io.BytesIO()
    ifd = TiffImagePlugin.ImageFileDirectory_v2()
    ifd[282] = ifd[283] = TiffImagePlugin.IFDRational(*resolution) if resolution[1] else 72.0
    ifd[296] = 2
    Image.fromarray(PIXELS).save(file, "TIFF", tiffinfo=ifd)
    data = file.getvalue()
    if not resolution[1]:
        data = data.replace(struct.pack("<II", 72, 1), struct.pack("<II", *resolution))
        assert struct.pack("<II", *resolution) in data
    picture = read_image(io.BytesIO(data))
    assert picture.metadata.dpi is None
    assert read_image(encoded(picture, format)).pixels.shape == PIXELS.shape


@pytest.mark.parametrize(
    ("metadata", "format"),
    [
        (Metadata(exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0" + bytes(70_000)), "JPEG"),
        (Metadata(xmp=b"<x:xmpmeta/>" + b" " * 70_000), "JPEG"),
        (Metadata(icc_profile=bytes(3_000_000)), "PNG"),
        (Metadata(icc_profile=bytes(17_000_000)), "JPEG"),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_metadata_that_a_format_has_no_place_for(metadata: Metadata, format: str, dtype: type) -> None:
    picture = Picture(PIXELS.astype(dtype), metadata=metadata)
    with pytest.raises(UserError, match=f"that {format} can have; write TIFF"):
        encoded(picture, format)
    back = read_image(encoded(picture, "TIFF")).metadata
    assert (back.xmp, back.icc_profile) == (metadata.xmp, metadata.icc_profile)


def damaged_exif() -> list[bytes]:
    tags = Image.Exif()
    tags[271], tags[274], tags[306] = "Testcam", 6, "2026:01:01 00:00:00"
    tags.get_ifd(34665).update({33434: 0.01, 37500: b"notes" * 10, 40962: 11, 40963: 9})
    whole = tags.tobytes()
    rng = np.random.default_rng(1)
    found = [whole[:n] for n in range(0, len(whole), 9)]
    for _ in range(60):
        broken = bytearray(whole)
        for place in rng.integers(6, len(whole), 3):
            broken[place] = rng.integers(256)
        found.append(bytes(broken))
    return [*found, b"Exif\0\0", b"Exif\0\0garbage", b"\xff" * 50]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("format", FORMATS)
def test_damaged_exif_costs_nothing_but_itself(format: str) -> None:
    for exif in damaged_exif():
        back = read_image(encoded(Picture(PIXELS, metadata=Metadata(exif=exif)), format))
        if format in ("PNG", "TIFF"):
            assert np.array_equal(np.sort(back.pixels, axis=None), np.sort(PIXELS, axis=None)), "turned or not"
        assert upright(back.pixels, back.metadata.exif).size == PIXELS.size


def test_what_is_no_number_is_not_written() -> None:
    pixels = np.ones((5, 6), np.float32)
    pixels[2, 3] = np.nan
    for format in FORMATS:
        with pytest.raises(UserError, match=r"1 of its 30 values are not numbers.*row 2, column 3"):
            encoded(Picture(pixels), format)


def test_pipes_and_loops_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("b.png")
    with pytest.raises(UserError, match="a pipe or a device"):
        read_image(tmp_path / "a.png")
    with pytest.raises(UserError, match="symbolic links"):
        read_image(tmp_path / "b.png")
