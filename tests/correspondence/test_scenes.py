"""Photographed scenes, and the commands that make pairs of them."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from n3net.cli.data import app
from n3net.correspondence import geometry
from n3net.correspondence.matchfile import PairFile
from n3net.correspondence.scenes import PlacedImage, agreeing, read_scene, scene_pairs, undistort
from n3net.correspondence.synthetic import Poses, rotation_about, synthetic_pair
from n3net.errors import UserError
from pairs import same

K = np.array([[300.0, 0, 159.5], [0, 300, 119.5], [0, 0, 1]])
WALLS = (  # planes n X = d of a corner, seen from the origin
    (np.array([0.7, 0, 0.714]), 3.0),
    (np.array([-0.7, 0, 0.714]), 3.0),
    (np.array([0.0, 0.8, 0.6]), 3.0),
)


def corner(rotation: Any, t: Any, textures: Any) -> Any:
    """A photo, 320 x 240, of three textured walls that meet in a corner, from a camera ``X1 = R X0 + t``."""
    cv2 = pytest.importorskip("cv2")
    y, x = np.mgrid[:240, :320]
    rays = np.stack([x, y, np.ones_like(x)], -1) @ np.linalg.inv(K).T @ rotation  # in the world
    center = -rotation.T @ t
    depths = np.stack([(d - n @ center) / np.maximum(rays @ n, 1e-9) for n, d in WALLS])
    which = depths.argmin(0)
    points = center + np.take_along_axis(depths, which[None], 0)[0][..., None] * rays
    image = np.zeros((240, 320), np.uint8)
    for i, (n, _) in enumerate(WALLS):
        u = np.cross(n, [0.31, 0.9, 0.3])
        u /= np.linalg.norm(u)
        uv = (np.stack([points @ u, points @ np.cross(n, u)], -1) * 80 + 500).astype(np.float32)
        seen = cv2.remap(textures[i], uv, None, cv2.INTER_LINEAR)
        image[which == i] = seen[which == i]
    return image


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cameras.json and transforms.json of the same six cameras around a corner of a room."""
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    textures = [cv2.resize(rng.integers(0, 256, (300, 300), np.uint8), (1000, 1000)) for _ in WALLS]
    folder = tmp_path_factory.mktemp("scene")
    (folder / "images").mkdir()
    cameras, frames = {}, []
    for i in range(6):
        rotation = rotation_about(np.array([0.0, 1, 0]), 0.1 * (i - 2.5)) @ rotation_about(
            np.array([1.0, 0, 0]), 0.02 * i
        )
        t = -rotation @ np.array([0.35 * (i - 2.5), 0.1 * (i % 3), 0.05 * i])
        cv2.imwrite(str(folder / "images" / f"{i}.png"), corner(rotation, t, textures))
        cameras[f"{i}.png"] = {"K": K.tolist(), "R": rotation.tolist(), "t": t.tolist(), "width": 320, "height": 240}
        to_world = np.eye(4)
        to_world[:3, :3], to_world[:3, 3] = rotation.T @ np.diag([1, -1, -1]), -rotation.T @ t
        frames.append({"file_path": f"images/{i}.png", "transform_matrix": to_world.tolist()})
    (folder / "cameras.json").write_text(json.dumps({"images": cameras}))
    frames.append({"file_path": "images/left-out.png", "transform_matrix": np.eye(4).tolist()})
    lens = {"fl_x": 300, "fl_y": 300, "cx": 160, "cy": 120, "k1": 0.0}
    (folder / "transforms.json").write_text(json.dumps({**lens, "frames": frames}))
    return folder


def test_both_kinds_of_files_say_the_same(scene: Path) -> None:
    first, second = read_scene(scene / "cameras.json"), read_scene(scene / "transforms.json")
    assert [v.path.name for v in first] == [v.path.name for v in second] == [f"{i}.png" for i in range(6)]
    for a, b in zip(first, second, strict=True):
        for name in ("k", "rotation", "translation"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=1e-9)
    assert len(read_scene(scene)) == 6


