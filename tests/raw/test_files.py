"""Raw files: real DNGs with known noise, read by LibRaw, denoised, developed and written."""

from __future__ import annotations

import io
import struct
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dng import BLACK, LEVEL, WHITE, noisy, scene, write_test_dng
from n3net.errors import UserError
from n3net.io import Metadata, read_image
from n3net.io.tiff import exif_tags, write_tiff
from n3net.models import create
from n3net.noise.sensor import NoiseLevel
from n3net.raw import libraw
from n3net.raw.dng import corrections, write_dng, write_mosaic
from n3net.raw.photo import RawPhoto
from n3net.raw.tags import exif_of, noise_profile
from n3net.restoration.raw import denoise_photo, denoise_plane
from n3net.weights import save

rawpy = pytest.importorskip("rawpy", reason="needs the extra raw")
tifffile = pytest.importorskip("tifffile", reason="needs the extra images")


class Smooth(torch.nn.Module):
    """A mean over 9 x 9 pixels, in place of a trained network."""

    reach = 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(x[:, :1], 9, 1, 4, count_include_pad=False)


@pytest.fixture
def model() -> torch.nn.Module:
    from n3net.models.raw import RawDenoiser

    return RawDenoiser(Smooth(), stabilize=False)


@pytest.mark.parametrize("pattern", ["RGGB", "BGGR", "GRBG", "GBRG"])
def test_planes_levels_and_noise_profile(tmp_path: Path, pattern: str) -> None:
    profile = (1e-3, 1e-6, 2e-3, 2e-6, 3e-3, 3e-6)
    values = scene(pattern=pattern)
    path = write_test_dng(tmp_path / "a.dng", values, pattern, profile)
    photo = RawPhoto(path)
    assert "".join(plane.color for plane in photo.planes) == pattern
    assert {plane.black for plane in photo.planes} == {BLACK}
    assert {plane.white for plane in photo.planes} == {WHITE}
    levels = photo.levels()
    assert levels is not None
    expected = {"R": NoiseLevel(1e-3, 1e-6), "G": NoiseLevel(2e-3, 2e-6), "B": NoiseLevel(3e-3, 3e-6)}
    assert levels == [expected[c] for c in pattern]
    for plane in photo.planes:
        assert np.allclose(photo.values(plane), values[plane.place], atol=1e-4)


def test_margins_shift_the_pattern(tmp_path: Path) -> None:
    """Pixels that a sensor keeps covered are neither denoised nor written; the first visible one may be any colour."""
    values = scene(pattern="GBRG")  # of the whole sensor; where the visible part starts, in row 3, it is RGGB
    path = write_test_dng(tmp_path / "a.dng", values, "RGGB", active=(3, 6, 93, 120))  # top, left, bottom, right
    photo = RawPhoto(path)
    height, width = photo.mosaic.shape
    top = 93 - height  # LibRaw leaves out the first row where it is odd
    for plane in photo.planes:
        assert np.allclose(photo.values(plane), values[top:93, 6:120][plane.place], atol=1e-4)
        assert plane.color == "GBRG"[(top + plane.row) % 2 * 2 + plane.column]
    colors = [plane.color for plane in photo.planes]
    photo.mosaic[:] = BLACK
    assert photo.develop(8).pixels.max() == 0
    with (tmp_path / "out.dng").open("wb") as file:
        write_dng(file, photo)
    again = RawPhoto(tmp_path / "out.dng")
    assert again.mosaic.shape == (height, width)
    assert [plane.color for plane in again.planes] == colors


