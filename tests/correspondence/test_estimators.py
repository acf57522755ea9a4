"""Poses from matches, what they are worth, cameras, and the figures that poses and matches are judged by."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from n3net.correspondence import estimators, intrinsics, metrics
from n3net.correspondence.estimators import ESTIMATORS, Pose, estimate, judge
from n3net.correspondence.geometry import pose_error
from n3net.correspondence.intrinsics import Cameras
from n3net.errors import UserError

cv2 = pytest.importorskip("cv2", reason="estimators need OpenCV")

ROTATION = cv2.Rodrigues(np.array([0.05, 0.2, 0.03]))[0]
TRANSLATION = np.array([0.96, 0.1, 0.2]) / np.linalg.norm([0.96, 0.1, 0.2])


def scene(
    n: int, *, wrong: int = 0, moved: float = 1.0, plane: bool = False, noise: float = 2e-4, seed: int = 0
) -> tuple[Any, Any]:
    """Matches (n, 2) of points before two cameras, the first ``wrong`` of them not true."""
    rng = np.random.default_rng(seed)
    x = np.c_[rng.uniform(-1.5, 1.5, (n, 2)), rng.uniform(3, 8, n)]
    if plane:
        x[:, 2] = 4 + 0.3 * x[:, 0]
    y = x @ ROTATION.T + moved * TRANSLATION
    x0, x1 = x[:, :2] / x[:, 2:], y[:, :2] / y[:, 2:]
    x0, x1 = (p + rng.normal(0, noise, p.shape) for p in (x0, x1))
    x1[:wrong] = rng.uniform(-0.4, 0.4, (wrong, 2))
    return x0, x1


def error(pose: Pose | None) -> tuple[float, float]:
    assert pose is not None
    return pose_error(pose.rotation, pose.translation, ROTATION, TRANSLATION)


@pytest.mark.parametrize("method", list(ESTIMATORS))
def test_pose_among_wrong_matches(method: str) -> None:
    if method not in estimators.available():
        pytest.skip(f"{method} is not installed")
    x0, x1 = scene(400, wrong=200)
    pose = estimate(x0, x1, method)
    rotation, translation = error(pose)
    assert rotation < 1
    assert translation < 3
    assert pose is not None
    assert pose.inliers[200:].mean() > 0.8
    assert pose.inliers[:200].mean() < 0.1
    np.testing.assert_allclose(np.linalg.norm(pose.essential), 1)
    homogeneous = [np.c_[x, np.ones(len(x))] for x in (x0, x1)]
    assert np.abs((homogeneous[1] @ pose.essential * homogeneous[0]).sum(1))[200:].max() < 0.02


@pytest.mark.parametrize("method", list(ESTIMATORS))
def test_few_or_equal_matches_never_raise(method: str) -> None:
    if method not in estimators.available():
        pytest.skip(f"{method} is not installed")
    x0, x1 = scene(8)
    for n in (0, 1, 4):
        assert estimate(x0[:n], x1[:n], method) is None
    for n in (5, 6, 7, 8):
        pose = estimate(x0[:n], x1[:n], method)
        assert pose is None or np.isfinite(pose.rotation).all()
    for degenerate in (np.zeros((50, 2)), np.linspace(0, 1, 50)[:, None] * [1, 2]):
        pose = estimate(degenerate, degenerate, method)
        assert pose is None or judge(pose, degenerate, degenerate).motion != "general"


def test_unknown_estimator() -> None:
    with pytest.raises(UserError, match="ransac, magsac, poselib"):
        estimate(np.zeros((9, 2)), np.zeros((9, 2)), "lmeds")


def test_all_estimators_need_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert estimators.available() == []
    for name in ("ransac", "poselib"):  # which is not the reason
        with pytest.raises(UserError, match=r"needs OpenCV: pip install 'n3net\[match\]'"):
            estimators.check(name)


def test_general_motion_stays_as_it_is() -> None:
    x0, x1 = scene(300, wrong=100)
    pose = estimate(x0, x1)
    assert pose is not None
    assert judge(pose, x0, x1) is pose


@pytest.mark.parametrize("noise", [0.0, 2e-4])
def test_rotation_alone_has_no_translation(noise: float) -> None:
    x0, x1 = scene(300, moved=0, wrong=60, noise=noise)
    pose = estimate(x0, x1)
    assert pose is not None
    judged = judge(pose, x0, x1)
    assert judged.motion == "rotation"
    assert not judged.translation.any()
    assert pose_error(judged.rotation, TRANSLATION, ROTATION, TRANSLATION)[0] < 0.1


def test_plane_is_told() -> None:
    x0, x1 = scene(300, plane=True)
    pose = estimate(x0, x1)
    assert pose is not None
    assert judge(pose, x0, x1).motion == "plane"


def test_map_as_in_the_paper() -> None:
    errors = [1.0, 7.0, 12.0, 30.0]
    mean = {t: np.mean([metrics.mean_accuracy(e, t) for e in errors]) for t in metrics.DEGREES}
    assert mean == {5: 0.25, 10: (0.25 + 0.5) / 2, 20: (0.25 + 0.5 + 0.75 + 0.75) / 4}
    assert metrics.mean_accuracy(5.0, 5) == 0  # below, not at
    assert metrics.pair_error(*metrics.FAILURE) == 180


def test_auc_is_the_area_under_the_accuracies() -> None:
    errors = np.array([0.5, 3.0, 8.0, 15.0, 50.0])
    steps = (np.arange(200_000) + 0.5) * 20 / 200_000
    area = np.mean([(errors < t).mean() for t in steps[::100]])
    assert np.mean([metrics.curve_area(e, 20) for e in errors]) == pytest.approx(area, abs=1e-3)


def test_precision_and_recall() -> None:
    kept, right = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert metrics.precision(kept, right) == 0.5
    assert metrics.recall(kept, right) == 0.5
    none = np.zeros(4, bool)
    assert metrics.precision(none, right) == 0
    assert np.isnan(metrics.recall(kept, none))


def test_average_precision() -> None:
    right = np.array([True, False, True, True, False])
    scores = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    assert metrics.average_precision(scores, right) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert metrics.average_precision(np.zeros(5), right) == pytest.approx(0.6)  # all together: their share
    assert metrics.average_precision(right.astype(float), right) == 1
    order = np.random.default_rng(0).permutation(5)
    assert metrics.average_precision(scores[order], right[order]) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert np.isnan(metrics.average_precision(scores, np.zeros(5, bool)))
    rejected = np.where([True, True, False, False, False], scores, -np.inf)  # as of matches that are no numbers
    assert metrics.average_precision(rejected, right) == pytest.approx((1 + 2 * 3 / 5) / 3)


K = [[800.0, 0.0, 320.0], [0.0, 810.0, 240.0], [0.0, 0.0, 1.0]]


def test_k_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "k.npy", np.array(K))
    np.savez(tmp_path / "k.npz", K=np.array(K))
    (tmp_path / "k.txt").write_text("800 0 320\n0 810 240\n0, 0, 1\n")
    (tmp_path / "list.json").write_text(json.dumps(K))
    (tmp_path / "k.json").write_text(json.dumps({"K": K}))
    (tmp_path / "many.json").write_text(json.dumps({"images": {"a.jpg": {"K": K}}}))
    for name in ("k.npy", "k.npz", "k.txt", "list.json", "k.json", "many.json"):
        found = intrinsics.from_file(tmp_path / name, (640, 480), "a.jpg")
        np.testing.assert_array_equal(found.k, K)
        assert name in found.source


def test_k_is_scaled_with_the_image(tmp_path: Path) -> None:
    (tmp_path / "k.json").write_text(json.dumps({"K": K, "width": 640, "height": 480}))
    half = intrinsics.from_file(tmp_path / "k.json", (320, 240))
    assert half.k[0, 0] == 400
    assert half.k[0, 2] == (320 + 0.5) / 2 - 0.5
    corner, small = np.array([[-0.5, -0.5], [100.0, 50.0]]), np.array([[-0.5, -0.5], [49.75, 24.75]])
    whole = intrinsics.from_file(tmp_path / "k.json", (640, 480))
    np.testing.assert_allclose(half.calibrate(small), whole.calibrate(corner), atol=1e-6)
    with pytest.raises(UserError, match="turned or cropped"):
        intrinsics.from_file(tmp_path / "k.json", (480, 640))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("k.json", b"{"),
        ("k.json", b"[[1, 2], [3, 4]]"),
        ("k.json", b'{"images": {}}'),
        ("k.json", b'{"K": [[0, 0, 0], [0, 0, 0], [0, 0, 1]]}'),
        ("k.json", b"[" * 100_000),
        ("k.txt", b"\xff\xfe"),
        ("k.txt", b"1 2 3"),
        ("k.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 9)}\n"),
        ("k.npy", b"\x93NUMPY\x01\x00\x06\x00{'a':\n"),
        ("k.npz", b"PK\x03\x04"),
        ("k.npz", b"PK\x05\x06" + bytes(18)),
    ],
)
def test_files_without_k(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError):
        intrinsics.from_file(tmp_path / name, (640, 480), "a.jpg")


def test_encrypted_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.npz"
    np.savez(path, K=np.array(K))
    content = bytearray(path.read_bytes())
    content[6] |= 1  # flags of the member, in its head and in the directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="encrypted"):
        intrinsics.from_file(path)


def test_k_from_words() -> None:
    size = (4000, 3000)
    film = Cameras(focal=["24mm"]).of(0, size)
    assert film is not None
    assert film.k[0, 0] == pytest.approx(24 * 5000 / np.hypot(36, 24))
    pixels = Cameras(focal=["1000", "2000"]).of(1, size)
    assert pixels is not None
    assert pixels.k[0, 0] == 2000
    assert tuple(pixels.k[:2, 2]) == (1999.5, 1499.5)
    view = Cameras(fov=[90]).of(0, size)
    assert view is not None
    assert view.k[0, 0] == pytest.approx(2000)
    assert Cameras().of(0, size) is None
    for wrong in ({"focal": ["long"]}, {"focal": ["-3"]}, {"fov": [190.0]}, {"focal": ["nan"]}):
        with pytest.raises(UserError):
            Cameras(**wrong).of(0, size)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="one of them"):
        Cameras(focal=["1"], fov=[2])
    with pytest.raises(UserError, match="3 times"):
        Cameras(fov=[1, 2, 3])


def test_k_from_exif() -> None:
    tags = Image.Exif()
    tags.get_ifd(0x8769)[0xA405] = 28
    found = intrinsics.from_exif(tags.tobytes(), 400, 300)
    assert found is not None
    assert found.k[0, 0] == pytest.approx(28 * 500 / np.hypot(36, 24))
    assert found.source.startswith("EXIF")
    tags = Image.Exif()
    tags.get_ifd(0x8769).update({0x920A: 5.0, 0xA20E: 4000 / 0.5, 0xA210: 3, 0xA002: 4000, 0xA003: 3000})
    found = intrinsics.from_exif(tags.tobytes(), 2000, 1500)  # 8000 pixels a centimetre, halved since
    assert found is not None
    assert found.k[0, 0] == pytest.approx(5 * 800 / 2)
    tags.get_ifd(0x8769)[0x920A] = 0.0
    for exif in (b"", b"Exif\0\0nonsense", tags.tobytes()):
        assert intrinsics.from_exif(exif, 400, 300) is None


def test_fallback_is_as_documented() -> None:
    camera = intrinsics.fallback(640, 480)
    np.testing.assert_allclose(camera.calibrate(np.array([[320.0, 240.0], [640.0, 0.0]])), [[0, 0], [0.5, -0.375]])
    assert not camera.known
