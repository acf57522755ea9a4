"""n3net denoise: which files, where to, and what happens when something goes wrong."""

from __future__ import annotations

import errno
import functools
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from n3net.io import read_image
from n3net.models import create
from n3net.weights import save


def keeps_everything(channels: int) -> nn.Module:
    """A network whose output is its input."""
    torch.manual_seed(0)
    model: Any = create("dncnn-6", channels=channels, noise_map=True, depth=2, features=4)
    nn.init.zeros_(model.net.layers[-1].weight)
    nn.init.zeros_(model.net.layers[-1].bias)
    return model


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("weights")
    save(directory / "gray.safetensors", keeps_everything(1))
    save(directory / "color.safetensors", keeps_everything(3))
    torch.manual_seed(0)
    save(directory / "upscaler.safetensors", create("vdsr", depth=2, features=4))
    save(directory / "fast.safetensors", create("n3net-fast", channels=3, noise_map=True, features=4, depth=2))
    save(directory / "random.safetensors", create("n3net", features=8, depth=2, noise_map=True))
    return directory


@pytest.fixture
def run(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> Any:
    """The command in a directory of its own: arguments -> exit code, stdout, stderr."""
    monkeypatch.setenv("N3NET_WEIGHTS", str(weights))
    monkeypatch.chdir(tmp_path)
    return functools.partial(command, "denoise")


def picture(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save_image(path: Path, array: np.ndarray, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


def leftovers(directory: Path) -> list[Path]:
    return [p for p in directory.rglob("*") if p.suffix == ".part"]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((name, shape) for name in ("a.png", "a.tif", "a.bmp") for shape in ((30, 40), (30, 40, 3))),
        ("a.png", (30, 40, 4)),
        ("a.tif", (30, 40, 4)),
    ],
)
def test_one_file_beside_the_input(run: Any, name: str, shape: tuple[int, ...]) -> None:
    save_image(Path(name), picture(*shape))
    code, out, _ = run(name)
    assert code == 0
    assert "40 x 30" in out
    assert "estimated" in out
    result = Path(name).with_stem("a-denoised")
    np.testing.assert_array_equal(np.asarray(Image.open(result)), picture(*shape))


def test_sixteen_bits_and_metadata(run: Any) -> None:
    values = np.random.default_rng(0).integers(0, 65536, (30, 40, 3), dtype=np.uint16)
    from n3net.io import Metadata, Picture, write_image

    with open("a.png", "wb") as file:
        write_image(file, Picture(values, None, "PNG", Metadata(dpi=(300, 300))))
    assert run("a.png", "-o", "b.png", "--sigma", "5")[0] == 0
    back = read_image(Path("b.png"))
    np.testing.assert_array_equal(back.pixels, values)
    assert back.metadata.dpi == pytest.approx((300, 300), abs=0.1)


def test_format_follows_the_outputs_name(run: Any) -> None:
    save_image(Path("a.png"), picture(20, 20, 3))
    assert run("a.png", "-o", "sub/b.webp", "--quality", "50")[0] == 0
    assert Image.open("sub/b.webp").format == "WEBP"
    code, _, err = run("a.png", "-o", "b.xyz")
    assert (code, ".xyz" in err) == (2, True)


def test_directory_keeps_its_structure(run: Any) -> None:
    for name in ("in/a.png", "in/deep/er/b.png", "in/.hidden/c.png"):
        save_image(Path(name), picture(20, 20))
    Path("in/notes.txt").write_text("not an image")
    assert run("in", "-o", "out")[0] == 0
    assert sorted(str(p) for p in Path("out").rglob("*.*")) == ["out/a.png", "out/deep/er/b.png"]
    assert run("in")[0] == 0
    assert sorted(str(p) for p in Path("in-denoised").rglob("*.*")) == [
        "in-denoised/a.png",
        "in-denoised/deep/er/b.png",
    ]


def test_outputs_inside_the_input_are_not_inputs_again(run: Any) -> None:
    save_image(Path("in/a.png"), picture(20, 20))
    assert run("in", "-o", "in/out")[0] == 0
    assert run("in", "-o", "in/out", "--force")[0] == 0
    assert [str(p) for p in Path("in/out").rglob("*.png")] == ["in/out/a.png"]


def test_patterns(run: Any) -> None:
    for name in ("x/1.png", "x/y/2.png", "x/y/3.bmp"):
        save_image(Path(name), picture(20, 20))
    assert run("x/**/*.png", "-o", "out")[0] == 0
    assert sorted(p.name for p in Path("out").iterdir()) == ["1.png", "2.png"]
    assert run("z*.png")[0] == 2


def test_broken_file_does_not_stop_the_others(run: Any) -> None:
    for name in ("in/a.png", "in/c.png"):
        save_image(Path(name), picture(20, 20))
    data = Path("in/a.png").read_bytes()
    Path("in/b.png").write_bytes(data[: len(data) // 2])
    code, out, err = run("in", "-o", "out")
    assert code == 1
    assert out.count("->") == 2
    assert "1 of 3 files failed" in err
    assert "in/b.png: damaged or cut off" in err
    assert "Traceback" not in err
    assert sorted(p.name for p in Path("out").iterdir()) == ["a.png", "c.png"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 72 bytes."),
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ],
)
def test_lack_of_memory_does_not_stop_the_others(run: Any, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    from n3net.jobs import operation

    def do(job: Any, *others: Any, original: Any = operation.do) -> Any:
        if job.name == "large.png":
            raise error
        return original(job, *others)

    monkeypatch.setattr(operation, "do", do)
    for name in ("large.png", "small.png"):
        save_image(Path(name), picture(20, 20))
    code, out, err = run("large.png", "small.png", "-o", "out")
    assert code == 1
    assert "small.png ->" in out
    assert "1 of 2 files failed:" in err
    assert "large.png: out of memory; try a smaller --tile" in err


def test_faults_of_the_program_are_not_hidden(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from n3net.jobs import operation

    def do(*_: Any) -> Any:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(operation, "do", do)
    save_image(Path("a.png"), picture(20, 20))
    code, _, err = run("a.png")
    assert code == 1
    assert "RuntimeError at test_denoise.py:" in err
    assert "shapes do not fit; not expected, please report it" in err


def test_existing_outputs_need_force(run: Any) -> None:
    save_image(Path("a.png"), picture(20, 20))
    Path("b.png").write_text("mine")
    code, _, err = run("a.png", "-o", "b.png")
    assert (code, "--force" in err) == (1, True)
    assert Path("b.png").read_text() == "mine"
    assert run("a.png", "-o", "b.png", "--force")[0] == 0
    assert run("a.png", "-o", "a.png")[0] == 1
    assert run("a.png", "-o", "a.png", "-f")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.png"], "no such file"),
        (["empty"], "no image files"),
        (["a.png", "b.png", "-o", "c.png"], "c.png is a file"),
        (["a.png", "sub/a.png", "-o", "out"], "both be written"),
        (["a.png", "--model", "nobody"], "nobody"),
        (["a.png", "b.png", "--compare", "c.jpg"], "for one image"),
        (["a.png", "b.png", "-o", "-"], "one image"),
        (["a.png", "--device", "quantum"], "--device quantum"),
        (["a.png", "--sigma", "-1"], "sigma"),
        (["a.png", "--sigma", "nan"], "--sigma"),
        (["a.png", "--sigma", "inf"], "finite number, got inf"),
        (["a.png", "--max-megapixels", "inf"], "finite number, got inf"),
        (["a.png", "--white", "0"], "number above 0, got 0.0"),
        (["a.png", "--white", "nan"], "number above 0, got nan"),
        (["a.png", "--white", "inf"], "finite number, got inf"),
        (["a.png", "--noise", "0.1", "0.1", "--bayer"], "--noise, --bayer: for raw files of cameras only"),
        (["a.png", "--auto-bright"], "--auto-bright: for raw files of cameras only"),
        (["a.png", "-o", "d.png", "--compare", "d.png"], "--compare d.png: also"),
        (["a.png", "--compare", "./a.png", "--force"], "--compare a.png: also"),
        (["a.png", "--reference", "bad.png"], "--reference bad.png: not a readable"),
        (["a.png", "--model", "upscaler"], "not for denoising"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage(run: Any, arguments: list[str], message: str) -> None:
    for name in ("a.png", "b.png", "c.png", "sub/a.png"):
        save_image(Path(name), picture(20, 20))
    Path("empty").mkdir()
    Path("bad.png").write_text("hello")
    code, _, err = run(*arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_full_disk_is_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "out.png")

    monkeypatch.setattr("n3net.cli.denoise.run", full)
    save_image(Path("a.png"), picture(20, 20))
    code, _, err = run("a.png")
    assert (code, err) == (2, "n3net: out.png: No space left on device\n")


def test_hostile_images(run: Any) -> None:
    save_image(Path("large.png"), np.zeros((300, 300), np.uint8))
    code, _, err = run("large.png", "--max-megapixels", "0.05")
    assert (code, "limit of 0.05 megapixels" in err) == (1, True)
    floats = np.random.default_rng(0).random((20, 20)).astype(np.float32) * 900
    save_image(Path("float.tif"), floats)
    code, _, err = run("float.tif")
    assert (code, "--white" in err) == (1, True)
    assert run("float.tif", "--white", "900")[0] == 0
    np.testing.assert_allclose(np.asarray(Image.open("float-denoised.tif")), floats, rtol=1e-5)
    code, _, err = run("float.tif", "--force", "--white", "100")
    assert (code, "expected black 0 to white 100, give or take the noise: which value is white?" in err) == (1, True)
    save_image(Path("missing.tif"), np.where(floats > 800, np.float32(-9999), floats / 900))
    code, _, err = run("missing.tif")
    assert (code, "values from -9999 to " in err) == (1, True)
    save_image(Path("nan.tif"), np.where(floats == floats[2, 3], np.float32("nan"), floats / 900))
    code, _, err = run("nan.tif")
    assert (code, "1 of its 400 values are not numbers (NaN or infinity), the first at row 2, column 3" in err) == (
        1,
        True,
    )


def test_alpha_in_jpeg_is_refused(run: Any) -> None:
    save_image(Path("a.png"), picture(20, 20, 4))
    code, _, err = run("a.png", "-o", "a.jpg")
    assert (code, "JPEG cannot store" in err) == (1, True)
    assert not Path("a.jpg").exists()
    assert not leftovers(Path())


@pytest.mark.parametrize(("name", "width"), [("a.webp", 16384), ("a.jpg", 65501)])
def test_sides_that_a_format_lacks_are_refused_at_once(
    run: Any, monkeypatch: pytest.MonkeyPatch, name: str, width: int
) -> None:
    monkeypatch.setattr("n3net.restoration.denoising.denoise", lambda *_, **__: pytest.fail("the network ran"))
    save_image(Path("wide.png"), np.zeros((2, width), np.uint8))
    code, _, err = run("wide.png", "-o", name)
    assert (code, f"not {width} x 2" in err) == (1, True)
    assert not Path(name).exists()


def test_compare_shows_psnr(run: Any) -> None:
    clean = np.full((60, 80), 120, np.uint8)
    noisy = np.clip(clean + np.random.default_rng(0).normal(0, 10, clean.shape), 0, 255).astype(np.uint8)
    save_image(Path("clean.png"), clean)
    save_image(Path("noisy.png"), noisy)
    code, out, _ = run("noisy.png", "-o", "o.png", "--compare", "c.png", "--reference", "clean.png")
    assert code == 0
    assert "PSNR 28." in out
    sheet = Image.open("c.png")
    assert sheet.width >= 3 * 80
    assert sheet.height > 60
    assert run("noisy.png", "-o", "o2.png", "--compare", "c.png")[0] == 2
    save_image(Path("other.png"), clean[:50])
    code, _, err = run("noisy.png", "-o", "o3.png", "--reference", "other.png")
    assert (code, "same picture" in err) == (1, True)


def test_model_of_the_other_kind(run: Any, weights: Path) -> None:
    save_image(Path("color.png"), picture(40, 40, 3))
    save_image(Path("gray.png"), picture(40, 40))
    assert run("color.png", "--model", "gray")[0] == 0
    np.testing.assert_array_equal(np.asarray(Image.open("color-denoised.png")), picture(40, 40, 3))
    assert run("gray.png", "--model", str(weights / "color.safetensors"))[0] == 0
    np.testing.assert_array_equal(np.asarray(Image.open("gray-denoised.png")), picture(40, 40))


def test_a_model_is_loaded_once(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from n3net import weights

    save_image(Path("color.png"), picture(40, 40, 3))
    save_image(Path("gray.png"), picture(40, 40))
    loaded: list[Any] = []
    load = weights.load
    monkeypatch.setattr(weights, "load", lambda name: loaded.append(name) or load(name))
    assert run("color.png", "gray.png", "-o", "out", "--model", "gray")[0] == 0
    assert loaded == ["gray"]


def process(weights: Path, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "from n3net.cli import main; main()", "denoise", *arguments],
        env={**os.environ, "N3NET_WEIGHTS": str(weights), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
        **options,
    )


def test_standard_input_and_output(weights: Path, tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.fromarray(picture(20, 30, 3)).save(file, "PNG")
    run = process(weights, "-", cwd=tmp_path)
    out, err = run.communicate(file.getvalue(), timeout=60)
    assert run.returncode == 0, err
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(out))), picture(20, 30, 3))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_leaves_no_half_file(weights: Path, tmp_path: Path, number: signal.Signals) -> None:
    save_image(tmp_path / "in/1.png", picture(40, 40))
    save_image(tmp_path / "in/2.png", picture(1500, 1500))
    run = process(weights, "in", "-o", "out", "--model", "random", "--tile", "40", "--sigma", "9", cwd=tmp_path)
    until = time.monotonic() + 60
    while not (tmp_path / "out/1.png").exists() and time.monotonic() < until:
        time.sleep(0.02)
    run.send_signal(number)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 128 + number, err
    assert (b"interrupted" in err) == (number == signal.SIGINT)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["1.png"]


def test_interrupted_writing_leaves_nothing(tmp_path: Path) -> None:
    from n3net.io.files import writing

    target = tmp_path / "a.png"

    def interrupted() -> None:
        with writing(target, force=False) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_the_kind_of_noise_is_seen_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    clean = np.full((80, 96, 3), 0.4) + np.linspace(0, 0.3, 96)[:, None]
    noise = rng.normal(0, 20 / 255, clean.shape)
    alike = (noise + np.roll(noise, 1, 0) + np.roll(noise, 1, 1) + np.roll(noise, (1, 1), (0, 1))) / 2
    for name, pixels in (("white", clean + noise), ("camera", clean + alike)):
        Image.fromarray(np.clip(255 * pixels, 0, 255).astype(np.uint8)).save(f"{name}.png")
    said = {
        ("white.png",): "white noise (pixels err independently), σ ",
        ("camera.png",): "noise of a camera (neighbouring pixels err alike), σ ",
        ("camera.png", "--white-noise"): "96 x 80, σ ",
        ("white.png", "--real"): "96 x 80, σ ",
        ("camera.png", "--model", "photo"): "(confidence",
    }
    for arguments, words in said.items():
        code, out, err = command("denoise", *arguments, "-o", "out.png", "--force")
        assert code == 0, err
        assert words in out
    code, _, err = command("denoise", "white.png", "--real", "--white-noise", "-o", "no.png")
    assert (code, "give one of them" in err) == (2, True)


@pytest.mark.parametrize("shape", [(41, 52), (41, 52, 3)])
def test_fast_is_the_network_of_that_name(run: Any, weights: Path, shape: tuple[int, ...]) -> None:
    save_image(Path("a.png"), picture(*shape))
    assert run("a.png", "-o", "fast.png", "--fast", "--sigma", "25")[0] == 0
    assert run("a.png", "-o", "named.png", "--model", str(weights / "fast.safetensors"), "--sigma", "25")[0] == 0
    np.testing.assert_array_equal(read_image(Path("fast.png")).pixels, read_image(Path("named.png")).pixels)


def test_fast_says_that_it_does_not_know_a_cameras_noise(run: Any) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 20, (64, 64))
    for name, pixels in (("camera", noise + np.roll(noise, 1, 0)), ("white", noise)):
        save_image(Path(f"{name}.png"), np.clip(128 + pixels, 0, 255).astype(np.uint8))
        assert ("better without --fast" in run(f"{name}.png", "--fast")[1]) == (name == "camera")


@pytest.mark.parametrize("other", [("--model", "gray"), ("--real",)])
def test_fast_stands_alone(run: Any, other: tuple[str, ...]) -> None:
    save_image(Path("a.png"), picture(41, 52))
    code, _, error = run("a.png", "--fast", *other)
    assert code == 2
    assert f"leave out {other[0]}" in error
