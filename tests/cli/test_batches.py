"""Options of commands that work through many files."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from n3net.models import create
from n3net.weights import save


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> Any:
    """``n3net denoise`` on noise level 10, in a directory with weights of its own."""
    torch.manual_seed(0)
    for name, channels in (("gray", 1), ("color", 3)):
        save(tmp_path / "weights" / f"{name}.safetensors", create("n3net", channels=channels, **SMALL))
    save(tmp_path / "weights" / "upscale.safetensors", create("vdsr", depth=2, features=4))
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.chdir(tmp_path)
    return functools.partial(command, "denoise", "in", "--sigma", "10")


SMALL = {"features": 8, "depth": 2, "noise_map": True}


def write(count: int, folder: str = "in", seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for i in range(count):
        path = Path(folder) / f"{'sub/' * (i % 2)}{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (24 + i, 30) if i % 3 else (24 + i, 30, 3)
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(path)


def contents(folder: str) -> dict[str, bytes]:
    root = Path(folder)
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*.png"))}


def test_workers_and_shares_give_the_same_bytes(run: Any) -> None:
    write(6)
    assert run("-o", "plain")[0] == 0
    assert not Path("plain/n3net-manifest.jsonl").exists()
    code, out, err = run("-o", "workers", "--workers", "2")
    assert (code, out.count(" -> "), err.strip()) == (0, 6, "")
    for number in (2, 3, 1):
        code, out, _ = run("-o", "shares", "--shard", f"{number}/3")
        assert code == 0
        assert f"share {number} of 3:" in out
    assert contents("workers") == contents("shares") == contents("plain")
    assert len(contents("plain")) == 6
    records = [json.loads(line) for line in Path("shares/n3net-manifest.jsonl").read_text().splitlines()]
    assert len([r for r in records if "output" in r]) == 6
    assert {len(r["weights"]) for r in records if "output" in r} == {64}


def test_resume(run: Any) -> None:
    write(4)
    Path("in/broken.png").write_text("no picture")
    code, _, err = run("-o", "out", "--resume")
    assert (code, "1 of 5 files failed" in err) == (1, True)
    write(1, seed=1)
    code, out, err = run("-o", "out", "--resume")
    assert code == 1, "what failed is still to be done"
    assert "3 of 5 files are done already" in out
    assert "in/0.png: again, in/0.png changed" in out
    assert out.count(" -> ") == 1
    assert "broken.png" in err
    assert "1 of them in an earlier run; --retry-failed tries them again" in err
    Path("in/broken.png").write_bytes(Path("in/0.png").read_bytes())
    code, out, _ = run("-o", "out", "--resume")
    assert (code, out.count(" -> ")) == (0, 1)
    code, out, _ = run("-o", "out", "--resume")
    assert (code, out) == (0, "5 of 5 files are done already\n")


def test_resume_with_other_settings(run: Any) -> None:
    write(2)
    assert run("-o", "out", "--resume")[0] == 0
    code, _, err = run("-o", "out", "--resume", "--sigma", "20")
    assert code == 2
    assert "2 of 2 files were made with other settings (sigma 10.0, now 20.0)" in err
    assert run("-o", "out", "--resume", "--tile", "64")[1] == "2 of 2 files are done already\n"
    before = contents("out")
    assert run("-o", "out", "--resume", "--sigma", "20", "--force")[0] == 0
    assert contents("out") != before
    torch.manual_seed(1)
    save(Path("weights/color.safetensors"), create("n3net", channels=3, **SMALL))
    code, _, err = run("-o", "out", "--resume", "--sigma", "20")
    assert (code, "1 of 2 files were made with other weights" in err) == (2, True)


def test_a_folder_again_is_done_already(run: Any) -> None:
    write(3)
    assert run("-o", "out")[0] == 0
    made = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.png")}
    next(iter(made)).unlink()
    code, out, err = run("-o", "out")
    assert code == 0
    assert f"{len(made) - 1} of {len(made)} files are done already; --force does them again" in out
    assert "failed" not in out + err
    assert sum(path.stat().st_mtime_ns != before for path, before in made.items()) == 1
    assert f"{len(made)} of {len(made)} files are done already" in run("-o", "out")[1]
    assert "already" not in run("-o", "out", "--force")[1]


def test_skip_existing(run: Any) -> None:
    write(3)
    Path("out").mkdir()
    Path("out/0.png").write_text("mine")
    code, out, _ = run("-o", "out", "--skip-existing")
    assert code == 0
    assert "1 of 3 files are done already" in out
    assert Path("out/0.png").read_text() == "mine"
    assert sorted(p.name for p in Path("out").rglob("*") if p.is_file()) == ["0.png", "1.png", "2.png"]


def test_upscale_takes_the_same_options(run: Any, command: Any) -> None:
    write(3)
    assert command("upscale", "in", "--workers", "2")[0] == 0
    assert command("upscale", "in", "--resume")[1] == "3 of 3 files are done already\n"
    assert Path("in-upscaled/n3net-manifest.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shard", "3"), "--shard: expected a share such as 3/16"),
        (("--retry-failed",), "--retry-failed is about what a manifest says"),
        (("--workers", "2", "--model", "none.safetensors"), "none.safetensors: there is no such file"),
        (("--resume", "--model", "upscale"), "which is not for denoising"),
    ],
)
def test_errors(run: Any, options: tuple[str, ...], message: str) -> None:
    write(2)
    code, _, err = run("-o", "out", *options)
    assert code == 2
    assert message in err
    assert not list(Path("out").rglob("*.png"))


def test_no_manifest_without_a_folder(command: Any, run: Any) -> None:
    write(3)
    code, _, err = command("denoise", "in/0.png", "in/2.png", "--resume")
    assert code == 2
    assert "the outputs have no folder of their own; name a file of this machine with --manifest" in err
    assert command("denoise", "in/0.png", "in/2.png", "--resume", "--manifest", "m.jsonl")[0] == 0
    assert "2 of 2 files are done" in command("denoise", "in/0.png", "in/2.png", "--resume", "--manifest", "m.jsonl")[1]
    code, _, err = command("denoise", "-", "--workers", "2")
    assert (code, "standard input and output are for the plain command" in err) == (2, True)
