"""Matches in the npz files of other matchers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.correspondence import intrinsics
from n3net.correspondence.arrays import read_arrays
from n3net.correspondence.intrinsics import Cameras, Intrinsics
from n3net.correspondence.matchfile import Pair
from n3net.errors import UserError

Array = npt.NDArray[Any]

# Names under which programs store points, (N, 2) each, and numbers of keypoints that match.
POINTS = (("points0", "points1"), ("mkpts0", "mkpts1"), ("pts0", "pts1"), ("pts1", "pts2"))
KEYPOINTS = (("keypoints0", "keypoints1"), ("kpts0", "kpts1"))
INDICES = ("matches", "matches0", "index")
LIMIT = 5_000_000  # matches
MAX_SIDE = 1_000_000  # pixels


@dataclass(frozen=True)
class Foreign:
    """What a file holds: all its arrays, its matches as a pair, and the cameras, None for calibrated coordinates."""

    arrays: dict[str, Array]
    pair: Pair
    cameras: tuple[Intrinsics, Intrinsics] | None


def read_foreign(path: Path, cameras: Cameras, sizes: Sequence[tuple[int, int]] = ()) -> Foreign:
    """Matches of a file.

    Args:
        path: an npz file with ``x0`` and ``x1`` in calibrated coordinates; or with points in pixels under one of the
            names of ``POINTS``; or with keypoints and ``matches``, as (M, 2) numbers of keypoints, or (n0,) numbers of
            keypoints in the second image, -1 for none. Beside them may be ``ratio`` and ``mutual``; ``K0`` and ``K1``
            or ``K``; ``size0`` and ``size1``, width and height.
        cameras: what a person says about them, which counts more than the file.
        sizes: of the images, for files that do not tell.
    """
    arrays = read_arrays(path)
    try:
        calibrated = {"x0", "x1"} <= arrays.keys()
        if calibrated and (cameras.files or cameras.focal or cameras.fov or sizes):
            raise ValueError(
                "it has calibrated coordinates (x0, x1), which need no camera: "
                "leave out --intrinsics, --focal, --fov and --size"
            )
        points = (arrays["x0"], arrays["x1"]) if calibrated else _points(arrays)
        points = (_coordinates(points[0]), _coordinates(points[1]))
        if len(points[0]) != len(points[1]):
            raise ValueError(f"{len(points[0])} points in the first image, {len(points[1])} in the second")
        if len(points[0]) > LIMIT:
            raise ValueError(f"{len(points[0])} matches, more than the limit of {LIMIT}")
        extra = {name: arrays[name].reshape(-1) for name in ("ratio", "mutual") if name in arrays}
        used = None
        if not calibrated:
            used = (_camera(arrays, cameras, sizes, 0), _camera(arrays, cameras, sizes, 1))
            with np.errstate(over="ignore"):
                points = (used[0].calibrate(points[0]), used[1].calibrate(points[1]))
        return Foreign(arrays, Pair(points[0], points[1], extra.get("ratio"), extra.get("mutual")), used)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise UserError(f"{path}: {error}") from None


def _points(arrays: dict[str, Array]) -> tuple[Array, Array]:
    for first, second in POINTS:
        if first in arrays and second in arrays:
            return arrays[first], arrays[second]
    index = next((arrays[name] for name in INDICES if name in arrays), None)
    for first, second in KEYPOINTS:
        if first in arrays and second in arrays and index is not None:
            if index.ndim == 1:  # of each keypoint of the first image
                index = np.stack([np.arange(len(index)), index], 1)[index >= 0]
            if index.ndim != 2 or index.shape[1] != 2 or index.dtype.kind not in "iu":
                raise ValueError(
                    f"matches: expected integers of shape (M, 2) or (n0,), got {index.dtype} {index.shape}"
                )
            if index.size and index.min() < 0:
                raise ValueError("matches: a number of a keypoint is negative")
            return arrays[first][index[:, 0]], arrays[second][index[:, 1]]
    raise ValueError(
        f"no matches in it: expected x0 and x1, or points0 and points1, or keypoints0, keypoints1 and matches; "
        f"it has {', '.join(arrays) or 'nothing'}"
    )


def _coordinates(points: Array) -> Array:
    if points.ndim != 2 or points.shape[1] != 2 or points.dtype.kind not in "iuf":
        raise ValueError(f"points: expected numbers of shape (N, 2), got {points.dtype} {points.shape}")
    return points.astype(np.float64)


def _camera(arrays: dict[str, Array], cameras: Cameras, sizes: Sequence[tuple[int, int]], which: int) -> Intrinsics:
    size = sizes[min(which, len(sizes) - 1)] if sizes else None
    stored = arrays.get(f"size{which}")
    if size is None and stored is not None and stored.size == 2 and stored.dtype.kind in "iuf":
        width, height = stored.ravel().tolist()
        if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
            raise ValueError(f"size{which}: expected width and height in pixels, got {width:g} and {height:g}")
        size = (int(width), int(height))
    if cameras.files or size is not None:
        given = cameras.of(which, size)
        if given is not None:
            return given
    elif cameras.focal or cameras.fov:
        raise ValueError(
            "it does not tell the size of the images, which --focal and --fov need: give --size WIDTHxHEIGHT"
        )
    for name in (f"K{which}", "K"):
        if name in arrays:
            return intrinsics.from_matrix(arrays[name], f"{name} in the file")
    if size is None:
        raise ValueError(
            "its points are in pixels, but it has no K0 and K1 and no size0 and size1: "
            "give --intrinsics FILE, or --size WIDTHxHEIGHT with --focal or --fov or alone"
        )
    return intrinsics.fallback(*size)
