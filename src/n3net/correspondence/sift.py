"""SIFT keypoints and the nearest neighbours of their descriptors, with OpenCV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.errors import UserError
from n3net.io.picture import peak_of, to_type

Array = npt.NDArray[Any]

LIMIT = 2000  # keypoints of an image, as in the paper
CONTRAST = 1e-5  # nearly nothing is too faint: the strongest are chosen by LIMIT
BLOCK = 4_000_000  # distances that are held at once


@dataclass(frozen=True)
class Keypoints:
    """Where an image has something to recognise, and what it looks like there."""

    xy: npt.NDArray[np.float32]  # (n, 2) pixels, the centre of the first one is (0, 0)
    descriptors: npt.NDArray[np.float32]  # (n, 128)

    def __len__(self) -> int:
        return len(self.xy)


def opencv() -> Any:
    """The module cv2, or how to get it."""
    try:
        import cv2
    except ImportError:
        raise UserError("matching photographs needs OpenCV: pip install 'n3net[match]'") from None
    return cv2


def detect(image: Array, limit: int = LIMIT) -> Keypoints:
    """The strongest SIFT keypoints.

    Args:
        image: (H, W) or (H, W, 3) in the order red, green, blue; uint8, or uint16 and floats, which are brought to
            8 bit so that their largest value is white: SIFT does not mind, and many 16 bit files hold 10 or 12.
        limit: how many at most.
    """
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] != 3) or 0 in image.shape:
        raise ValueError(f"image: expected shape (H, W) or (H, W, 3), got {image.shape}")
    cv2 = opencv()
    pixels = np.ascontiguousarray(_eight_bit(image)[..., ::-1] if image.ndim == 3 else _eight_bit(image))
    sift = cv2.SIFT_create(nfeatures=limit, contrastThreshold=CONTRAST)
    try:
        found, descriptors = sift.detectAndCompute(pixels, None)
    except cv2.error as error:  # memory, in the first place
        height, width = pixels.shape[:2]
        raise UserError(
            f"SIFT failed on {width} x {height} pixels ({error.err or error}); scale the image down"
        ) from None
    if not found:
        return Keypoints(np.zeros((0, 2), np.float32), np.zeros((0, 128), np.float32))
    order = np.argsort([-k.response for k in found], kind="stable")[:limit]  # OpenCV gives more where responses tie
    return Keypoints(np.asarray([found[i].pt for i in order], np.float32), descriptors[order])


def _eight_bit(image: Array) -> Array:
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind not in "uf" or not np.isfinite(image).all():
        raise ValueError(f"image: expected uint8, uint16 or finite floats, got {image.dtype}")
    return to_type(image, np.uint8, float(image.max()) or peak_of(image.dtype))


def nearest(d0: Array, d1: Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """For each descriptor of the first image its nearest one in the second, by Euclidean distance. Nothing is rejected.

    By matrix products, which takes a third of the time of OpenCV's matcher, there and back.

    Args:
        d0: (n0, C) descriptors.
        d1: (n1, C).

    Returns:
        index: (n0,) of the nearest in ``d1``; (0,) if there are no descriptors in ``d1``.
        ratio: (n0,) of its distance to that of the second nearest (Lowe), 1 where there is no second.
        mutual: (n0,) whether this descriptor is also the nearest one of its nearest.
    """
    if len(d0) == 0 or len(d1) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.bool_)
    d0, d1 = d0.astype(np.float32), d1.astype(np.float32)
    n0, n1 = len(d0), len(d1)
    index, ratio = np.empty(n0, np.int64), np.ones(n0, np.float32)
    back, back_distance = np.zeros(n1, np.int64), np.full(n1, np.inf, np.float32)
    squares = np.square(d1).sum(1)
    rows = max(1, BLOCK // n1)
    for start in range(0, n0, rows):
        block = d0[start : start + rows]
        distance = np.maximum(np.square(block).sum(1)[:, None] - 2 * block @ d1.T + squares, 0)  # (r, n1) squared
        each = np.arange(len(block))
        best = distance.argmin(1)
        index[start : start + rows] = best
        closer = distance.min(0) < back_distance
        back[closer] = start + distance.argmin(0)[closer]
        back_distance = np.minimum(back_distance, distance.min(0))
        if n1 > 1:
            first = distance[each, best].copy()
            distance[each, best] = np.inf
            second = distance.min(1)
            known = second > 0
            ratio[start : start + rows][known] = np.sqrt(first[known] / second[known])
    return index, ratio, back[index] == np.arange(n0)
