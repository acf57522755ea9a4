"""Image pairs of scenes that were never photographed: points, two cameras, and what a matcher makes of them.

The scene is seen from camera 0: rays meet layers in depth, slanted planes, or boxes before a plane. What camera 1 sees
of the points, with noise, are the right matches. Wrong ones are of three kinds: uniform over the image; clustered, a
part of the scene matched with another one, or many points with the same few; and near-epipolar, close to their
epipolar line though not close enough to be right. Distance ratios and mutual nearest neighbours are drawn from
distributions fitted by eye to SIFT matches of two photographed scenes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3net.correspondence import geometry
from n3net.correspondence.arrays import read_arrays
from n3net.correspondence.matchfile import Pair
from n3net.errors import UserError

Array = NDArray[np.float64]
Random = np.random.Generator

NEAREST, FARTHEST = 0.5, 100.0  # depths that points may have
ATTEMPTS = 50  # camera pairs that are tried until one sees enough of what the other does


@dataclass(frozen=True)
class TwoCameras:
    """Two pinhole cameras: half the width and height of each image in calibrated units, and the pose of the second."""

    extent0: Array  # (2,)
    extent1: Array
    rotation: Array  # X1 = R X0 + t
    translation: Array


class Poses:
    """Real camera pairs to draw from: an .npz with K1, K2 (P, 3, 3), R (P, 3, 3) and t (P, 3)."""

    def __init__(self, path: str | Path) -> None:
        arrays = read_arrays(Path(path))
        try:
            self.k0, self.k1, self.r, self.t = (np.asarray(arrays[key], np.float64) for key in ("K1", "K2", "R", "t"))
        except (KeyError, ValueError, TypeError) as error:
            raise UserError(f"{path}: expected an .npz with K1, K2, R and t of camera pairs ({error})") from None
        shapes = [a.shape for a in (self.k0, self.k1, self.r, self.t)]
        pairs = self.t.size // 3
        if pairs < 1 or shapes != [(pairs, 3, 3)] * 3 + [(pairs, 3)]:
            raise UserError(
                f"{path}: expected K1, K2, R of shape (P, 3, 3) and t of (P, 3), P at least 1, got {shapes}"
            )
        k = np.concatenate([self.k0, self.k1])
        if not (np.isfinite(k).all() and (k[:, [0, 1, 0, 1], [0, 1, 2, 2]] > 0).all()):
            raise UserError(
                f"{path}: K1 and K2: expected positive focal lengths, and an axis in the middle of the image"
            )
        if not np.allclose(self.r @ self.r.swapaxes(1, 2), np.eye(3), atol=1e-3):
            raise UserError(f"{path}: R: expected rotations, got another matrix")
        if not (np.isfinite(self.t).all() and self.t.any(1).all()):
            raise UserError(f"{path}: t: expected numbers that are not all 0; two cameras in one place are no pair")

    def draw(self, rng: Random, distance: float) -> TwoCameras:
        """One of them, either camera first, with a baseline for a scene at some distance."""
        i = rng.integers(len(self.r))
        e0, e1 = (k[:2, 2] / k[[0, 1], [0, 1]] for k in (self.k0[i], self.k1[i]))  # the axis is in the middle
        t = self.t[i] * distance * rng.uniform(0.1, 0.6) / np.linalg.norm(self.t[i])
        if rng.integers(2):
            return TwoCameras(e0, e1, self.r[i], t)
        return TwoCameras(e1, e0, self.r[i].T, -self.r[i].T @ t)


def draw_cameras(rng: Random, distance: float) -> TwoCameras:
    """Two cameras that look at about the same place, at some distance from the first."""
    extent = rng.uniform(0.3, 0.75) * np.array([1, rng.choice([2 / 3, 3 / 4, 9 / 16])])
    extent = extent[::-1] if rng.random() < 0.3 else extent
    direction = rng.normal(size=3) * [1, 0.4, 0.6]
    center = direction / np.linalg.norm(direction) * distance * rng.uniform(0.03, 0.6)  # of camera 1
    looked_at = distance * np.array([*rng.uniform(-0.6, 0.6, 2) * extent, 1])
    forward = looked_at - center
    forward /= np.linalg.norm(forward)
    right = np.cross([0, 1, 0], forward)
    right /= np.linalg.norm(right)
    roll = rotation_about(np.array([0.0, 0, 1]), rng.normal() * 0.1)
    rotation = roll @ np.stack([right, np.cross(forward, right), forward])
    return TwoCameras(extent, extent * rng.uniform(0.8, 1.25), rotation, -rotation @ center)


def rotation_about(axis: Array, angle: float) -> Array:
    """Rodrigues' formula, for a unit axis."""
    k = geometry.cross_matrix(axis)
    turn: Array = np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k
    return turn


