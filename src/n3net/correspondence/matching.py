"""From two images to matches that can be trusted, and to the pose of the cameras."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from n3net.correspondence import intrinsics
from n3net.correspondence.estimators import AGREES_WITHIN, Pose
from n3net.correspondence.filtering import Filtered, filter_pair
from n3net.correspondence.intrinsics import Intrinsics
from n3net.correspondence.matchfile import Pair
from n3net.correspondence.sift import LIMIT, detect, nearest
from n3net.io import MAX_PIXELS, read_image
from n3net.io.arrays import as_image
from n3net.io.orientation import upright

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class View:
    """One image of a pair: its keypoints and its camera."""

    name: str
    size: tuple[int, int]  # width, height
    keypoints: npt.NDArray[np.float32]  # (n, 2) pixels
    camera: Intrinsics


@dataclass(frozen=True)
class Matches:
    """Matches of two images and what became of them; what :func:`match` returns.

    Args:
        views: both images.
        index: (N, 2) numbers of the keypoints that match.
        ratio, mutual: (N,) what their descriptors say, see :class:`n3net.correspondence.matchfile.Pair`.
        result: scores, which are kept, the pose, and notes.
        seconds: of each step.
    """

    views: tuple[View, View]
    index: npt.NDArray[np.int64]
    ratio: npt.NDArray[np.float32]
    mutual: npt.NDArray[np.bool_]
    result: Filtered
    seconds: Mapping[str, float]

    @property
    def points(self) -> tuple[Array, Array]:
        """(N, 2) pixels in both images."""
        first, second = self.views
        return first.keypoints[self.index[:, 0]], second.keypoints[self.index[:, 1]]

    @property
    def pose(self) -> Pose | None:
        return self.result.pose

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        return self.result.kept

    @property
    def scores(self) -> npt.NDArray[np.float32]:
        return self.result.scores

    @property
    def inliers(self) -> npt.NDArray[np.bool_]:
        """(N,) the kept matches that agree with the pose."""
        return self.pose.inliers if self.pose is not None else np.zeros(len(self.index), bool)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know: about the cameras, the matches, the pose."""
        unknown = [view.name for view in self.views if not view.camera.known]
        camera = [f"camera of {' and '.join(unknown)} {intrinsics.FALLBACK}"] if unknown else []
        empty = [f"no keypoints in {view.name}" for view in self.views if len(view.keypoints) == 0]
        return (*camera, *empty, *self.result.notes)


def match(
    image0: str | Path | Array,
    image1: str | Path | Array,
    k0: Array | None = None,
    k1: Array | None = None,
    *,
    model: str | Path | nn.Module | None = None,
    estimator: str = "ransac",
    threshold: float = AGREES_WITHIN,
    limit: int = LIMIT,
    mutual: bool = False,
    device: str | torch.device = "cpu",
) -> Matches:
    """Match two images: SIFT, nearest neighbours, a network that tells right from wrong, the relative pose.

    Args:
        image0, image1: files, or arrays (H, W) or (H, W, 3) of uint8, uint16 or floats. They may differ in size.
        k0, k1: the cameras' matrices, (3, 3) in pixels. By default from the EXIF data of a file, otherwise
            :func:`n3net.correspondence.intrinsics.fallback`; the result's notes say so.
        model: a network for matches, or what :func:`n3net.load` takes. By default the weights "match".
        estimator: of the pose, "ransac", "magsac" or "poselib".
        threshold: of the estimator, see :func:`n3net.correspondence.estimators.estimate`.
        limit: keypoints of an image, at most.
        mutual: keep only matches of which each is the other's nearest: fewer, but better ones for the pose.
        device: where the network runs.
    """
    views = [look(image, k, limit, f"image {i}") for i, (image, k) in enumerate(((image0, k0), (image1, k1)))]
    options: dict[str, Any] = {"estimator": estimator, "threshold": threshold, "mutual": mutual, "device": device}
    return match_views(views[0], views[1], model, **options)


@dataclass(frozen=True)
class Seen:
    """An image after detection: what can be matched with others."""

    view: View
    descriptors: npt.NDArray[np.float32]
    seconds: float


def look(image: str | Path | Array, k: Array | Intrinsics | None, limit: int = LIMIT, name: str = "image") -> Seen:
    """Keypoints and camera of an image."""
    if isinstance(image, str | Path):
        pixels, camera = open_image(Path(image))
        name = Path(image).name
    else:
        pixels, camera = as_image(image, name), None
    height, width = pixels.shape[:2]
    if isinstance(k, Intrinsics):
        camera = k
    elif k is not None:
        camera = intrinsics.from_matrix(k, "given")
    start = time.perf_counter()
    found = detect(pixels, limit)
    seconds = time.perf_counter() - start
    view = View(name, (width, height), found.xy, camera or intrinsics.fallback(width, height))
    return Seen(view, found.descriptors, seconds)


def open_image(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[Array, Intrinsics | None]:
    """Pixels of a file, upright, and the camera that its EXIF data tells of."""
    picture = read_image(path, max_pixels)
    pixels = upright(picture.pixels, picture.metadata.exif)
    return pixels, intrinsics.from_exif(picture.metadata.exif, pixels.shape[1], pixels.shape[0])


def match_views(
    seen0: Seen,
    seen1: Seen,
    model: str | Path | nn.Module | None = None,
    *,
    estimator: str = "ransac",
    threshold: float = AGREES_WITHIN,
    mutual: bool = False,
    device: str | torch.device = "cpu",
) -> Matches:
    """Match two images after detection."""
    start = time.perf_counter()
    index, ratio, each_other = nearest(seen0.descriptors, seen1.descriptors)
    pairs = np.stack([np.arange(len(index)), index], 1)  # (N, 2)
    found = time.perf_counter()
    views = (seen0.view, seen1.view)
    x0, x1 = (view.camera.calibrate(view.keypoints[pairs[:, i]]) for i, view in enumerate(views))
    pair = Pair(x0, x1, ratio, each_other, names=(views[0].name, views[1].name))
    result = filter_pair(pair, model, estimator=estimator, threshold=threshold, mutual=mutual, device=device)
    seconds = {
        "sift": seen0.seconds + seen1.seconds,
        "nearest neighbours": found - start,
        **result.seconds,
    }
    return Matches(views, pairs, ratio, each_other, result, seconds)