def test_exif_data_goes_along_without_the_makers_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[272] = "One"
    exif.get_ifd(34665).update({33434: 0.25, 34855: 3200, 37500: b"maker"})
    with (tmp_path / "a.tif").open("wb") as file:
        write_tiff(file, np.zeros((8, 8), np.uint8), Metadata(exif.tobytes()))
    kept = exif_tags(exif_of(tmp_path / "a.tif", orientation=True))
    assert kept[272] == "One"
    assert kept.get_ifd(34665).keys() == {33434, 34855}
    data = exif_of(tmp_path / "a.tif", orientation=True)
    monkeypatch.setattr("n3net.raw.photo.exif_of", lambda path, orientation: data)
    photo = RawPhoto(write_test_dng(tmp_path / "a.dng", scene()))
    with (tmp_path / "out.dng").open("wb") as file:
        write_dng(file, photo)
    assert exif_tags(exif_of(tmp_path / "out.dng", orientation=True)).get_ifd(34665)[34855] == 3200
    with rawpy.imread(str(tmp_path / "out.dng")) as raw:
        assert raw.other.iso_speed == 3200
    monkeypatch.setattr("n3net.raw.photo.exif_of", lambda path, orientation: b"")  # a file that is not like TIFF
    photo = RawPhoto(tmp_path / "out.dng")
    assert exif_tags(photo.exif(orientation=True)).get_ifd(34665)[34855] == 3200
    assert exif_tags(photo.exif(orientation=True)).get_ifd(34665)[33434] == 0.25
    (tmp_path / "b.raf").write_bytes(b"FUJIFILM")
    assert exif_of(tmp_path / "b.raf", orientation=True) == b""


def test_one_profile_for_all_colors_none_and_nonsense(tmp_path: Path) -> None:
    assert noise_profile(write_test_dng(tmp_path / "a.dng", scene(), profile=(2e-3, 1e-5))) == [(2e-3, 1e-5)]
    photo = RawPhoto(tmp_path / "a.dng")
    assert photo.levels() == [LEVEL] * 4
    assert noise_profile(write_test_dng(tmp_path / "b.dng", scene())) == []
    for nonsense in [(0.0, 0.0), (-1.0, 1.0), (1e-3,), (float("nan"), 0.1)]:
        assert noise_profile(write_test_dng(tmp_path / "c.dng", scene(), profile=nonsense)) == []


def test_denoised_mosaic_is_closer_and_saturated_pixels_stay(tmp_path: Path, model: torch.nn.Module) -> None:
    values = scene()
    spoiled = noisy(values)
    spoiled[40:44, 60:64] = 1.5
    photo = RawPhoto(write_test_dng(tmp_path / "a.dng", spoiled))
    before = photo.mosaic.copy()
    steps: list[float] = []
    denoise_photo(photo, [LEVEL] * 4, model, tile=20, progress=lambda done, total: steps.append(done / total))
    assert steps == sorted(steps)
    assert steps[-1] == 1
    truth = values * (WHITE - BLACK) + BLACK
    rows = slice(0, 36)  # without the saturated part
    errors = [float(np.square(m[rows] - truth[rows]).mean()) for m in (before.astype(float), photo.mosaic)]
    assert errors[1] < 0.2 * errors[0]
    assert (photo.mosaic[40:44, 60:64] == WHITE).all()


def test_tiles_do_not_change_the_result() -> None:
    torch.manual_seed(0)
    net = create("raw-n3net", features=8, depth=3, stages=2, k=2)
    plane = np.random.default_rng(0).random((130, 170), dtype=np.float32)
    whole = denoise_plane(plane, LEVEL, net)
    assert np.abs(denoise_plane(plane, LEVEL, net, tile=80) - whole).max() < 1e-4
    assert np.abs(whole - plane).max() > 1e-3


def test_development_follows_the_mosaic(tmp_path: Path) -> None:
    photo = RawPhoto(write_test_dng(tmp_path / "a.dng", scene(), orientation=6))
    picture = photo.develop(16)
    assert picture.pixels.shape == (128, 96, 3)  # upright
    assert picture.pixels.dtype == np.uint16
    inner = picture.pixels[8:-8, 8:-8].astype(float)
    assert np.abs(inner[..., 0] / inner[..., 1] - 1).max() < 0.02  # gray in the camera's white balance
    photo.mosaic[:] = BLACK
    assert photo.develop(8).pixels.max() == 0
    tags = exif_tags(picture.metadata.exif)
    assert tags[271] == "Testcam"
    assert tags[315] == "A Photographer"
    assert 274 not in tags
    assert struct.unpack(">6H", picture.metadata.icc_profile[24:36]) == (
        2000,
        1,
        1,
        0,
        0,
        0,
    )  # not now: twice gives one file


