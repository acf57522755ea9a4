"""From photographs to matches, and matches of others: n3net.match, n3net match, n3net filter."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

import n3net
from n3net import weights
from n3net.correspondence.filtering import filter_pair, score
from n3net.correspondence.matchfile import Pair
from n3net.correspondence.matching import match, open_image
from n3net.correspondence.picture import draw
from n3net.correspondence.results import load_npz
from n3net.correspondence.sift import detect, nearest
from n3net.errors import UserError
from n3net.models import create

cv2 = pytest.importorskip("cv2", reason="matching needs OpenCV")

Array = npt.NDArray[Any]


Run = Callable[..., tuple[int, str, str]]


def constant(value: float) -> Any:
    """A network that gives every match the same score."""
    net: Any = create("n3net-sets", features=8, depth=2, block_features=8, ratio=True, mutual=True)
    torch.nn.init.zeros_(net.last.weight)
    torch.nn.init.constant_(net.last.bias, value)
    return net.eval()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Run) -> Run:
    """The program in a directory of its own, with two sets of weights."""
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    for name, value in (("keep", 1.0), ("reject", -1.0)):
        weights.save(tmp_path / "user" / f"{name}.safetensors", constant(value))

    def call(*arguments: object) -> tuple[int, str, str]:
        code, out, err = command(*map(str, arguments))
        assert "Traceback" not in err
        return code, out, err

    return call


def texture(height: int = 240, width: int = 320, seed: int = 0) -> Array:
    """A colourful picture with corners of all sizes, uint8."""
    rng = np.random.default_rng(seed)
    image = np.zeros((height, width, 3), np.float32)
    for cell in (4, 8, 16, 32):
        small = rng.uniform(0, 60, (height // cell + 1, width // cell + 1, 3)).astype(np.float32)
        image += cv2.resize(small, None, fx=cell, fy=cell, interpolation=cv2.INTER_NEAREST)[:height, :width]
    return np.clip(image, 0, 255).astype(np.uint8)


@pytest.fixture
def photos(tmp_path: Path) -> tuple[Path, Path]:
    """A plane seen twice, in images of unequal size."""
    first = texture()
    h = np.array([[0.95, 0.06, 10.0], [-0.05, 0.97, 12.0], [1e-4, -5e-5, 1.0]])
    second = cv2.warpPerspective(first, h, (340, 250))
    for name, image in (("a.png", first), ("b.png", second)):
        Image.fromarray(image).save(tmp_path / name)
    return tmp_path / "a.png", tmp_path / "b.png"


def test_nearest_equals_brute_force() -> None:
    rng = np.random.default_rng(0)
    d0, d1 = (rng.integers(0, 200, (n, 128)).astype(np.float32) for n in (60, 50))
    index, ratio, mutual = nearest(d0, d1)
    both = cv2.BFMatcher().knnMatch(d0, d1, k=2)
    np.testing.assert_array_equal(index, [first.trainIdx for first, _ in both])
    np.testing.assert_allclose(ratio, [first.distance / second.distance for first, second in both], rtol=1e-4)
    checked = cv2.BFMatcher(crossCheck=True).match(d0, d1)
    assert set(np.flatnonzero(mutual)) == {m.queryIdx for m in checked}


def test_nearest_of_none_and_of_one() -> None:
    d = np.ones((3, 128), np.float32)
    assert [len(part) for part in nearest(d, d[:0])] == [0, 0, 0]
    assert [len(part) for part in nearest(d[:0], d)] == [0, 0, 0]
    index, ratio, mutual = nearest(d, d[:1])
    assert (index.tolist(), ratio.tolist(), mutual.tolist()) == ([0, 0, 0], [1, 1, 1], [True, False, False])


def test_nearest_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    d0, d1 = rng.random((20, 8)), rng.random((11, 8))
    whole = nearest(d0, d1)
    monkeypatch.setattr("n3net.correspondence.sift.BLOCK", 30)
    for a, b in zip(nearest(d0, d1), whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_keypoints_of_all_types_of_image() -> None:
    image = texture()
    found = detect(image, 300)
    assert len(found) == 300
    assert found.descriptors.shape == (300, 128)
    assert (found.xy >= 0).all()
    assert (found.xy < (320, 240)).all()
    twelve_bits = image.astype(np.uint16) * 16
    for other in (twelve_bits, image.astype(np.float32) / 255):
        same = detect(other, 300)
        apart = np.linalg.norm(found.xy[:100, None] - same.xy, axis=-1).min(1)  # (100,)
        assert (apart < 0.5).mean() > 0.95
    assert len(detect(image[..., 0], 300)) == 300
    assert len(detect(np.full((50, 60), 7, np.uint8))) == 0
    assert len(detect(np.zeros((50, 60), np.float32))) == 0
    with pytest.raises(ValueError, match="shape"):
        detect(np.zeros((5, 5, 2), np.uint8))


def test_match(photos: tuple[Path, Path]) -> None:
    result = n3net.match(*photos, model=constant(1.0), limit=500)
    assert result.kept.all()
    assert result.scores.shape == (500,)
    assert result.pose is not None
    assert result.inliers.sum() > 100
    first, second = result.points
    assert first.shape == second.shape == (500, 2)
    assert any("plane" in note for note in result.notes)
    assert any("a.png and b.png not known: focal length taken as the longer side" in note for note in result.notes)
    assert n3net.match(*photos, model=constant(-1.0), limit=500).kept.sum() == 0
    both_ways = n3net.match(*photos, model=constant(1.0), limit=500, mutual=True)
    np.testing.assert_array_equal(both_ways.kept, result.mutual)
    arrays = [open_image(path)[0] for path in photos]
    k = np.array([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]])
    given = match(*arrays, k, k, model=constant(1.0), limit=500)
    np.testing.assert_array_equal(given.index, result.index)
    assert not any("not known" in note for note in given.notes)


def test_identical_images() -> None:
    image = texture()
    result = match(image, image, model=constant(1.0), limit=300)
    assert result.pose is not None
    assert result.pose.motion == "rotation"
    np.testing.assert_allclose(result.pose.rotation, np.eye(3), atol=1e-3)
    assert any("images are the same" in note for note in result.notes)


def test_picture_shows_three_kinds(photos: tuple[Path, Path]) -> None:
    images = [open_image(path)[0] for path in photos]
    found = match(*images, model=constant(1.0), limit=300)
    assert found.pose is not None
    half = np.arange(len(found.kept)) % 2 == 0
    some = replace(found.result, pose=replace(found.pose, inliers=found.kept & half))
    none = match(*images, model=constant(-1.0), limit=300)
    everything = replace(found, result=replace(found.result, pose=replace(found.pose, inliers=found.kept)))
    for matches, expected in (
        (everything, {"green"}),
        (replace(found, result=some), {"green", "amber"}),
        (none, {"red"}),
    ):
        sheet = np.asarray(draw(matches, *images)).astype(int)
        assert sheet.shape[1] > 320 + 340
        red, green, blue = sheet[..., 0], sheet[..., 1], sheet[..., 2]
        counts = {
            "green": (green - red > 60).sum(),
            "amber": ((red - green > 20) & (green - blue > 60)).sum(),
            "red": ((red - green > 60) & (abs(green - blue) < 40)).sum(),
        }
        assert {name for name, count in counts.items() if count > 300} == expected, counts
    without = replace(found, result=replace(found.result, pose=None))
    assert np.asarray(draw(without, *images)).shape == sheet.shape


def pair(n: int, seed: int = 0, **more: Any) -> Pair:
    rng = np.random.default_rng(seed)
    return Pair(rng.uniform(-0.5, 0.5, (n, 2)), rng.uniform(-0.5, 0.5, (n, 2)), **more)


@pytest.mark.parametrize("n", [0, 1, 4, 7])
def test_too_few_to_score(n: int) -> None:
    result = filter_pair(pair(n), constant(-1.0))
    assert result.kept.all()
    assert (result.scores == 0).all()
    assert any("no matches" in note if n == 0 else "fewer than 8" in note for note in result.notes)
    if n < 5:
        assert result.pose is None


def test_eight_are_scored() -> None:
    assert (score(pair(8), constant(-1.0)) == -1).all()


def test_networks_stay_in_training() -> None:
    net = constant(1.0)
    expected = score(pair(20), net)
    net.train()
    net.last.eval()
    np.testing.assert_array_equal(score(pair(20), net), expected)
    assert net.training
    assert not net.last.training


def test_ratio_alone_is_not_used() -> None:
    torch.manual_seed(3)
    net = create("n3net-sets", features=8, depth=2, block_features=8, ratio=True, mutual=True).eval()
    ratio, mutual = np.linspace(0, 1, 20), np.arange(20) < 10
    unknown = score(pair(20), net)
    np.testing.assert_array_equal(score(pair(20, ratio=ratio), net), unknown)
    np.testing.assert_array_equal(score(pair(20, mutual=mutual), net), unknown)
    assert (score(pair(20, ratio=ratio, mutual=mutual), net) != unknown).any()


def test_nan_and_far_away_points_do_not_touch_the_others() -> None:
    clean = pair(50, ratio=np.full(50, 0.5), mutual=np.ones(50, bool))
    torch.manual_seed(3)
    net = create("n3net-sets", features=8, depth=2, block_features=8, ratio=True, mutual=True).eval()
    dirty = Pair(
        np.vstack([clean.x0, [[np.nan, 0], [0, np.inf], [1e30, 0], [0, 0]]]),
        np.vstack([clean.x1, [[0, 0], [0, 0], [0, 0], [0, 0]]]),
        np.append(np.full(53, 0.5), np.nan),
        np.ones(54, bool),
    )
    result = filter_pair(dirty, net)
    np.testing.assert_array_equal(result.scores[:50], score(clean, net))
    assert np.isneginf(result.scores[50:]).all()
    assert not result.kept[50:].any()
    assert any("4 matches are not numbers" in note for note in result.notes)


def test_duplicates_count_once() -> None:
    one = pair(1)
    result = filter_pair(Pair(np.repeat(one.x0, 100, 0), np.repeat(one.x1, 100, 0)), constant(1.0))
    assert result.kept.all()
    assert result.pose is None
    assert any("5 different matches" in note for note in result.notes)


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


def test_filter(run: Run, tmp_path: Path) -> None:
    points = np.random.default_rng(0).uniform(0, 600, (2, 40, 2))
    k = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
    np.savez("points.npz", points0=points[0], points1=points[1], K0=k, K1=k, extra=np.arange(3))
    code, out, _ = run("filter", "points.npz", "--model", "keep", "--json", "pose.json")
    assert code == 0
    assert "40 matches, 40 kept" in out
    arrays = np.load("points-filtered.npz")
    assert arrays["kept"].all()
    assert arrays["scores"].tolist() == [1.0] * 40
    assert arrays["extra"].tolist() == [0, 1, 2]
    assert json.loads(Path("pose.json").read_text())["matches"] == 40
    assert run("filter", "points.npz", "--model", "keep")[0] == 2  # exists
    calibrated = (points - [320, 240]) / 500
    np.savez("x.npz", x0=calibrated[0], x1=calibrated[1], ratio=np.ones(40), mutual=np.ones(40))
    matches0 = np.where(np.arange(40) < 30, np.arange(40), -1)
    np.savez(
        "glue.npz", keypoints0=points[0], keypoints1=points[1], matches=matches0, size0=[640, 480], size1=[640, 480]
    )
    np.savez("index.npz", keypoints0=points[0], keypoints1=points[1], matches=np.stack([np.arange(9)] * 2, 1), K=k)
    np.savez("bare.npz", mkpts0=points[0], mkpts1=points[1])
    for name, options, count, words in (
        ("x", (), 40, ""),
        ("glue", (), 30, "camera 0: not known"),
        ("glue", ("--focal", 500, "-f"), 30, "focal length given"),
        ("index", (), 9, "K in the file"),
        ("bare", ("--size", "640x480", "--fov", 60), 40, "field of view"),
    ):
        code, out, err = run("filter", f"{name}.npz", "--model", "keep", *options)
        assert code == 0, err
        assert f"{count} matches, {count} kept" in out
        assert words in out
    np.testing.assert_array_equal(np.load("x-filtered.npz")["essential"].shape, (3, 3))


@pytest.mark.parametrize("n", [0, 4, 7, 8])
def test_filter_few(run: Run, n: int) -> None:
    points = np.random.default_rng(0).uniform(0, 600, (2, n, 2))
    np.savez("few.npz", points0=points[0], points1=points[1], size0=[640, 480], size1=[640, 480])
    code, out, _ = run("filter", "few.npz", "--model", "keep")
    assert code == 0
    assert f"{n} matches, {n} kept" in out


def test_filter_refuses(run: Run, tmp_path: Path) -> None:
    points = np.zeros((9, 2))
    np.savez("bare.npz", points0=points, points1=points)
    np.savez("unequal.npz", points0=points, points1=points[:3], K=np.eye(3))
    np.savez("flat.npz", points0=points.ravel(), points1=points, K=np.eye(3))
    np.savez("words.npz", points0=np.array([["a", "b"]]), points1=points, K=np.eye(3))
    np.savez("other.npz", pixels=points)
    np.savez("wild.npz", keypoints0=points, keypoints1=points, matches=np.full((4, 2), 99), K=np.eye(3))
    np.savez("ratio.npz", x0=points, x1=points, ratio=np.ones(4))
    np.savez("k.npz", points0=points, points1=points, K=np.zeros((3, 3)))
    np.savez("objects.npz", points0=np.array([{}, []], object), points1=points)
    Path("noise.npz").write_bytes(bytes(range(256)))
    Path("noise.db").write_bytes(bytes(range(256)))
    for name, message in (
        ("bare.npz", "--size"),
        ("unequal.npz", "9 points in the first image, 3"),
        ("flat.npz", "shape (N, 2)"),
        ("words.npz", "expected numbers"),
        ("other.npz", "it has pixels"),
        ("wild.npz", "out of bounds"),
        ("ratio.npz", "ratio"),
        ("k.npz", "positive focal lengths"),
        ("objects.npz", "numpy arrays"),
        ("noise.npz", "numpy arrays"),
        ("absent.npz", "absent.npz"),
        ("noise.db", "not a COLMAP database"),
    ):
        code, _, err = run("filter", name, "--model", "keep")
        assert code == 2
        assert message in err
    assert not list(tmp_path.glob("*-filtered*"))
    code, _, err = run("filter", "bare.npz", "--model", "keep", "--focal", 500)
    assert code == 2
    assert "need: give --size" in err
    assert run("filter", "bare.npz", "--model", "keep", "--size", "640")[0] == 2
    np.savez("x.npz", x0=points, x1=points)
    for options in (("--focal", 500, "--size", "640x480"), ("--fov", 60), ("--size", "640x480")):
        code, _, err = run("filter", "x.npz", "--model", "keep", *options)
        assert code == 2
        assert "x.npz: it has calibrated coordinates (x0, x1), which need no camera: leave out" in err
    code, _, err = run("filter", "x.npz", "--model", "keep", "-o", "y.npz", "--json", "./y.npz", "--force")
    assert code == 2
    assert "--output and --json are the same file, y.npz" in err
    assert not Path("y.npz").exists()


def test_numbers_are_finite(run: Run, photos: tuple[Path, Path]) -> None:
    for command, option in ((("match", *photos), "--threshold"), (("match", *photos), "--max-megapixels")):
        for value in ("inf", "nan", "-1"):
            assert run(*command, "-o", "out", "--model", "keep", option, value)[0] == 2
    np.savez("x.npz", x0=np.zeros((9, 2)), x1=np.zeros((9, 2)))
    code, _, err = run("filter", "x.npz", "--model", "keep", "--threshold", "inf")
    assert code == 2
    assert "expected a finite number, got inf" in err
    assert sorted(path.name for path in Path().iterdir()) == ["a.png", "b.png", "user", "x.npz"]


def test_bomb_is_not_decompressed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed("bomb.npz", points0=np.zeros((100_000, 2)), points1=np.zeros((100_000, 2)))
    monkeypatch.setattr("n3net.correspondence.foreign.read_arrays.__defaults__", (1_000_000,))
    code, _, err = run("filter", "bomb.npz", "--model", "keep", "--size", "10x10")
    assert code == 2
    assert "when decompressed" in err


def test_match_needs_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UserError, match=r"pip install 'n3net\[match\]'"):
        detect(texture())
