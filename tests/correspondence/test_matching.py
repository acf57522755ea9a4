"""From photographs to matches: n3net.match, and its picture."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import n3net
from n3net.correspondence.matching import match, open_image
from n3net.correspondence.picture import draw
from n3net.correspondence.sift import detect
from n3net.errors import UserError
from photos import constant, texture, two_photos

cv2 = pytest.importorskip("cv2", reason="matching needs OpenCV")


@pytest.fixture
def photos(tmp_path: Path) -> tuple[Path, Path]:
    return two_photos(tmp_path)


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


def test_match_needs_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    image = texture()
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UserError, match=r"pip install 'n3net\[match\]'"):
        detect(image)