@pytest.mark.parametrize("brightest", [0.6, 0.72, 0.9])
def test_denoising_does_not_change_the_exposure(tmp_path: Path, brightest: float) -> None:
    path = write_test_dng(tmp_path / "a.dng", noisy(scene() * brightest / 0.7))
    with rawpy.imread(str(path)) as file:
        options = {"use_camera_wb": True, "no_auto_bright": True, "output_bps": 16, "gamma": (2.4, 12.92)}
        expected = file.postprocess(**options).astype(int)
    photo = RawPhoto(path)
    assert np.abs(photo.develop(16).pixels - expected).max() <= 8  # LibRaw's own idea of what is white
    before = photo.develop(16).pixels[40:60, 40:60].mean()
    photo.mosaic[:] = np.minimum(photo.mosaic, 0.65 * brightest * (WHITE - BLACK) + BLACK)
    assert abs(photo.develop(16).pixels[40:60, 40:60].mean() - before) < 0.01 * before


def test_dng_keeps_crop_and_kind_of_profile_tables(tmp_path: Path) -> None:
    crop = [(50719, 4, 2, (4, 6), True), (50720, 4, 2, (100, 80), True)]
    path = write_test_dng(tmp_path / "a.dng", scene(), further=[*crop, (51108, 4, 1, 1, True)])
    photo = RawPhoto(path)
    with (tmp_path / "out.dng").open("wb") as file:
        write_dng(file, photo)
    with tifffile.TiffFile(tmp_path / "out.dng") as written:
        tags = written.pages[0].tags
        assert (tags[50719].value, tags[50720].value, tags[51108].value) == ((4, 6), (100, 80), 1)


def test_the_preview_of_a_raw_file_is_no_picture(tmp_path: Path) -> None:
    for name, preview in (("a.tif", True), ("b.tif", False)):
        with pytest.raises(UserError, match="raw file"):
            read_image(write_test_dng(tmp_path / name, scene(), preview=preview))


def test_tags_of_wrong_types_are_left_out(tmp_path: Path) -> None:
    path = write_test_dng(tmp_path / "a.dng", scene(), further=[(306, 12, 1, 1.5, True)])
    assert exif_of(path, orientation=False) == b""
    photo = RawPhoto(path)
    assert photo.develop(8).pixels.shape == (96, 128, 3)
    tifffile.imwrite(tmp_path / "b.tif", np.zeros((8, 8), np.uint8), extratags=[(315, 12, 1, 1.5, True)], metadata=None)
    assert read_image(tmp_path / "b.tif").metadata.exif == b""


def test_dng_and_tiff_of_the_mosaic_open_again(tmp_path: Path) -> None:
    path = write_test_dng(tmp_path / "a.dng", noisy(scene(pattern="GBRG")), "GBRG", (2e-3, 1e-5), 6)
    photo = RawPhoto(path)
    photo.mosaic[0, 0] = 4321
    with (tmp_path / "out.dng").open("wb") as file:
        write_dng(file, photo)
    developed = photo.develop(8).pixels
    content = photo.mosaic.copy()
    buffer = io.BytesIO()
    write_mosaic(buffer, photo)
    again = RawPhoto(tmp_path / "out.dng")
    assert np.array_equal(again.mosaic, content)
    assert [p.color for p in again.planes] == list("GBRG")
    assert again.levels() is None
    assert np.array_equal(again.develop(8).pixels, developed)  # white balance, matrix, orientation
    assert exif_tags(exif_of(again.path, orientation=True))[315] == "A Photographer"
    with Image.open(buffer) as image:
        assert np.array_equal(np.asarray(image), content)
    with tifffile.TiffFile(tmp_path / "out.dng") as file:
        assert file.pages[0].tags[50708].value == "Testcam One"


# One correction of shading: its kind, version and flags, 56 bytes, coefficients and centre.
SHADING = struct.pack(">5I7d", 1, 3, 0x01030000, 1, 56, 0.1, 0, 0, 0, 0, 0.5, 0.5)


