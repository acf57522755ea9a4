"""Folders with hostile files in them: each costs itself only, and says why in a line."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from n3net.io import Metadata, Picture, read_image, write_image
from n3net.io.isolation import close_idle
from n3net.models import create
from n3net.weights import save


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks whose output is their input; one of them has weights that are no numbers behind a layer of zeros."""
    directory = tmp_path_factory.mktemp("weights")
    for name, channels in (("gray", 1), ("color", 3), ("huge", 1)):
        torch.manual_seed(0)
        model: Any = create("dncnn-6", channels=channels, noise_map=True, depth=2, features=4)
        last = model.net.layers[-1]
        nn.init.zeros_(last.weight) if name != "huge" else nn.init.constant_(last.weight, 1e38)
        nn.init.zeros_(last.bias)
        save(directory / f"{name}.safetensors", model)
    return directory


@pytest.fixture
def run(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> Any:
    """The command in a directory of its own, with a folder 'in' that has two good images, the first and the last."""
    monkeypatch.setenv("N3NET_WEIGHTS", str(weights))
    monkeypatch.chdir(tmp_path)
    good = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 18), np.uint8))
    Path("in").mkdir()
    good.save("in/a.png")
    good.save("in/z.png")
    return command


def denoised(run: Any, *options: str) -> str:
    """Standard error of a run over the folder, after which both good images are done."""
    code, _, err = run("denoise", "in", "-o", "out", "--sigma", "5", *options)
    assert code == 1
    assert read_image(Path("out/a.png")).pixels.shape == read_image(Path("out/z.png")).pixels.shape == (16, 18)
    assert "Traceback" not in err
    return err


def test_links_that_lead_nowhere_and_pipes(run: Any) -> None:
    Path("in/loop.png").symlink_to("loop.png")
    Path("in/gone.png").symlink_to("not there.png")
    os.mkfifo("in/pipe.png")
    err = denoised(run)
    assert "3 of 5 files failed" in err
    assert "in/loop.png: Too many levels of symbolic links" in err
    assert "in/gone.png: No such file" in err
    assert "in/pipe.png: expected a file, it is a pipe" in err


def test_an_exception_that_nobody_thought_of(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from n3net.restoration import denoising

    before = denoising.weights_for

    def odd(pixels: Any, peak: Any = None) -> Any:
        if pixels.shape[0] == 17:
            raise ZeroDivisionError("what now?")
        return before(pixels, peak)

    monkeypatch.setattr(denoising, "weights_for", odd)
    Image.fromarray(np.zeros((17, 18), np.uint8)).save("in/b.png")
    code, _, err = run("denoise", "in", "-o", "out")
    assert code == 1
    assert "in/b.png: ZeroDivisionError at test_hostile.py:" in err
    assert "what now?; not expected, please report it" in err
    assert Path("out/z.png").exists()


def test_a_decoder_that_crashes(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Workers import what is on the path: here a Pillow that dies of one file."""
    stub = tmp_path / "path"
    stub.mkdir()
    (stub / "sitecustomize.py").write_text(
        "import os, signal\nfrom PIL import PngImagePlugin\nload = PngImagePlugin.PngImageFile.load_prepare\n"
        "def prepare(self):\n"
        "    if self.size == (13, 13): os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    load(self)\n"
        "PngImagePlugin.PngImageFile.load_prepare = prepare\n"
    )
    close_idle()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(stub), os.environ.get("PYTHONPATH", "")]))
    Image.fromarray(np.zeros((13, 13), np.uint8)).save("in/b.png")
    try:
        err = denoised(run)
    finally:
        close_idle()
    assert f"in/b.png: read_image: its process died ({signal.SIGSEGV.name}" in err


def test_values_that_are_no_brightness(run: Any) -> None:
    pixels = np.full((16, 18), 0.5, np.float32)
    for name, value in (("dark", -9999.0), ("bright", 4000.0), ("none", np.nan), ("far", -3e38)):
        pixels[3, 4] = value
        Image.fromarray(pixels).save(f"in/{name}.tif")
    err = denoised(run)
    assert "in/dark.tif: values from -9999 to 0.5, expected black 0 to white 1" in err
    assert "replace what is no brightness first" in err
    assert "in/bright.tif: values from 0.5 to 4000" in err
    assert "which value is white? Say it with --white" in err
    assert "in/none.tif: 1 of its 288 values are not numbers" in err
    assert "in/far.tif: values from -3e+38" in err
    assert "in/far.tif" in denoised(run, "--white", "1e-3", "--force")


def test_metadata_that_does_not_fit(run: Any) -> None:
    profile = Metadata(icc_profile=bytes(3_000_000))
    with open("in/b.webp", "wb") as file:
        write_image(file, Picture(np.zeros((16, 18, 3), np.uint8), format="WEBP", metadata=profile), "WEBP")
    code, _, err = run("denoise", "in/b.webp", "-o", "b.png", "--sigma", "5")
    assert code == 1
    assert "in/b.webp: its colour profile of 3000000 bytes is more than the 1048576 that PNG can have" in err
    assert not Path("b.png").exists()


def test_networks_that_give_no_numbers(run: Any) -> None:
    code, _, err = run("denoise", "in", "-o", "out", "--sigma", "5", "--model", "huge")
    assert code == 1
    assert "2 of 2 files failed" in err
    assert "in/a.png: the network gave values that are no numbers" in err
    assert not Path("out").exists()


NAMES = [
    "[/bold].png",
    "[red]x[/red].png",
    "{x}.png",
    "\x1b[31mred\x1b[0m.png",
    "back\rup.png",
    os.fsdecode(b"\xff.png"),
]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_mean_something_to_a_terminal(run: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from n3net.cli import progress

    monkeypatch.setattr(progress, "PATIENCE", 0.0)  # a bar from the beginning
    monkeypatch.setattr(progress, "Console", lambda **options: Console(force_terminal=True, **options))
    target = Path(f"in/z{name}")  # the last one, whose name the bar shows at the end
    target.parent.mkdir(exist_ok=True)
    Path("in/z.png").rename(target)
    code, out, err = run("denoise", "in", "-o", "out", "--sigma", "5")
    assert code == 0, err
    assert Path("out", f"z{name}").exists()
    assert "\x1b[31m" not in out
    assert "\r" not in out


def test_messages_do_not_steer_a_terminal(run: Any) -> None:
    for arguments in (("denoise", "\x1b[2Jx.png"), ("weights", "info", "\x1b[2Jx"), ("train", "\x1b[2Jx")):
        code, _, err = run(*arguments)
        assert code == 2
        assert "\x1b" not in err