def test_matches_of_a_scene_agree_with_its_cameras(scene: Path) -> None:
    views = read_scene(scene)
    pairs = list(scene_pairs(views, limit=500))
    assert {("2.png", "3.png"), ("3.png", "2.png")} <= {p.names for p in pairs}
    for pair in pairs:
        assert agreeing(pair) >= 30
    near = next(p for p in pairs if p.names == ("2.png", "3.png"))
    right = geometry.labels(geometry.essential(*near.pose), near.x0, near.x1)
    assert near.ratio is not None
    assert near.mutual is not None
    good = near.mutual & (near.ratio < 0.7)
    assert good.sum() > 50
    assert right[good].mean() > 0.95
    assert right[good].mean() > right[~near.mutual].mean() + 0.3


def test_pairs_can_be_thinned_and_images_scaled(scene: Path) -> None:
    views = read_scene(scene)[:3]
    told: list[float] = []
    every = list(scene_pairs(views, limit=200, least=0, progress=lambda part, what: told.append(part)))
    assert len(every) == 6
    assert told == sorted(told)
    assert len(list(scene_pairs(views, limit=200, least=-1000, stride=2))) == 3
    parts = sorted(agreeing(pair) / len(pair) for pair in every)
    hard = list(scene_pairs(views, limit=200, least=0, most=parts[1]))
    assert sorted(agreeing(pair) / len(pair) for pair in hard) == parts[:2]
    both = list(scene_pairs(views, limit=300, scales=(1.0, 0.6), least=-1000))
    assert len(both) == 24
    small = next(p for p in both[::-1] if p.names == ("2.png", "1.png"))  # the last: small and small
    right = geometry.labels(geometry.essential(*small.pose), small.x0, small.x1)
    assert small.mutual is not None
    assert right[small.mutual].mean() > 0.5


def test_views_in_one_place_are_no_pair(scene: Path) -> None:
    view = read_scene(scene)[0]
    other = PlacedImage(view.path, view.k, view.rotation, view.translation)
    with pytest.raises(UserError, match="no two of these 2 images show enough of the same"):
        list(scene_pairs([view, other], limit=100, least=-1000))


def test_distortion_is_that_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    lens = (0.06, -0.08, -0.001, 0.0002)
    truth = rng.uniform(-0.5, 0.5, (100, 2))
    points = cv2.projectPoints(np.c_[truth, np.ones(100)], np.zeros(3), np.zeros(3), K, np.array(lens))[0][:, 0]
    view = PlacedImage(Path("x"), K, np.eye(3), np.zeros(3), lens)
    np.testing.assert_allclose(view.calibrate(points), truth, atol=1e-6)
    calibrated = (points - K[:2, 2]) / 300
    np.testing.assert_allclose(undistort(calibrated, lens), truth, atol=1e-9)