@pytest.mark.parametrize("preview", [False, True])
def test_dng_keeps_corrections_of_the_lens(tmp_path: Path, preview: bool) -> None:
    lists = {51008: SHADING + b"1", 51009: SHADING + b"2", 51022: SHADING + b"3"}
    path = write_test_dng(tmp_path / "a.dng", scene(), corrections=lists, preview=preview)
    photo = RawPhoto(path)
    with (tmp_path / "out.dng").open("wb") as file:
        content = photo.mosaic.copy()
        assert not corrections(photo)[1]
        write_dng(file, photo)
    again = RawPhoto(tmp_path / "out.dng")
    assert np.array_equal(again.mosaic, content)
    assert again.develop(8).pixels.shape == (96, 128, 3)
    with tifffile.TiffFile(tmp_path / "out.dng") as written:
        tags = written.pages[0].tags
        assert {tag: tags[tag].value for tag in lists} == lists
        assert {tags[tag].dtype for tag in lists} == {7}


def test_dng_keeps_corrections_only_where_they_hold(tmp_path: Path) -> None:
    lists = {51008: SHADING, 51009: SHADING, 51022: SHADING}
    for active, kept in [((4, 6, 92, 120), {51009, 51022}), ((3, 6, 93, 120), set())]:  # LibRaw begins at even rows
        path = write_test_dng(tmp_path / "a.dng", scene(), active=active, corrections=lists)
        photo = RawPhoto(path)
        assert (set(corrections(photo)[0]), corrections(photo)[1]) == (kept, True)


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_test_dng(tmp_path / "a.dng", scene())
    monkeypatch.setitem(sys.modules, "rawpy", None)
    with pytest.raises(UserError, match=r"pip install 'n3net\[raw\]'"):
        libraw.decode(path, 10**6)


def test_files_that_are_no_raw_files(tmp_path: Path) -> None:
    path = tmp_path / "a.dng"
    path.write_bytes(b"II*\0 nothing of that kind")
    with pytest.raises(UserError, match="LibRaw cannot read it"):
        RawPhoto(path)
    with pytest.raises(UserError, match="no such file"):
        RawPhoto(tmp_path / "none.dng")
    write_test_dng(path, scene())
    with pytest.raises(UserError, match="megapixels"):
        RawPhoto(path, max_pixels=1000)
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(UserError):
        RawPhoto(path)
    assert noise_profile(path) == []
    linear = [(50706, 1, 4, bytes([1, 4, 0, 0]), True), (50708, 2, 0, "Testcam", True)]
    tifffile.imwrite(path, np.zeros((64, 64, 3), np.uint16), photometric=34892, extratags=linear, metadata=None)
    with pytest.raises(UserError, match="Bayer"):
        RawPhoto(path)


# The command


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    net: Any = create("raw-dncnn", depth=2, features=4)
    torch.nn.init.zeros_(net.net.layers[-1].weight)
    torch.nn.init.zeros_(net.net.layers[-1].bias)
    save(directory / "raw.safetensors", net)
    return directory


