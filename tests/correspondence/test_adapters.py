"""Drop-ins for OpenCV, kornia and COLMAP; the latter's databases are read by pycolmap itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from n3net.correspondence.adapters import filter_database, filter_opencv, filter_tensors, write_database
from n3net.correspondence.estimators import Pose
from n3net.correspondence.filtering import Filtered, score
from n3net.correspondence.intrinsics import Intrinsics
from n3net.correspondence.matchfile import Pair
from n3net.correspondence.matching import Matches, View
from n3net.correspondence.sift import nearest
from n3net.errors import UserError
from n3net.models import create

K = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
N = 60


@pytest.fixture
def net() -> Any:
    """A network that keeps some and rejects some."""
    torch.manual_seed(0)
    net: Any = create("n3net-sets", features=16, depth=4, block_features=16, ratio=True, mutual=True)
    return net.eval()


def points(seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 480, (N, 2)).astype(np.float32), rng.uniform(0, 480, (N, 2)).astype(np.float32)


def expected(net: Any, p0: Any, p1: Any, ratio: Any = None, mutual: Any = None) -> list[int]:
    camera = Intrinsics(K, "test")
    kept = score(Pair(camera.calibrate(p0), camera.calibrate(p1), ratio, mutual), net) >= 0
    assert 0 < kept.sum() < N  # or these tests would tell nothing
    return np.flatnonzero(kept).tolist()


def looks(seed: int = 5) -> tuple[Any, Any]:
    """Descriptors of which about half are alike in both images."""
    rng = np.random.default_rng(seed)
    d0 = rng.uniform(0, 255, (N, 128)).astype(np.float32)
    return d0, (d0 + rng.normal(0, 1, d0.shape) * np.where(rng.random((N, 1)) < 0.5, 5, 300)).astype(np.float32)


def test_opencv(net: Any) -> None:
    cv2 = pytest.importorskip("cv2")
    p0, p1 = points()
    keypoints = [[cv2.KeyPoint(float(x), float(y), 1) for x, y in p] for p in (p0, p1)]
    order = np.random.default_rng(1).permutation(N)
    matches = [cv2.DMatch(i, int(order[i]), 100.0) for i in range(N)]
    out = filter_opencv(*keypoints, matches, K, K, model=net)
    assert all(isinstance(m, cv2.DMatch) for m in out)
    assert [m.queryIdx for m in out] == expected(net, p0, p1[order])
    assert [m.trainIdx for m in out] == [int(order[m.queryIdx]) for m in out]
    descriptors = looks()
    both = cv2.BFMatcher().knnMatch(*descriptors, k=2)
    out = filter_opencv(*keypoints, both, K, K, descriptors=descriptors, model=net)
    index, ratio, mutual = nearest(*descriptors)
    assert [m.queryIdx for m in out] == expected(net, p0, p1[index], ratio, mutual)
    assert filter_opencv(*keypoints, [], K, K, model=net) == []
    again = filter_opencv(*keypoints, [(), *both], K, K, descriptors=descriptors, model=net)
    assert [m.queryIdx for m in again] == [m.queryIdx for m in out]
    assert len(filter_opencv(*keypoints, matches[:4], K, K, model=net)) == 4
    assert filter_opencv([], keypoints[1], [], K, K, descriptors=(None, descriptors[1]), model=net) == []


def test_tensors(net: Any) -> None:
    p0, p1 = (torch.from_numpy(p) for p in points())
    indices = torch.stack([torch.arange(N), torch.randperm(N, generator=torch.Generator().manual_seed(1))], 1)
    distances = torch.rand(N, 1, generator=torch.Generator().manual_seed(2))
    k = torch.from_numpy(K)
    kept = expected(net, p0.numpy(), p1[indices[:, 1]].numpy())
    d, i = filter_tensors(distances, indices, p0, p1, k, k, model=net)
    torch.testing.assert_close(i, indices[kept])
    torch.testing.assert_close(d, distances[kept])
    frames = torch.zeros(1, N, 2, 3)
    frames[0, :, :, 2] = p0
    again = filter_tensors(distances, indices, frames, p1[None], k[None], k, model=net)
    torch.testing.assert_close(again[1], i)
    descriptors = looks()
    index, ratio, mutual = nearest(*descriptors)
    same = index == indices[:, 1].numpy()  # a match that is not the nearest has nothing to say for it
    kept = expected(net, p0.numpy(), p1[indices[:, 1]].numpy(), np.where(same, ratio, 1), mutual & same)
    tensors = (torch.from_numpy(descriptors[0]), torch.from_numpy(descriptors[1]))
    d, i = filter_tensors(distances, indices, p0, p1, k, k, descriptors=tensors, model=net)
    torch.testing.assert_close(i, indices[kept])
    assert [len(t) for t in filter_tensors(distances[:0], indices[:0], p0, p1, k, k, model=net)] == [0, 0]
    with pytest.raises(ValueError, match="keypoints"):
        filter_tensors(distances, indices, p0.reshape(2, -1, 2), p1, k, k, model=net)


def matches(name0: str, name1: str, size: int = 40) -> Matches:
    """Made up, but complete: of the first 30 matches, 20 agree with a pose."""
    p0, p1 = points(sum(map(ord, name0))), points(sum(map(ord, name1)))
    camera = Intrinsics(K, "given")
    views = (View(name0, (640, 480), p0[0], camera), View(name1, (640, 480), p1[0], camera))
    index = np.stack([np.arange(size), np.arange(size)[::-1]], 1)
    kept, inliers = np.arange(size) < 30, np.arange(size) < 20
    pose = Pose(np.diag([-1.0, -1, 1]), np.array([0.6, 0, 0.8]), np.eye(3) / np.sqrt(3), inliers)
    result = Filtered(np.where(kept, 1.0, -1.0).astype(np.float32), kept, pose)
    return Matches(views, index, np.ones(size, np.float32), np.ones(size, bool), result, {})


def test_database_is_read_by_pycolmap(tmp_path: Path, net: Any) -> None:
    pycolmap = pytest.importorskip("pycolmap")
    path = tmp_path / "database.db"
    first = matches("a.jpg", "b.jpg")
    assert write_database(path, [first, matches("c.jpg", "a.jpg"), matches("b.jpg", "a.jpg")]) == 2
    with pycolmap.Database.open(str(path)) as database:
        images = {image.name: image for image in database.read_all_images()}
        assert set(images) == {"a.jpg", "b.jpg", "c.jpg"}
        assert database.num_frames() == 3
        assert database.num_rigs() == database.num_cameras() == 1  # K was given, so it is one camera
        a, b, c = (images[name].image_id for name in ("a.jpg", "b.jpg", "c.jpg"))
        np.testing.assert_allclose(database.read_keypoints(a), first.views[0].keypoints + 0.5)
        camera = database.read_camera(images["a.jpg"].camera_id)
        assert camera.model.name == "SIMPLE_RADIAL"
        assert camera.has_prior_focal_length
        np.testing.assert_allclose(camera.params, [500, 320.5, 240.5, 0])
        np.testing.assert_array_equal(database.read_matches(a, b), first.index[:30])
        np.testing.assert_array_equal(database.read_matches(c, a), first.index[:30])
        geometry = database.read_two_view_geometry(a, b)
        np.testing.assert_array_equal(geometry.inlier_matches, first.index[:20])
        np.testing.assert_allclose(geometry.cam2_from_cam1.rotation.matrix(), np.diag([-1, -1, 1]), atol=1e-9)
        np.testing.assert_allclose(geometry.cam2_from_cam1.translation, [0.6, 0, 0.8])
        np.testing.assert_allclose(geometry.E, np.eye(3) / np.sqrt(3))
    with pytest.raises(UserError, match="--force"):
        write_database(path, [first])
    assert [p.name for p in tmp_path.iterdir()] == ["database.db"]


@pytest.mark.parametrize(
    ("cameras", "models", "prior"),
    [
        ((Intrinsics(K, "a"), Intrinsics(K, "b")), ["SIMPLE_RADIAL"], True),
        ((Intrinsics(K, "", False), Intrinsics(K, "", False)), ["SIMPLE_RADIAL"] * 2, False),
        ((Intrinsics(K, ""), Intrinsics(np.diag([2.0, 2, 1]) @ K, "")), ["SIMPLE_RADIAL"] * 2, True),
        ((Intrinsics(np.diag([1.5, 1, 1]) @ K, ""),) * 2, ["OPENCV"], True),
    ],
)
def test_cameras_of_a_database(tmp_path: Path, cameras: Any, models: list[str], prior: bool) -> None:
    """One for both images where it is known to be the same."""
    pycolmap = pytest.importorskip("pycolmap")
    pair = matches("a.jpg", "b.jpg")
    views = [replace(view, camera=camera) for view, camera in zip(pair.views, cameras, strict=True)]
    write_database(tmp_path / "x.db", [replace(pair, views=(views[0], views[1]))])
    with pycolmap.Database.open(str(tmp_path / "x.db")) as database:
        found = database.read_all_cameras()
        assert [camera.model.name for camera in found] == models
        assert all(camera.has_prior_focal_length == prior for camera in found)
        assert len({image.camera_id for image in database.read_all_images()}) == len(models)


def test_database_filtered(tmp_path: Path, net: Any) -> None:
    pycolmap = pytest.importorskip("pycolmap")
    pytest.importorskip("cv2")
    source, target = tmp_path / "in.db", tmp_path / "out.db"
    pair = matches("a.jpg", "b.jpg", N)
    everything = replace(pair, result=Filtered(pair.scores, np.ones(N, bool), None))
    write_database(source, [everything])
    descriptors = [d.clip(0, 255).astype(np.uint8) for d in looks()]
    with pycolmap.Database.open(str(source)) as database:
        for image, data in enumerate(descriptors, start=1):
            database.write_descriptors(image, pycolmap.FeatureDescriptors(pycolmap.FeatureExtractorType.SIFT, data))
    before = source.read_bytes()
    counts = list(filter_database(source, target, net))
    index, ratio, mutual = nearest(*descriptors)
    same = index == pair.index[:, 1]
    kept = expected(net, *pair.points, np.where(same, ratio, 1), mutual & same)
    assert [(c.images, c.matches, c.kept) for c in counts] == [(("a.jpg", "b.jpg"), N, len(kept))]
    with pycolmap.Database.open(str(target)) as database:
        np.testing.assert_array_equal(database.read_matches(1, 2), pair.index[kept])
        assert database.num_keypoints() == 2 * N
        if counts[0].inliers:
            assert len(database.read_two_view_geometry(1, 2).inlier_matches) == counts[0].inliers
    assert source.read_bytes() == before
    (tmp_path / "empty.db").touch()
    for wrong in ("absent.db", "empty.db"):
        with pytest.raises(UserError, match=wrong):
            list(filter_database(tmp_path / wrong, tmp_path / "x.db", net))


def test_databases_that_cannot_be_read_or_written(tmp_path: Path, net: Any) -> None:
    pytest.importorskip("pycolmap")
    source = tmp_path / "in.db"
    write_database(source, [matches("a.jpg", "b.jpg")])
    content = source.read_bytes()
    for place in (tmp_path / "in.db" / "x.db", Path("/proc/nowhere/x.db")):
        with pytest.raises(UserError, match=r"x\.db: cannot be written"):
            write_database(place, [])
        with pytest.raises(UserError, match=r"x\.db: cannot be written"):
            list(filter_database(source, place, net))
    source.write_bytes(content[: len(content) // 3])
    with pytest.raises(UserError, match=r"in\.db: pycolmap cannot"):
        list(filter_database(source, tmp_path / "out[1].db", net))
    assert [path.name for path in tmp_path.iterdir()] == ["in.db"]


def test_keypoints_must_agree(tmp_path: Path) -> None:
    pytest.importorskip("pycolmap")
    first = matches("a.jpg", "b.jpg")
    other = replace(first.views[0], keypoints=first.views[0].keypoints + 1)
    second = replace(first, views=(other, matches("a.jpg", "c.jpg").views[1]))
    with pytest.raises(UserError, match="not the same in all pairs"):
        write_database(tmp_path / "x.db", [first, second])
    assert not list(tmp_path.iterdir())


def test_without_pycolmap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    with pytest.raises(UserError, match=r"pip install 'n3net\[colmap\]'"):
        write_database(tmp_path / "x.db", [])


def test_a_damaged_database_is_refused_in_words(tmp_path: Path) -> None:
    """Where pycolmap would end the process."""
    colmap = pytest.importorskip("pycolmap")
    path = tmp_path / "a.db"
    with colmap.Database.open(str(path)) as database:
        camera = colmap.Camera(model="PINHOLE", width=100, height=80, params=[90, 90, 50, 40])
        camera.camera_id = database.write_camera(camera)
        for name in ("a.png", "b.png"):
            number = database.write_image(colmap.Image(name=name, camera_id=camera.camera_id))
            database.write_keypoints(number, np.zeros((12, 2), np.float32))
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // 4096):
        broken = content.copy()
        broken[4096 * page : 4096 * page + 8] = b"\xff" * 8
        path.write_bytes(broken)
        with pytest.raises(UserError, match="cannot work with this database"):
            list(filter_database(path, tmp_path / "out.db"))
    assert [p.name for p in tmp_path.iterdir()] == ["a.db"]
