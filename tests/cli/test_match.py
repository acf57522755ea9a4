"""n3net match: two photographs, or a list of pairs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from n3net import weights
from n3net.correspondence.results import load_npz
from n3net.models import create
from photos import Run, texture, two_photos, with_weights

cv2 = pytest.importorskip("cv2", reason="matching needs OpenCV")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Run) -> Run:
    return with_weights(tmp_path, monkeypatch, command)


@pytest.fixture
def photos(tmp_path: Path) -> tuple[Path, Path]:
    return two_photos(tmp_path)


def test_command(run: Run, photos: tuple[Path, Path], tmp_path: Path) -> None:
    code, out, _ = run("match", *photos, "-o", "out", "--model", "keep", "--limit", 300)
    assert code == 0
    assert "300 matches, 300 kept" in out
    assert "cameras: not known" in out
    assert str(photos[0].parent) not in out.split("->")[0]  # names, not paths
    for word in ("R  ", "t  ", "centre", "x_cam1 = R x_cam0 + t"):
        assert word in out
    document = json.loads((tmp_path / "out/matches.json").read_text())
    assert len(document["table"]) == document["matches"] == 300
    assert np.array(document["pose"]["essential"]).shape == (3, 3)
    assert document["images"][1]["width"] == 340
    again = load_npz(tmp_path / "out/matches.npz")
    assert again.kept.all()
    assert again.pose is not None
    with Image.open(tmp_path / "out/matches.png") as image:
        assert image.width > 660
    code, _, err = run("match", *photos, "-o", "out", "--model", "keep")
    assert code == 2
    assert "--force" in err
    code, out, _ = run("match", *photos, "-o", "out", "--model", "reject", "--fov", 60, "--force", "--no-picture")
    assert code == 0
    assert "0 kept" in out
    assert "field of view given, 60 degrees" in out
    assert "no pose" in out


def test_command_without_weights(run: Run, photos: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n3net.weights.store.SHIPPED", Path("nowhere"))
    code, _, err = run("match", *photos, "-o", "out")
    assert code == 2
    assert "'match' are not part of this installation" in err
    assert "n3net train match" in err
    weights.save("image.safetensors", create("dncnn-6", features=4))
    code, _, err = run("match", *photos, "-o", "out", "--model", "image.safetensors")
    assert code == 2
    assert "which is not for matches" in err


def test_all_kinds_of_images(run: Run, tmp_path: Path) -> None:
    image = texture()
    Image.fromarray(image).save("color.png")
    gray = Image.fromarray(image).convert("L")
    gray.save("gray.png")
    Image.fromarray(np.asarray(gray).astype(np.uint16) * 257).save("deep.png")
    Image.fromarray(np.full((40, 50, 3), 90, np.uint8)).save("blank.png")
    Path("broken.png").write_bytes(b"\x89PNG nothing")
    turned = Image.Exif()
    turned[274] = 6
    turned.get_ifd(0x8769)[0xA405] = 50
    Image.fromarray(np.ascontiguousarray(np.rot90(image))).save("turned.jpg", exif=turned.tobytes(), quality=98)
    options = ("--model", "keep", "--limit", 200, "--no-picture")
    for name in ("gray.png", "deep.png", "turned.jpg"):
        code, out, _ = run("match", "color.png", name, "-o", name + ".out", "--focal", 320, *options)
        assert code == 0
        assert "turned by 0." in out  # all show the same, upright
        assert json.loads(Path(f"{name}.out/matches.json").read_text())["images"][1]["width"] == 320
    code, out, _ = run("match", "color.png", "turned.jpg", "-o", "exif", *options)
    assert "camera of turned.jpg: EXIF, 50 mm on 35 mm film" in out
    code, out, _ = run("match", "color.png", "blank.png", "-o", "blank", "--model", "keep")
    assert code == 0
    assert "0 matches, 0 kept" in out
    assert "there are no matches" in out
    assert "no keypoints in blank.png" in (tmp_path / "blank/matches.json").read_text()
    code, _, err = run("match", "color.png", "broken.png", "-o", "broken", *options)
    assert code == 1
    assert "broken.png: not a readable" in err
    assert not Path("broken").exists()
    code, _, err = run("match", "color.png", "absent.png", "-o", "x", *options)
    assert code == 1
    assert "absent.png" in err
    for options in (("color.png", "gray.png"), ("--pairs", "pairs.txt")):
        Path("pairs.txt").write_text("color.png gray.png")
        code, _, err = run("match", *options, "-o", "color.png", "--model", "keep")
        assert code in (1, 2)
        assert "cannot be written" in err
    code, _, err = run("match", "color.png", "gray.png", "-o", "x", "--model", "keep", "--max-megapixels", 0.05)
    assert code == 1
    assert "limit of 0.05 megapixels" in err
    code, _, err = run("match", "color.png", "-o", "x")
    assert code == 2
    assert "expected two images, got 1" in err


def test_pairs_resume(run: Run, photos: tuple[Path, Path], tmp_path: Path) -> None:
    Image.fromarray(texture(seed=1)).save("c d.png")
    Path("pairs.txt").write_text('# names\na.png b.png\n\na.png "c d.png"\na.png gone.png\na.png b.png\n')
    options = ("match", "--pairs", "pairs.txt", "-o", "out", "--model", "keep", "--limit", 200)
    code, out, err = run(*options)
    assert code == 1
    assert "gone.png" in err
    assert "1 of 3 pairs failed" in err
    assert "a.png" in out
    assert Path("out/a.png--c d.png.npz").exists()
    assert not list(Path("out").glob("*.png"))
    written = Path("out/a.png--b.png.npz").stat().st_mtime_ns
    Image.fromarray(texture(seed=2)).save("gone.png")
    code, out, err = run(*options)
    assert code == 0
    assert "2 of 3 pairs are done already" in out
    assert "gone.png" in out
    assert Path("out/a.png--b.png.npz").stat().st_mtime_ns == written
    code, _, err = run(*options, "--estimator", "magsac")
    assert code == 2
    assert "other settings (estimator)" in err
    assert run(*options, "--estimator", "magsac", "--force", "--picture")[0] == 0
    assert len(list(Path("out").glob("*.png"))) == 3


def test_pairs_resume_with_other_files(run: Run, photos: tuple[Path, Path]) -> None:
    Path("other").mkdir()
    for path in photos:
        Path("other", path.name).write_bytes(path.read_bytes())
    Path("pairs.txt").write_text("a.png b.png\n")
    Path("k.txt").write_text("300 0 160 0 300 120 0 0 1")
    options = ("match", "--pairs", "pairs.txt", "-o", "out", "--model", "keep", "--limit", 50, "--intrinsics", "k.txt")
    assert run(*options)[0] == 0
    written = Path("out/a.png--b.png.npz").stat().st_mtime_ns
    assert "1 of 1 pairs are done" in run(*options, "--images", ".")[1]
    code, _, err = run(*options, "--images", "other")
    assert code == 2
    assert "other settings (images)" in err
    assert Path("out/a.png--b.png.npz").stat().st_mtime_ns == written
    assert run(*options, "--picture")[0] == 0
    assert Path("out/a.png--b.png.png").exists()
    assert "1 of 1 pairs are done" in run(*options, "--picture")[1]
    Path("k.txt").write_text("400 0 160 0 400 120 0 0 1")
    code, _, err = run(*options)
    assert code == 2
    assert "other settings (cameras)" in err
    Path("k.txt").unlink()
    code, _, err = run(*options)
    assert code == 2
    assert "k.txt: No such file" in err


def test_pairs_to_a_database(run: Run, photos: tuple[Path, Path]) -> None:
    pycolmap = pytest.importorskip("pycolmap")
    Path("more").mkdir()
    photos[1].rename("more/a.png")  # the same name in another directory is another image
    Path("lists").mkdir()
    Path("lists/pairs.txt").write_text("a.png more/a.png\n")
    options = ("--pairs", "lists/pairs.txt", "--images", ".", "-o", "out", "--model", "keep", "--limit", 200)
    code, out, err = run("match", *options, "--database", "out/x.db")
    assert code == 0, err
    assert "out/x.db: 1 pairs" in out
    with pycolmap.Database.open("out/x.db") as database:
        assert sorted(image.name for image in database.read_all_images()) == ["a.png", "more/a.png"]
        assert len(database.read_matches(1, 2)) == 200
    code, _, err = run("match", *options, "--database", "out/x.db")
    assert code == 2
    assert "x.db exists" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [("a b c\n", "line 1"), ("", "no pairs"), ('a "b\n', "line 1"), ("a/b.png c\na_b.png c", "both")],
)
def test_wrong_lists_of_pairs(run: Run, text: str, message: str) -> None:
    Path("pairs.txt").write_text(text)
    code, _, err = run("match", "--pairs", "pairs.txt", "-o", "out", "--model", "keep")
    assert code == 2
    assert message in err
    Path("pairs.txt").write_bytes(b"\xff\xfe\x00")
    assert run("match", "--pairs", "pairs.txt", "-o", "out", "--model", "keep")[0] == 2


def test_numbers_are_finite(run: Run, photos: tuple[Path, Path]) -> None:
    for command, option in ((("match", *photos), "--threshold"), (("match", *photos), "--max-megapixels")):
        for value in ("inf", "nan", "-1"):
            assert run(*command, "-o", "out", "--model", "keep", option, value)[0] == 2
    np.savez("x.npz", x0=np.zeros((9, 2)), x1=np.zeros((9, 2)))
    code, _, err = run("filter", "x.npz", "--model", "keep", "--threshold", "inf")
    assert code == 2
    assert "expected a finite number, got inf" in err
    assert sorted(path.name for path in Path().iterdir()) == ["a.png", "b.png", "user", "x.npz"]
