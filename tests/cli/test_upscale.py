"""n3net upscale, n3net eval sr, and the tables of super-resolution."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from n3net import weights
from n3net.evaluation.images import image_set
from n3net.evaluation.paper import TABLES
from n3net.evaluation.reproduce import reproduce, to_markdown
from n3net.evaluation.superresolution import evaluate, upscaler
from n3net.imaging.resizing import resize
from n3net.io import Metadata, Picture, read_image, write_image
from n3net.models import create
from n3net.training.start import start_at_identity

SHARED = Path(__file__).parents[3] / "shared" / "data"
FACTORS = {"training": {"config": {"data": {"factors": [2, 3, 4]}}}}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """The program in a directory of its own, with weights 'upscale' that give back what bicubic upscaling gives."""
    from n3net import cli

    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.delenv("N3NET_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = create("vdsr", depth=2, features=4)
    start_at_identity(model)
    weights.save(tmp_path / "weights" / "upscale.safetensors", model, FACTORS)
    weights.save(tmp_path / "weights" / "gray.safetensors", create("dncnn-6", depth=2, features=4))

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["n3net", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capfd.readouterr()

    return call


def picture(*shape: int) -> np.ndarray:
    y, x = np.mgrid[: shape[0], : shape[1]]
    waves = np.stack([127 + 60 * np.sin(x / (4 + c)) * np.cos(y / 6) for c in range(4)], 2)
    return waves.astype(np.uint8)[..., : shape[2]] if len(shape) == 3 else waves.astype(np.uint8)[..., 0]


def save_image(path: str, array: np.ndarray, **options: Any) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
@pytest.mark.parametrize("shape", [(30, 40), (30, 40, 3), (30, 40, 4)])
def test_one_file(run: Any, name: str, shape: tuple[int, ...]) -> None:
    save_image(name, picture(*shape))
    code, out, _ = run("upscale", name, "--factor", 1.5)
    assert code == 0
    assert "40 x 30, x1.5 to 60 x 45" in out
    result = np.asarray(Image.open(Path(name).with_stem("a-upscaled")))
    assert result.shape == (45, 60, *shape[2:])
    difference = np.abs(result.astype(int) - resize(picture(*shape), 1.5))
    assert difference.max() <= 2  # bicubic, but for rounding between the sides


def test_sixteen_bits_and_metadata(run: Any) -> None:
    values = picture(30, 40, 3).astype(np.uint16) * 257
    with open("a.png", "wb") as file:
        write_image(file, Picture(values, values[..., 0], "PNG", Metadata(dpi=(300, 300), icc_profile=b"profile")))
    assert run("upscale", "a.png", "-o", "b.png")[0] == 0
    back = read_image(Path("b.png"))
    assert back.pixels.dtype == np.uint16
    assert np.abs(back.pixels - resize(values.astype(float), 2)).max() <= 2
    assert back.alpha is not None
    np.testing.assert_array_equal(
        back.alpha, resize(values[..., 0], 2).clip(values[..., 0].min(), values[..., 0].max())
    )
    assert back.metadata.dpi == pytest.approx((300, 300), abs=0.1)
    assert back.metadata.icc_profile == b"profile"


def test_folders_refusals_and_force(run: Any) -> None:
    for name in ("in/a.png", "in/deep/b.png"):
        save_image(name, picture(20, 20))
    Path("in/broken.png").write_bytes(b"\x89PNG nothing")
    code, out, err = run("upscale", "in", "-o", "out")
    assert code == 1
    assert out.count("->") == 2
    assert "1 of 3 files failed" in err
    assert Image.open("out/deep/b.png").size == (40, 40)
    assert run("upscale", "in/a.png", "-o", "out/a.png")[0] == 1
    assert run("upscale", "in/a.png", "-o", "out/a.png", "--force", "--factor", 3)[0] == 0
    assert Image.open("out/a.png").size == (60, 60)
    assert not list(Path().rglob("*.part"))


def test_compare_shows_bicubic(run: Any) -> None:
    original = picture(60, 80, 3)
    save_image("small.png", resize(original, 0.5))
    save_image("original.png", original)
    arguments = ["upscale", "small.png", "--compare", "c.png", "--reference", "original.png"]
    code, out, _ = run(*arguments)
    assert code == 0
    assert "PSNR" in out
    assert Image.open("c.png").width >= 3 * 80
    assert run(*arguments[:-1], "small.png", "--force")[0] == 1  # another size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.png", "--factor", "5"], "factor"),
        (["a.png", "--factor", "0.5"], "factor"),
        (["a.png", "--model", "nobody"], "nobody"),
        (["a.png", "--model", "gray"], "not for super-resolution"),
        (["nothing.png"], "no such file"),
        (["a.png", "--device", "quantum"], "--device quantum"),
    ],
)
def test_wrong_usage(run: Any, arguments: list[str], message: str) -> None:
    save_image("a.png", picture(20, 20))
    code, _, err = run("upscale", *arguments)
    assert (code, message in err, "Traceback" in err) == (2, True, False)


def test_results_without_end(run: Any) -> None:
    save_image("a.png", picture(200, 200))
    code, _, err = run("upscale", "a.png", "--max-megapixels", 0.1)
    assert (code, "the result would have 400 x 400 pixels" in err) == (1, True)
    code, _, err = run("upscale", "a.png", "--factor", 1.2, "--max-megapixels", 0.1)
    assert (code, "the double size, by way of which it is upscaled, has 400 x 400 pixels" in err) == (1, True)


def test_without_weights(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n3net.weights.store.SHIPPED", Path("nowhere"))
    Path("weights/upscale.safetensors").unlink()
    save_image("a.png", picture(20, 20))
    code, _, err = run("upscale", "a.png")
    assert (code, "n3net train upscale" in err) == (2, True)


def test_denoise_refuses_an_upscaler(run: Any) -> None:
    save_image("a.png", picture(20, 20))
    code, _, err = run("denoise", "a.png", "--model", "upscale")
    assert (code, "a vdsr, which is not for denoising" in err) == (2, True)


def test_inspect(run: Any, tmp_path: Path) -> None:
    save_image("a.png", picture(60, 70, 3))
    weights.save(tmp_path / "weights" / "n3.safetensors", create("n3net-sr", depth=2, features=4))
    code, out, _ = run("inspect", "n3", "a.png", "--factor", 2, "-o", "seen.png")
    assert (code, "block 2" in out, Path("seen.png").is_file()) == (0, True, True)
    code, _, err = run("inspect", "n3", "a.png")
    assert (code, "give --factor" in err) == (2, True)
    assert run("inspect", "gray", "a.png", "--factor", 2)[0] == 2


def test_eval(run: Any, tmp_path: Path) -> None:
    for i in range(2):
        save_image(f"Set5/{i}.png", picture(61, 73 + i, 3))
    code, out, err = run(
        *("eval", "sr", "--model", "upscale", "--model", "bicubic", "--data", "Set5", "--factor", 2, "--factor", 1.5),
        *("--json", "o.json", "--markdown", "o.md", "--html", "o.html"),
    )
    assert code == 0
    assert "MATLAB" in out
    assert "not trained for x1.5" in err
    content = json.loads(Path("o.json").read_text())
    assert [(r["model"], r["factor"], r["n"]) for r in content["results"]] == [
        ("upscale", 2, 2),
        ("bicubic", 2, 2),
        ("upscale", 1.5, 2),
        ("bicubic", 1.5, 2),
    ]
    first, second = content["results"][:2]
    assert first["psnr"] == pytest.approx(second["psnr"], abs=1e-4)
    assert content["protocol"]["psnr"].startswith("of Y")
    assert "upscale, x1.5" in Path("o.md").read_text()
    assert "Super-resolution, side by side" in Path("o.html").read_text()
    assert run("eval", "sr", "--model", "gray", "--data", "Set5")[0] == 2
    save_image("tiny/a.png", picture(14, 60))
    assert "too few" in run("eval", "sr", "--model", "bicubic", "--data", "tiny")[2]


def test_tables(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n3net.evaluation.reproduce.METHODS", {})
    save_image("data/Set5/a.png", picture(60, 60, 3))
    save_image("data/BSDS500/val/a.png", picture(60, 60, 3))
    torch.manual_seed(0)
    weights.save(tmp_path / "weights" / "vdsr.safetensors", create("vdsr", norm=True), FACTORS)
    code, out, _ = run("reproduce", "table5", "--data", "data")
    assert code == 0
    lines = [line for line in out.splitlines() if line.startswith("| Set5")]
    assert len(lines) == 3
    assert "36.49 / –" in lines[0]
    assert "37.57 / –" in lines[0]
    assert "37.53 / –" not in lines[0]
    table, measured = reproduce(TABLES["supplement-sr"], tmp_path / "data")
    assert {(m.figure.dataset, m.weights) for m in measured} == {("BSD100", "bicubic"), ("BSD100", "vdsr")}
    assert "| Urban100, x4 | 23.14 / – |" in to_markdown(table, measured)


@pytest.mark.parametrize(("factor", "paper"), [(2, 33.68), (3, 30.41), (4, 28.43)])
def test_bicubic_is_the_papers(factor: int, paper: float) -> None:
    if not (SHARED / "Set5").is_dir():
        pytest.skip(f"{SHARED / 'Set5'}: the images are not there")
    rows = evaluate([upscaler("bicubic")], image_set(SHARED / "Set5"), [factor])
    assert np.mean([row.psnr for row in rows]) == pytest.approx(paper, abs=0.01)


def test_exif_data_has_the_new_size(run: Any) -> None:
    tags = Image.Exif()
    tags[315] = "A Photographer"
    tags.get_ifd(34665).update({40962: 24, 40963: 20})
    save_image("a.jpg", picture(20, 24, 3), exif=tags.tobytes())
    assert run("upscale", "a.jpg", "--factor", 2)[0] == 0
    with Image.open("a-upscaled.jpg") as image:
        assert image.size == (48, 40)
        found = image.getexif()
        assert (found[315], dict(found.get_ifd(34665))) == ("A Photographer", {40962: 48, 40963: 40})


def test_levels_are_checked_before_anything_is_measured(run: Any) -> None:
    save_image("images/a.png", picture(40, 40, 3))
    code, out, err = run("eval", "sr", "--model", "bicubic", "--data", "images", "--factor", 2, "--factor", 2)
    assert (code, out) == (2, "")
    assert "x2 is given 2 times" in err
    code, _, err = run("eval", "sr", "--model", "bicubic", "--data", "images", "--factor", 2, "--factor", 9)
    assert code == 2
    assert "expected 1 to 8" in err


def test_images_are_found_in_the_directory_of_data(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_image("sets/Set1/a.png", picture(40, 40, 3))
    monkeypatch.setenv("N3NET_DATA", str(tmp_path / "sets"))
    assert run("eval", "sr", "--model", "bicubic", "--data", "Set1")[0] == 0
    assert run("eval", "sr", "--model", "bicubic", "--data", "Set2")[0] == 2


def test_tables_leave_out_weights_that_cannot_be_read(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("n3net.evaluation.reproduce.METHODS", {})
    (tmp_path / "weights" / "broken.safetensors").write_bytes(b"nothing")
    save_image("sets/Set5/a.png", picture(40, 40, 3))
    code, out, _ = run("reproduce", "table5", "--data", "sets")
    assert code == 0
    assert "1 image" in out
