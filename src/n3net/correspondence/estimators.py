"""The relative pose of two cameras from calibrated matches of which some are wrong, and what such a pose is worth."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from n3net.correspondence.geometry import essential
from n3net.correspondence.sift import opencv
from n3net.errors import UserError

Array = npt.NDArray[Any]
Motion = Literal["general", "plane", "rotation"]

AGREES_WITHIN = (
    1e-3  # largest distance to the epipolar line, in calibrated coordinates: one pixel at a focal length of 1000
)
CONFIDENCE = 0.999
MINIMUM = 5  # matches without which there is no estimate
SHARE = 0.9  # of the inliers that a plane or a rotation must explain to be the whole explanation
TOLERANCE = 2 * AGREES_WITHIN  # of that explanation


@dataclass(frozen=True)
class Pose:
    """Where the second camera is as seen from the first: ``x_cam1 = R x_cam0 + t``.

    Args:
        rotation: R, (3, 3).
        translation: t, (3,), of length 1 since two images do not tell the scale; 0 where the camera only turned.
        essential: E = [t]x R, (3, 3), of norm 1, with ``x1' E x0 = 0``.
        inliers: (N,) true for the matches that agree with it.
        motion: "general"; "plane" if nearly all inliers lie on one, where a second pose may fit as well; "rotation" if
            the camera turned and did not move, or the images are the same.
    """

    rotation: Array
    translation: Array
    essential: Array
    inliers: npt.NDArray[np.bool_]
    motion: Motion = "general"

    @property
    def center(self) -> Array:
        """Where the second camera is, (3,), in the coordinates of the first: x right, y down, z ahead; -R' t."""
        found: Array = -self.rotation.T @ self.translation + 0.0  # no -0
        return found


Estimator = Callable[[Array, Array, float], "tuple[Array, Array, Array] | None"]


def estimate(x0: Array, x1: Array, method: str = "ransac", threshold: float = AGREES_WITHIN) -> Pose | None:
    """The pose that most matches agree with, or None where there is none.

    Args:
        x0, x1: (N, 2) calibrated coordinates, finite.
        method: one of :data:`ESTIMATORS`.
        threshold: largest distance to the epipolar line of a match that agrees.
    """
    check(method)
    if len(x0) < MINIMUM:
        return None
    x0, x1 = (np.ascontiguousarray(x, np.float64) for x in (x0, x1))
    found = ESTIMATORS[method](x0, x1, threshold)
    if found is None:
        return None
    rotation, translation, inliers = found
    return Pose(rotation, translation, essential(rotation, translation), inliers.astype(bool))


def check(method: str) -> None:
    """Say so if there is no such estimator, or its library is not installed."""
    if method not in ESTIMATORS:
        raise UserError(f"there is no estimator {method!r}; there are {', '.join(ESTIMATORS)}")
    opencv()
    if method not in available():
        raise UserError(f"the estimator {method} needs a package: pip install 'n3net[poselib]'")


def available() -> list[str]:
    """The estimators whose libraries are installed; :func:`judge` needs OpenCV for the poses of all."""
    libraries = {name: ("cv2", "poselib") if name == "poselib" else ("cv2",) for name in ESTIMATORS}
    return [name for name, needed in libraries.items() if all(importlib.util.find_spec(n) for n in needed)]


def _opencv(flag: str) -> Estimator:
    def run(x0: Array, x1: Array, threshold: float) -> tuple[Array, Array, Array] | None:
        cv2 = opencv()
        k = np.eye(3)
        try:
            e, mask = cv2.findEssentialMat(x0, x1, k, method=getattr(cv2, flag), prob=CONFIDENCE, threshold=threshold)
        except cv2.error:  # degenerate input that OpenCV itself did not foresee
            return None
        if e is None or len(e) < 3 or not np.isfinite(e).all():
            return None
        # Five matches have up to ten solutions: the one with most points in front of both cameras.
        poses = [cv2.recoverPose(e[i : i + 3], x0, x1, k, mask=mask.copy()) for i in range(0, len(e), 3)]
        _, r, t, _ = max(poses, key=lambda pose: pose[0])
        return r, t.ravel(), mask.ravel()

    return run


def _poselib(x0: Array, x1: Array, threshold: float) -> tuple[Array, Array, Array] | None:
    import poselib

    camera = {"model": "SIMPLE_PINHOLE", "width": 0, "height": 0, "params": [1.0, 0.0, 0.0]}
    options = {"max_epipolar_error": threshold, "success_prob": CONFIDENCE}
    pose, info = poselib.estimate_relative_pose(x0, x1, camera, camera, options)
    length = np.linalg.norm(pose.t)
    if info["num_inliers"] < MINIMUM or not 0 < length < np.inf:
        return None
    return np.asarray(pose.R), np.asarray(pose.t) / length, np.asarray(info["inliers"])


ESTIMATORS: dict[str, Estimator] = {
    "ransac": _opencv("RANSAC"),
    "magsac": _opencv("USAC_MAGSAC"),
    "poselib": _poselib,
}


def judge(pose: Pose, x0: Array, x1: Array) -> Pose:
    """The same pose, and whether the matches suffice for it: a plane leaves two poses, a rotation no translation.

    Args:
        pose: of :func:`estimate`.
        x0, x1: (N, 2) the matches it was estimated from.
    """
    a, b = (np.asarray(x, np.float64)[pose.inliers] for x in (x0, x1))
    rotation, share = _turn(a, b)
    if share >= SHARE:
        return replace(pose, rotation=rotation, translation=np.zeros(3), essential=np.zeros((3, 3)), motion="rotation")
    if len(a) >= MINIMUM and _on_a_plane(a, b):
        return replace(pose, motion="plane")
    return pose


def _turn(a: Array, b: Array) -> tuple[Array, float]:
    """The rotation that brings most rays of the first camera onto those of the second, and for which share it does."""
    rays0, rays1 = (_rays(x) for x in (a, b))
    good = np.ones(len(a), bool)
    rotation = np.eye(3)
    for _ in range(3):
        u, _, v = np.linalg.svd(rays1[good].T @ rays0[good])
        rotation = u @ np.diag([1, 1, np.linalg.det(u @ v)]) @ v
        distance = np.linalg.norm(rays0 @ rotation.T - rays1, axis=1)
        good = distance <= max(TOLERANCE, float(np.median(distance)))
    return rotation, float((distance <= TOLERANCE).mean())


def _rays(x: Array) -> Array:
    rays = np.c_[x, np.ones(len(x))]
    return rays / np.linalg.norm(rays, axis=1, keepdims=True)


def _on_a_plane(a: Array, b: Array) -> bool:
    cv2 = opencv()
    h, mask = cv2.findHomography(a, b, cv2.USAC_MAGSAC, TOLERANCE)
    return h is not None and float(mask.mean()) >= SHARE