@pytest.fixture
def run(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> Any:
    """n3net denoise in a directory of its own with a file night.dng: arguments -> exit code, stdout, stderr."""
    monkeypatch.setenv("N3NET_WEIGHTS", str(weights))
    monkeypatch.chdir(tmp_path)
    write_test_dng(Path("night.dng"), noisy(scene()), profile=(2e-3, 1e-5))
    return partial(command, "denoise")


def test_command_develops_beside_the_input(run: Any) -> None:
    code, out, _ = run("night.dng")
    assert code == 0
    assert "128 x 96" in out
    assert "noise a 2.00e-03, b 1.00e-05 by its noise profile" in out
    result = read_image(Path("night-denoised.tif"))
    assert result.pixels.dtype == np.uint16
    photo = RawPhoto(Path("night.dng"))
    assert np.abs(result.pixels.astype(int) - photo.develop(16).pixels).max() < 1000
    assert exif_tags(result.metadata.exif)[271] == "Testcam"
    assert result.metadata.icc_profile


@pytest.mark.parametrize(("name", "kind"), [("a.jpg", "JPEG"), ("a.png", "PNG")])
def test_command_writes_pictures_of_8_bits(run: Any, name: str, kind: str) -> None:
    assert run("night.dng", "-o", name, "--compare", "both.png")[0] == 0
    with Image.open(name) as image:
        assert image.format == kind
        assert image.size == (128, 96)
        assert np.asarray(image).dtype == np.uint8
    with Image.open("both.png") as image:
        assert image.width >= 2 * 128


def test_command_writes_mosaics(run: Any) -> None:
    assert run("night.dng", "-o", "a.dng")[0] == 0
    assert run("night.dng", "-o", "b.tif", "--bayer")[0] == 0
    before = RawPhoto(Path("night.dng"))
    after = RawPhoto(Path("a.dng"))
    assert np.abs(before.mosaic.astype(int) - after.mosaic).max() <= 1
    assert np.array_equal(read_image(Path("b.tif")).pixels, after.mosaic)
    path = write_test_dng(Path("phone.dng"), noisy(scene()), active=(4, 6, 92, 120), corrections={51008: SHADING})
    assert "without the file's corrections" in run(str(path), "-o", "d.dng")[1]
    code, _, err = run("night.dng", "-o", "c.jpg", "--bayer")
    assert code == 1
    assert "--bayer" in err


def test_command_develops_only_what_is_needed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    developed: list[int] = []
    develop = RawPhoto.develop

    def counted(photo: RawPhoto, bits: int = 16, auto_bright: bool = False) -> Any:
        developed.append(bits)
        return develop(photo, bits, auto_bright)

    monkeypatch.setattr(RawPhoto, "develop", counted)
    code, out, _ = run("night.dng", "-o", "a.dng")
    assert (code, "128 x 96" in out) == (0, True)
    assert run("night.dng", "-o", "a.tif", "--bayer")[0] == 0
    assert developed == []
    assert run("night.dng", "-o", "b.dng", "--compare", "both.png")[0] == 0
    assert len(developed) == 2


@pytest.mark.parametrize("options", [["--sigma", "5"], ["--real"], ["--white", "2"]])
def test_command_refuses_options_that_no_file_can_use(run: Any, options: list[str]) -> None:
    code, _, err = run("night.dng", *options)
    assert (code, f"{options[0]}: not for raw files" in err) == (2, True)
    assert not Path("night-denoised.tif").exists()


def test_command_takes_options_for_some_of_the_files(run: Any, weights: Path) -> None:
    torch.manual_seed(0)
    save(weights / "gray.safetensors", create("dncnn-6", noise_map=True, depth=2, features=4))
    Image.new("L", (20, 20)).save("gray.png")
    code, out, _ = run("gray.png", "night.dng", "-o", "out", "--sigma", "5", "--noise", "0.003", "0.00004")
    assert (code, "σ 5" in out, "noise a 3.00e-03" in out) == (0, True, True)


def test_command_refuses_sides_that_a_format_lacks(run: Any) -> None:
    write_test_dng(Path("wide.dng"), scene(24, 16400))
    code, _, err = run("wide.dng", "-o", "wide.webp", "--noise", "0.003", "0.00004")
    assert (code, "at most 16383 pixels a side" in err) == (1, True)


def test_command_estimates_or_is_told(run: Any) -> None:
    write_test_dng(Path("plain.dng"), noisy(scene(256, 256)))
    _, out, _ = run("plain.dng", "-o", "a.tif")
    assert "estimated (confidence" in out
    a = float(out.split("noise a ")[1].split(",")[0])
    assert abs(a / LEVEL.a - 1) < 0.2
    assert "noise a 3.00e-03, b 4.00e-05" in run("plain.dng", "-o", "b.tif", "--noise", "0.003", "0.00004")[1]
    assert run("plain.dng", "-o", "c.tif", "--noise", "-1", "0")[0] != 0


def test_command_does_the_others_when_one_fails(run: Any) -> None:
    Path("broken.nef").write_bytes(b"nothing")
    Image.new("L", (20, 20)).save("gray.png")
    code, _, err = run("broken.nef", "night.dng", "-o", "out")
    assert code == 1
    assert "broken.nef: LibRaw cannot read it" in err
    assert Path("out/night.tif").exists()
    code, _, err = run("gray.png", "-o", "out/gray.png", "--model", "raw")
    assert code != 0
    assert "not for denoising" in err
    assert run("night.dng", "-o", "out/night.tif")[0] == 1  # exists


def test_command_refuses_a_picture_as_dng(run: Any) -> None:
    Image.new("L", (20, 20)).save("gray.png")
    code, _, err = run("gray.png", "-o", "gray.dng")
    assert code != 0
    assert "cannot write .dng" in err