def test_cameras_hold_for_the_stated_size(scene: Path, tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    (tmp_path / "images").mkdir()
    for i in (2, 3):
        photo = cv2.imread(str(scene / "images" / f"{i}.png"))
        cv2.imwrite(str(tmp_path / "images" / f"{i}.png"), cv2.resize(photo, (240, 180), interpolation=cv2.INTER_AREA))
    (tmp_path / "cameras.json").write_bytes((scene / "cameras.json").read_bytes())
    transforms = json.loads((scene / "transforms.json").read_text()) | {"w": 320.0, "h": 240.0}
    (tmp_path / "transforms.json").write_text(json.dumps(transforms))
    for name in ("cameras.json", "transforms.json"):
        views = read_scene(tmp_path / name)
        assert [view.size for view in views] == [(320, 240)] * 2
        np.testing.assert_allclose(views[0].of_size((240, 180)).k[:2, 2], [119.5, 89.5])
        pair = next(scene_pairs(views, limit=500))
        right = geometry.labels(geometry.essential(*pair.pose), pair.x0, pair.x1)
        assert pair.ratio is not None
        assert pair.mutual is not None
        assert right[pair.mutual & (pair.ratio < 0.7)].mean() > 0.9
    cv2.imwrite(str(tmp_path / "images" / "2.png"), np.zeros((320, 240), np.uint8))
    with pytest.raises(UserError, match=r"2\.png: K is for 320 x 240 pixels, the image has 240 x 320: is it turned"):
        list(scene_pairs(views))
    (tmp_path / "images" / "2.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"2\.png: not a readable"):
        list(scene_pairs(views))


def one_camera(r: Any, k: float = 9) -> str:
    return json.dumps(
        {"images": {"a": {"K": [[k] * 3] * 3, "R": np.multiply(r, np.ones((3, 3))).tolist(), "t": [0] * 3}}}
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("cameras.json", "{", "not what was expected"),
        ("cameras.json", "[]", "not what was expected"),
        ("cameras.json", '{"images": {"a.png": {"K": [1]}}}', "not what was expected"),
        ("cameras.json", '{"images": {}}', "0 of its 0 images"),
        ("cameras.json", one_camera(1), "no rotation"),
        ("cameras.json", one_camera(float("nan")), "no numbers"),
        ("cameras.json", one_camera(np.eye(3), 0), r"cameras\.json, a\): expected .* positive focal lengths"),
        ("cameras.json", one_camera(1).replace('"K"', '"height": 1, "width": 1e999, "K"'), "not what was expected"),
        ("transforms.json", '{"frames": [{"file_path": "a.png"}]}', "not what was expected"),
        ("transforms.json", '{"frames": 3}', "not what was expected"),
    ],
)
def test_broken_cameras_are_refused(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words):
        read_scene(tmp_path)


def test_a_folder_without_cameras_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected cameras\.json or transforms\.json"):
        read_scene(tmp_path)


# Photos without cameras


def test_structure_from_motion_finds_the_cameras(scene: Path, tmp_path: Path) -> None:
    pytest.importorskip("pycolmap")
    from n3net.correspondence.sfm import reconstruct, write_cameras

    told: list[float] = []
    views = reconstruct(scene / "images", progress=lambda part, what: told.append(part))
    assert told == sorted(told)
    assert told[-1] > 0.6
    truth = {v.path.name: v for v in read_scene(scene)}
    assert len(views) >= 5
    for a, b in pairwise(views):
        poses = []
        for first, second in ((a, b), (truth[a.path.name], truth[b.path.name])):
            poses.append(geometry.relative_pose(first.rotation, first.translation, second.rotation, second.translation))
        rotation, translation = geometry.pose_error(*poses[0], *poses[1])
        assert rotation < 2
        assert translation < 8
    write_cameras(tmp_path / "cameras.json", views)
    (tmp_path / "images").symlink_to(scene / "images")
    for found, expected in zip(read_scene(tmp_path), views, strict=True):
        np.testing.assert_allclose(found.rotation, expected.rotation)
        assert found.distortion == expected.distortion
        assert found.size == expected.size == (320, 240)


def test_cameras_that_were_found_serve_for_matching(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    from n3net.correspondence import intrinsics
    from n3net.correspondence.sfm import write_cameras

    photo, file = tmp_path / "wide.png", tmp_path / "cameras.json"
    cv2.imwrite(str(photo), np.zeros((240, 320), np.uint8))
    write_cameras(file, [PlacedImage(photo, K, np.eye(3), np.zeros(3))])
    plain = intrinsics.from_file(file, (320, 240), "wide.png")
    np.testing.assert_array_equal(plain.k, K)
    assert plain.source == file.name
    write_cameras(file, [PlacedImage(photo, K, np.eye(3), np.zeros(3), (0.1, 0, 0, 0), (640, 480))], force=True)
    found = intrinsics.from_file(file, (320, 240), "wide.png")
    assert found.k[0, 0] == K[0, 0] / 2
    assert "lens distortion not corrected, scaled from 640 x 480" in found.source


def test_photos_that_colmap_sees_otherwise_are_refused(tmp_path: Path) -> None:
    from n3net.correspondence.sfm import reconstruct

    exif = Image.Exif()
    for orientation, name in ((1, "a"), (1, "b"), (3, "c")):
        exif[274] = orientation
        Image.new("L", (60, 40)).save(tmp_path / f"{name}.tif", exif=exif)
    with pytest.raises(UserError, match=r"c\.tif: a TIFF file whose pixels are stored turned"):
        reconstruct(tmp_path)
    (tmp_path / "b.tif").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"b\.tif: not a readable"):
        reconstruct(tmp_path)


def test_structure_from_motion_says_when_it_fails(tmp_path: Path) -> None:
    pytest.importorskip("pycolmap")
    cv2 = pytest.importorskip("cv2")
    from n3net.correspondence.sfm import reconstruct

    rng = np.random.default_rng(0)
    for i in range(3):
        cv2.imwrite(str(tmp_path / f"{i}.png"), cv2.resize(rng.integers(0, 256, (30, 40), np.uint8), (160, 120)))
    with pytest.raises(UserError, match="no reconstruction of these 3 photos was found"):
        reconstruct(tmp_path)


def test_without_pycolmap_there_are_words_on_how_to_get_it(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from n3net.correspondence.sfm import reconstruct

    monkeypatch.setitem(sys.modules, "pycolmap", None)
    with pytest.raises(UserError, match=r"pip install 'n3net\[colmap\]'"):
        reconstruct(scene / "images")


def test_too_few_photos_are_refused(tmp_path: Path) -> None:
    from n3net.correspondence.sfm import reconstruct

    with pytest.raises(UserError, match="0 photos; structure from motion needs at least 3"):
        reconstruct(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        reconstruct(tmp_path / "none")


# Commands


def n3net(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_commands(scene: Path, poses: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.pairs"
    done = n3net("synthetic", "-o", made, "--count", 3, "--matches", 50, "--outliers", 0.9, 0.9, "--poses", poses)
    assert done.stdout.strip() == f"{made}: 3 pairs"
    same(PairFile(made)[2], synthetic_pair(np.random.default_rng([0, 2]), 50, (0.9, 0.9), Poses(poses)))
    assert "exists; use --force" in str(n3net("synthetic", "-o", made, "--count", 3).exception)
    assert "--outliers: expected" in str(n3net("synthetic", "-o", made, "--outliers", 0.9, 1).exception)
    photographed = tmp_path / "scene.pairs"
    done = n3net("matches", scene, "-o", photographed, "--keypoints", 300)
    assert done.stdout.strip() == f"{photographed}: {len(PairFile(photographed))} pairs of 6 images"
    told = n3net("info", photographed).stdout
    assert f"pairs            {len(PairFile(photographed))}, " in told
    assert "right matches" in told
    assert isinstance(n3net("matches", tmp_path, "-o", tmp_path / "x.pairs").exception, UserError)
    assert "--scale: expected" in str(n3net("matches", scene, "-o", tmp_path / "x.pairs", "--scale", 2).exception)


def test_from_images_as_a_command(scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n3net.correspondence.sfm.reconstruct", lambda folder, **options: read_scene(scene))
    done = n3net("from-images", scene / "images", "-o", tmp_path / "x.pairs", "--cameras", tmp_path / "cameras.json")
    assert "6 of 6 photos found their place" in done.stdout
    assert len(PairFile(tmp_path / "x.pairs")) > 5
    assert len(json.loads((tmp_path / "cameras.json").read_text())["images"]) == 6
    again = n3net("from-images", scene / "images", "-o", tmp_path / "y.pairs", "--cameras", tmp_path / "cameras.json")
    assert "exists; use --force" in str(again.exception)
    assert not (tmp_path / "y.pairs").exists()