def synthetic_pair(
    rng: Random,
    matches: int = 2000,
    outliers: float | tuple[float, float] = (0.0, 0.95),
    poses: Poses | None = None,
) -> Pair:
    """A pair with its true pose.

    Args:
        rng: all that is random; the same state gives the same pair.
        matches: how many.
        outliers: share of wrong matches, or the ends of a range to draw it from.
        poses: to draw camera pairs from; by default they are made up.
    """
    share = rng.uniform(*outliers) if isinstance(outliers, tuple) else outliers
    wrong = round(share * matches)
    cameras, x0, x1 = _seen_by_both(rng, matches, poses)
    translation = cameras.translation / np.linalg.norm(cameras.translation)
    noise = rng.uniform(0.2, 1.5) * 1e-3  # about as many pixels of an image that is 1000 wide
    x0, x1 = (x + rng.normal(size=x.shape) * noise for x in (x0, x1))
    is_wrong = rng.permutation(matches) < wrong
    x1[is_wrong] = _wrong(rng, cameras, geometry.essential(cameras.rotation, translation), x0[is_wrong], x1)
    ratio, mutual = _descriptors(rng, is_wrong)
    names = ("synthetic-0", "synthetic-1")
    first, second, ratios = (a.astype(np.float32) for a in (x0, x1, ratio))
    return Pair(first, second, ratios, mutual, cameras.rotation, translation, names)


def _seen_by_both(rng: Random, count: int, poses: Poses | None) -> tuple[TwoCameras, Array, Array]:
    """TwoCameras and points (count, 2) that both see; the last attempt counts, whatever it sees."""
    for attempt in range(ATTEMPTS):
        distance = float(np.exp(rng.uniform(np.log(2), np.log(20))))
        cameras = (
            draw_cameras(rng, distance) if poses is None or attempt >= ATTEMPTS // 2 else poses.draw(rng, distance)
        )
        x0 = _texture(rng, 4 * count, cameras.extent0)
        points = np.c_[x0, np.ones(len(x0))] * _depths(rng, x0, distance)[:, None]
        seen = points @ cameras.rotation.T + cameras.translation
        x1 = seen[:, :2] / np.maximum(seen[:, 2:], 1e-9)
        good = (seen[:, 2] > NEAREST / 5) & (np.abs(x1) < cameras.extent1).all(1)
        if good.mean() > 0.1 or (attempt == ATTEMPTS - 1 and good.any()):
            chosen = rng.choice(np.flatnonzero(good), count, replace=good.sum() < count)
            return cameras, x0[chosen], x1[chosen]
    raise RuntimeError("no two cameras saw the same point")  # drawn cameras look at the same place


def _texture(rng: Random, count: int, extent: Array) -> Array:
    """Keypoints of an image, (count, 2): some anywhere, most in clusters, as texture is."""
    clusters = rng.uniform(-1, 1, (rng.integers(5, 40), 2))
    spread = rng.uniform(0.02, 0.25, len(clusters))
    which = rng.integers(len(clusters), size=count)
    points = clusters[which] + rng.normal(size=(count, 2)) * spread[which, None]
    anywhere = (rng.random(count) < rng.uniform(0.1, 1.0)) | (np.abs(points) > 1).any(1)
    points[anywhere] = rng.uniform(-1, 1, (int(anywhere.sum()), 2))
    return points * extent


def _depths(rng: Random, x: Array, distance: float) -> Array:
    """How far along their rays points lie, (N, 2) -> (N,), about ``distance``."""
    rays = np.c_[x, np.ones(len(x))]
    kind = rng.choice(["layers", "planes", "boxes"])
    if kind == "layers":
        layers = distance * np.exp(rng.normal(size=rng.integers(2, 6)) * 0.5)
        depth = layers[rng.integers(len(layers), size=len(x))] * np.exp(rng.normal(size=len(x)) * rng.uniform(0, 0.1))
    elif kind == "planes":
        depth = np.full(len(x), np.inf)
        for _ in range(rng.integers(1, 5)):
            depth = np.minimum(depth, _plane(rng, rays, distance))
    else:
        depth = _plane(rng, rays, distance * rng.uniform(1, 2))
        for _ in range(rng.integers(1, 6)):
            depth = np.minimum(depth, _box(rng, rays, distance))
    return np.clip(depth, NEAREST, FARTHEST)


def _plane(rng: Random, rays: Array, distance: float) -> Array:
    """Depth of a slanted plane, infinite where a ray misses it."""
    normal = np.array([*rng.normal(size=2) * 0.7, 1])
    anchor = distance * np.array([*rng.uniform(-0.3, 0.3, 2), rng.uniform(0.7, 1.3)])
    along = rays @ normal
    depth = (anchor @ normal) / np.where(np.abs(along) < 1e-9, 1e-9, along)
    return np.where(depth > 0, depth, np.inf)


