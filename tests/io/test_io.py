"""Image files: every kind of pixel and all metadata survive; what is damaged is refused."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps
from PIL.TiffImagePlugin import IFDRational

from n3net.errors import UserError
from n3net.io import Metadata, Picture, read_image, to_type, write_image

ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def exif(orientation: int = 6) -> bytes:
    tags = Image.Exif()
    tags[274] = orientation
    tags[271] = "a camera"
    tags.get_ifd(0x8769)[0x829A] = IFDRational(1, 250)  # exposure time
    return tags.tobytes()


def pixels(dtype: Any, channels: int = 1, size: tuple[int, int] = (70, 31)) -> np.ndarray:
    shape = size if channels == 1 else (*size, channels)
    values = np.random.default_rng(0).random(shape)
    return to_type(values.astype(np.float32), dtype)


def round_trip(picture: Picture, format: str | None = None) -> Picture:
    file = io.BytesIO()
    write_image(file, picture, format)
    return read_image(file)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "I;16"])
def test_tiff_files_are_turned_upright(tmp_path: Path, mode: str, orientation: int) -> None:
    """Also those without compression, which Pillow maps into memory when it is given their name."""
    channels = {"RGB": 3, "RGBA": 4}.get(mode, 1)
    array = pixels(np.uint16 if mode == "I;16" else np.uint8, channels)
    Image.fromarray(array).save(tmp_path / "turned.tif", exif=exif(orientation))
    picture = read_image(tmp_path / "turned.tif")
    back = picture.pixels if picture.alpha is None else np.dstack([picture.pixels, picture.alpha])
    np.testing.assert_array_equal(back, np.rot90(array, {1: 0, 3: 2, 6: -1, 8: 1}[orientation]))


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("format", "dtype"),
    [("PNG", np.uint8), ("PNG", np.uint16), ("TIFF", np.uint8), ("TIFF", np.uint16), ("TIFF", np.float32)],
)
def test_lossless_formats_keep_every_bit(format: str, dtype: Any, channels: int, alpha: bool) -> None:
    if format == "TIFF" and dtype != np.uint8 and (alpha or channels == 3):
        pytest.importorskip("tifffile")
    picture = Picture(pixels(dtype, channels), pixels(dtype) if alpha else None, format, Metadata(exif(1), ICC))
    back = round_trip(picture)
    assert back.format == format
    assert back.pixels.dtype == dtype
    np.testing.assert_array_equal(back.pixels, picture.pixels)
    if alpha:
        np.testing.assert_array_equal(back.alpha, picture.alpha)
    else:
        assert back.alpha is None
    assert back.metadata.icc_profile == ICC


@pytest.mark.parametrize(("dtype", "channels"), [(np.uint16, 3), (np.uint16, 4), (np.uint16, 2)])
def test_sixteen_bit_png_is_what_others_read(dtype: Any, channels: int) -> None:
    cv2 = pytest.importorskip("cv2")
    a = pixels(dtype, channels)
    picture = Picture(a[..., 0] if channels == 2 else a[..., :3], a[..., -1] if channels in (2, 4) else None)
    file = io.BytesIO()
    write_image(file, picture, "PNG")
    theirs = cv2.imdecode(np.frombuffer(file.getvalue(), np.uint8), cv2.IMREAD_UNCHANGED)
    expected = a[..., {2: [0, 0, 0, 1], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[channels]]
    np.testing.assert_array_equal(theirs, expected)
    encoded = cv2.imencode(".png", expected)[1].tobytes()
    back = read_image(io.BytesIO(encoded))
    np.testing.assert_array_equal(back.pixels, picture.pixels if channels != 2 else a[..., [0, 0, 0]])


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_sixteen_bit_tiff_of_others(order: Any, compression: str | None, planar: str) -> None:
    tifffile = pytest.importorskip("tifffile")
    a = pixels(np.uint16, 3)
    file = io.BytesIO()
    stored = a if planar == "contig" else np.moveaxis(a, -1, 0)
    tifffile.imwrite(file, stored, photometric="rgb", byteorder=order, compression=compression, planarconfig=planar)
    np.testing.assert_array_equal(read_image(file).pixels, a)


def test_sixteen_bit_tiff_is_what_others_read() -> None:
    tifffile = pytest.importorskip("tifffile")
    for a in (pixels(np.uint16, 3), pixels(np.uint16, 4), pixels(np.float32, 3)):
        file = io.BytesIO()
        write_image(file, Picture(a[..., :3], a[..., 3] if a.shape[2] == 4 else None, "TIFF", Metadata(dpi=(300, 200))))
        file.seek(0)
        with tifffile.TiffFile(file) as tiff:
            np.testing.assert_array_equal(tiff.asarray(), a)
            assert tiff.pages[0].tags[282].value == (300, 1)


@pytest.mark.parametrize("source", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("target", ["JPEG", "PNG", "WEBP", "TIFF", "BMP"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_metadata_survives(source: str, target: str, dtype: Any) -> None:
    """Turned for display, the output looks like the input; profile, camera and resolution are kept."""
    file = io.BytesIO()
    smooth = np.linspace(0, 255, 64 * 40).reshape(64, 40)
    flat = np.stack([smooth, smooth[::-1], smooth[:, ::-1]], -1).astype(np.uint8)
    Image.fromarray(flat).save(file, source, exif=exif(), icc_profile=ICC, dpi=(300, 300), quality=95)
    with Image.open(io.BytesIO(file.getvalue())) as image:
        looks = np.asarray(ImageOps.exif_transpose(image)).astype(int)
    picture = read_image(file)
    picture.pixels = to_type(picture.pixels, dtype)
    out = io.BytesIO()
    write_image(out, picture, target)
    with Image.open(out) as image:
        upright = np.asarray(ImageOps.exif_transpose(image)).astype(int)
        assert upright.shape == looks.shape
        assert np.abs(upright - looks).mean() < 4
        if target != "BMP":
            assert image.info["icc_profile"] == ICC
            tags = image.getexif()
            assert tags[271].strip("\0") == "a camera"
            assert float(tags.get_ifd(0x8769)[0x829A]) == pytest.approx(1 / 250)
        if source != "WEBP" and target != "WEBP":
            assert image.info["dpi"] == pytest.approx((300, 300), abs=0.1)


def saved(image: Image.Image, format: str, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file


def test_palette_bilevel_and_transparent_colour() -> None:
    rgb = Image.fromarray(pixels(np.uint8, 3))
    palette = rgb.quantize(16)
    np.testing.assert_array_equal(read_image(saved(palette, "PNG")).pixels, np.asarray(palette.convert("RGB")))
    keyed = read_image(saved(palette, "PNG", transparency=3))
    assert keyed.alpha is not None
    np.testing.assert_array_equal(keyed.alpha == 0, np.asarray(palette) == 3)
    gray = Image.fromarray(np.arange(200, dtype=np.uint8).reshape(10, 20))
    keyed = read_image(saved(gray, "PNG", transparency=17))
    assert keyed.alpha is not None
    assert list(np.flatnonzero(keyed.alpha == 0)) == [17]
    bilevel = read_image(saved(gray.convert("1"), "PNG"))
    assert bilevel.pixels.dtype == np.uint8
    assert set(np.unique(bilevel.pixels)) <= {0, 255}


def test_content_counts_not_the_name(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    Image.fromarray(pixels(np.uint8, 3)).save(path, "JPEG")
    assert read_image(path).format == "JPEG"


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "WEBP", "BMP"])
@pytest.mark.parametrize("part", [0.02, 0.3, 0.9])
def test_truncated_files_are_refused(format: str, part: float) -> None:
    data = saved(Image.fromarray(pixels(np.uint8, 3, (100, 100))), format).getvalue()
    with pytest.raises(UserError):
        read_image(io.BytesIO(data[: int(part * len(data))]))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.png"
    path.write_text("no image at all")
    with pytest.raises(UserError, match="not a readable"):
        read_image(path)
    with pytest.raises(UserError, match="No such file"):
        read_image(tmp_path / "nothing.png")
    with pytest.raises(UserError, match="CMYK"):
        read_image(saved(Image.new("CMYK", (8, 8)), "JPEG"))
    frames = [Image.new("L", (8, 8), c) for c in (0, 90)]
    with pytest.raises(UserError, match="2 pages"):
        read_image(saved(frames[0], "TIFF", save_all=True, append_images=frames[1:]))


def test_decompression_bomb_is_refused_before_it_is_decoded() -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    with pytest.raises(UserError, match="400 megapixels"):
        read_image(io.BytesIO(bomb))
    with pytest.raises(UserError, match="more than the limit"):
        read_image(saved(Image.new("L", (100, 100)), "PNG"), max_pixels=9999)


def test_not_a_number_is_refused() -> None:
    a = np.ones((8, 8), np.float32)
    a[3, 3] = np.nan
    with pytest.raises(UserError, match="not numbers"):
        read_image(saved(Image.fromarray(a), "TIFF"))


def test_refuses_what_a_format_cannot_store() -> None:
    gray = pixels(np.uint16)
    with pytest.raises(UserError, match="JPEG cannot store"):
        write_image(io.BytesIO(), Picture(gray, gray), "JPEG")


@pytest.mark.parametrize(("format", "longest"), [("WEBP", 16383), ("JPEG", 65500)])
def test_sides_that_a_format_can_store(format: str, longest: int) -> None:
    write_image(io.BytesIO(), Picture(np.zeros((1, longest), np.uint8)), format)
    for shape in ((1, longest + 1), (longest + 1, 1)):
        with pytest.raises(UserError, match=f"at most {longest} pixels a side"):
            write_image(io.BytesIO(), Picture(np.zeros(shape, np.uint8)), format)


def test_types_are_scaled_to_the_same_picture() -> None:
    a = np.array([[0, 128, 255]], np.uint8)
    np.testing.assert_array_equal(to_type(a, np.uint16), [[0, 128 * 257, 65535]])
    np.testing.assert_array_equal(to_type(to_type(a, np.float32), np.uint8), a)
    np.testing.assert_array_equal(to_type(np.array([-0.1, 0.5, 1.7], np.float32), np.uint8), [0, 128, 255])
    np.testing.assert_array_equal(to_type(np.array([50.0], np.float32), np.uint8, peak=100), [128])


def test_missing_extra_says_how_to_install_it() -> None:
    tifffile = pytest.importorskip("tifffile")
    file = io.BytesIO()
    tifffile.imwrite(file, pixels(np.float32, 3), photometric="rgb")
    code = (
        "import sys, io; sys.modules['tifffile'] = None\n"
        "from n3net.io import read_image\n"
        "read_image(io.BytesIO(sys.stdin.buffer.read()))"
    )
    run = subprocess.run([sys.executable, "-c", code], input=file.getvalue(), capture_output=True, check=False)
    assert b"pip install 'n3net[images]'" in run.stderr
