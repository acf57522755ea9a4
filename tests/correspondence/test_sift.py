"""Keypoints, and the nearest descriptors."""

from __future__ import annotations

import numpy as np
import pytest

from n3net.correspondence.sift import detect, nearest
from photos import texture

cv2 = pytest.importorskip("cv2", reason="matching needs OpenCV")


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