def _box(rng: Random, rays: Array, distance: float) -> Array:
    """Depth where rays enter a box, infinite where they miss it."""
    axis = rng.normal(size=3)
    turn = rotation_about(axis / np.linalg.norm(axis), rng.uniform(0, np.pi))
    half = distance * rng.uniform(0.05, 0.4, 3)
    center = distance * np.array([*rng.uniform(-0.6, 0.6, 2), rng.uniform(0.6, 1.4)])
    directions, origin = rays @ turn.T, -turn @ center
    with np.errstate(divide="ignore", invalid="ignore"):
        first, second = (-half - origin) / directions, (half - origin) / directions
    enters = np.nanmax(np.minimum(first, second), 1)
    leaves = np.nanmin(np.maximum(first, second), 1)
    return np.where((enters < leaves) & (enters > 0), enters, np.inf)


def _wrong(rng: Random, cameras: TwoCameras, e: Array, x0: Array, all_x1: Array) -> Array:
    """Where wrong matches of x0 (n, 2) are in image 1, (n, 2); all of them disagree with E."""
    n = len(x0)
    weights = rng.dirichlet([1.5, 1.5, 0.5])
    kind = rng.choice(3, n, p=weights)
    uniform = rng.uniform(-1, 1, (n, 2)) * cameras.extent1
    x1 = np.where(kind[:, None] == 0, uniform, 0)
    x1[kind == 1] = _clustered(rng, x0[kind == 1], all_x1, cameras.extent1)
    x1[kind == 2] = _near_epipolar(rng, e, x0[kind == 2], cameras.extent1)
    for _ in range(20):  # those that are right by chance are drawn again
        right = geometry.labels(e, x0, x1)
        if not right.any():
            break
        x1[right] = rng.uniform(-1, 1, (int(right.sum()), 2)) * cameras.extent1
    return x1


def _clustered(rng: Random, x0: Array, all_x1: Array, extent: Array) -> Array:
    """Other keypoints of image 1: any, a few that many points share, or a part of the image shifted."""
    n = len(x0)
    x1 = all_x1[rng.integers(len(all_x1), size=n)]
    hubs = all_x1[rng.integers(len(all_x1), size=rng.integers(5, 60))]
    how = rng.choice(3, n, p=rng.dirichlet([1, 1, 1]))
    x1[how == 1] = hubs[rng.integers(len(hubs), size=int((how == 1).sum()))]
    shifts = rng.uniform(-1, 1, (rng.integers(1, 6), 2)) * extent
    shifted = x0 * rng.uniform(0.7, 1.4) + shifts[rng.integers(len(shifts), size=n)]
    shifted += rng.normal(size=(n, 2)) * rng.uniform(0.002, 0.05)
    inside = (how == 2) & (np.abs(shifted) < extent).all(1)
    x1[inside] = shifted[inside]
    return x1


def _near_epipolar(rng: Random, e: Array, x0: Array, extent: Array) -> Array:
    """Points of image 1 beside the epipolar lines of x0, 1 to 8 times as far away as a right match may be."""
    lines = np.c_[x0, np.ones(len(x0))] @ e.T  # (n, 3)
    normal = lines[:, :2] / np.maximum(np.linalg.norm(lines[:, :2], axis=1, keepdims=True), 1e-12)
    offset = lines[:, 2] / np.maximum(np.linalg.norm(lines[:, :2], axis=1), 1e-12)
    x1 = rng.uniform(-1, 1, (len(x0), 2)) * extent
    x1 -= ((x1 * normal).sum(1) + offset)[:, None] * normal  # on the line
    away = np.sqrt(geometry.CORRECT_BELOW) * rng.uniform(1, 8, len(x0)) * rng.choice([-1, 1], len(x0))
    return np.clip(x1 + away[:, None] * normal, -extent, extent)


def _descriptors(rng: Random, wrong: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
    """Ratios of descriptor distances, and which matches are mutual, (N,) each."""
    n = len(wrong)
    right = rng.beta(rng.uniform(1.8, 4), rng.uniform(0.9, 1.5), n)
    tail = rng.random(n) < rng.uniform(0.05, 0.2)
    other = rng.beta(np.where(tail, 5.0, rng.uniform(11, 18)), 1.0, n)
    ratio = np.where(wrong, other, right)
    chance = np.where(wrong, 0.8 * (1 - ratio**4), 1 - 0.6 * ratio**5)
    return ratio, rng.random(n) < chance
