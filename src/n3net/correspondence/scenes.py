"""Images with known cameras, and the matches between them.

| file            | camera                                                                                        |
|-----------------|-----------------------------------------------------------------------------------------------|
| cameras.json    | ``images``: {name: {K, R, t, width, height, k1, k2, p1, p2}}, ``x_cam = R X + t``               |
| transforms.json | of NeRF programs: camera-to-world matrices, OpenGL's axes, fl_x, fl_y, cx, cy, w, h, k1 ... p2   |

Pixel centres are at integer coordinates. K is scaled where an image has not the size that is stated. Lens
distortion is undone for the points, not for the images.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3net.correspondence import geometry, intrinsics
from n3net.correspondence.matchfile import Pair
from n3net.errors import UserError

Array = NDArray[np.float64]

FILES = ("cameras.json", "transforms.json")
LEAST = 30  # mutual matches that agree with the pose, for two images to show the same things
MAX_BYTES = 200_000_000
OPENGL = np.diag([1.0, -1.0, -1.0])  # OpenGL looks along -z, with y up


@dataclass(frozen=True)
class PlacedImage:
    """An image and its camera, ``x_cam = R X + t``; lens distortion k1, k2, p1, p2 as in OpenCV.

    ``size`` is the width and height that K is for, None where nobody said.
    """

    path: Path
    k: Array
    rotation: Array
    translation: Array
    distortion: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    size: tuple[int, int] | None = None

    def of_size(self, size: tuple[int, int]) -> PlacedImage:
        """With K for an image of this width and height; refused where the sides are not as they were."""
        if self.size is None:
            return self
        camera = intrinsics.resized(intrinsics.Intrinsics(self.k, str(self.path)), self.size, size)
        return replace(self, k=camera.k, size=size)

    def calibrate(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Pixels (N, 2) -> calibrated coordinates without distortion."""
        x = np.c_[np.asarray(pixels, np.float64), np.ones(len(pixels))] @ np.linalg.inv(self.k).T
        return undistort(x[:, :2], self.distortion).astype(np.float32)


def undistort(points: Array, distortion: Sequence[float], steps: int = 20) -> Array:
    """Calibrated points (N, 2) as a lens without distortion would have seen them, by fixed-point iteration.

    Not by OpenCV: to be exact it needs more than its five steps, which version 4 and 5 ask for by different names.
    """
    k1, k2, p1, p2 = distortion
    if not any(distortion):
        return points
    x, y = points.T
    for _ in range(steps):
        r2 = x * x + y * y
        radial = np.maximum(1 + k1 * r2 + k2 * r2 * r2, 0.1)
        x, y = (
            (points[:, 0] - 2 * p1 * x * y - p2 * (r2 + 2 * x * x)) / radial,
            (points[:, 1] - 2 * p2 * x * y - p1 * (r2 + 2 * y * y)) / radial,
        )
    return np.stack([x, y], 1)


def read_scene(place: str | Path) -> list[PlacedImage]:
    """The views of a folder that holds one of ``FILES``, or of such a file itself."""
    place = Path(place)
    found = [place / name for name in FILES if (place / name).is_file()] if place.is_dir() else [place]
    if not found or not found[0].is_file():
        raise UserError(f"{place}: no cameras there; expected {' or '.join(FILES)}")
    path = found[0]
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path}: {path.stat().st_size} bytes are too many for a file of cameras")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from error
    read = _transforms if path.name == "transforms.json" else _cameras
    try:
        views = read(path.parent, text)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise UserError(f"{path}: not what was expected ({type(error).__name__}: {error})") from error
    for view in views:
        if not all(np.isfinite(a).all() for a in (view.k, view.rotation, view.translation, view.distortion)):
            raise UserError(f"{path}: the camera of {view.path.name} has values that are no numbers")
        if not np.allclose(view.rotation @ view.rotation.T, np.eye(3), atol=1e-3):
            raise UserError(f"{path}: R of {view.path.name} is no rotation")
        intrinsics.from_matrix(view.k, f"{path}, {view.path.name}")
    there = [view for view in views if view.path.is_file()]  # a camera whose image was left out is no harm
    if len(there) < 2:
        raise UserError(f"{path}: {len(there)} of its {len(views)} images are there; pairs need two")
    return there


def _cameras(folder: Path, text: str) -> list[PlacedImage]:
    views = []
    for name, camera in sorted(json.loads(text)["images"].items()):
        pose = _matrix(camera["R"]), _vector(camera["t"])
        size = _size(camera, "width", "height")
        views.append(PlacedImage(_image(folder, name), _matrix(camera["K"]), *pose, _distortion(camera), size))
    return views


def _transforms(folder: Path, text: str) -> list[PlacedImage]:
    document = json.loads(text)
    views = []
    for frame in sorted(document["frames"], key=lambda f: str(f["file_path"])):
        value = {**document, **frame}  # a frame may have a camera of its own
        fx = float(value["fl_x"])
        k = np.array([[fx, 0, float(value["cx"])], [0, float(value.get("fl_y", fx)), float(value["cy"])], [0, 0, 1]])
        k[:2, 2] -= 0.5  # their pixels have corners at integer coordinates
        pose = np.asarray(frame["transform_matrix"], np.float64)  # camera to world
        rotation = OPENGL @ pose[:3, :3].T
        image, lens, size = _image(folder, frame["file_path"]), _distortion(value), _size(value, "w", "h")
        views.append(PlacedImage(image, k, rotation, -rotation @ pose[:3, 3], lens, size))
    return views


def images_in(folder: Path) -> list[Path]:
    """The image files of a folder, by name."""
    from n3net.io import SUFFIXES

    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def _image(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / "images" / name):
        if path.is_file():
            return path
    return folder / name


def _distortion(camera: dict[str, Any]) -> tuple[float, float, float, float]:
    k1, k2, p1, p2 = (float(camera.get(key, 0.0)) for key in intrinsics.LENS)
    return k1, k2, p1, p2


def _size(camera: dict[str, Any], width: str, height: str) -> tuple[int, int] | None:
    return (int(camera[width]), int(camera[height])) if {width, height} <= camera.keys() else None


def _matrix(value: Any) -> Array:
    return np.asarray(value, np.float64).reshape(3, 3)


def _vector(value: Any) -> Array:
    return np.asarray(value, np.float64).reshape(3)


def scene_pairs(
    views: Sequence[PlacedImage],
    *,
    limit: int = 2000,
    least: int = LEAST,
    most: float = 1.0,
    scales: Sequence[float] = (1.0,),
    stride: int = 1,
    progress: Callable[[float, str], None] = lambda part, what: None,
) -> Iterator[Pair]:
    """The matches of all ordered pairs of views that show the same things.

    Args:
        views: of one scene.
        limit: keypoints of an image.
        least: mutual matches that must agree with the pose.
        most: part of all matches that these may be, for pairs that are hard.
        scales: sizes of the images, as parts of their own; each view is matched in each size with all others in each.
        stride: only every ``stride``-th of the candidate pairs, evenly chosen.
        progress: is told the part that is done, 0 to 1, and of what.

    Raises:
        UserError: no two of the views do, or an image cannot be read or is not of the shape that its camera is for.
    """
    from n3net.correspondence.sift import detect, nearest
    from n3net.io import read_image

    found, count = [], 0
    for i, view in enumerate(views):
        progress(0.3 * i / len(views), f"keypoints of {view.path.name}")
        try:
            pixels = read_image(view.path).pixels
        except UserError as error:
            raise UserError(f"{view.path}: {error}") from None
        fitted = view.of_size((pixels.shape[1], pixels.shape[0]))
        for scale in scales:
            keys = detect(_scaled(pixels, scale), limit)
            found.append((fitted, keys.descriptors, fitted.calibrate((keys.xy + 0.5) / scale - 0.5)))
    candidates = [(first, second) for first in found for second in found if first[0] is not second[0]][::stride]
    for n, ((a, descriptors0, x0), (b, descriptors1, x1)) in enumerate(candidates):
        progress(0.3 + 0.7 * n / len(candidates), f"{a.path.name} and {b.path.name}")
        index, ratio, mutual = nearest(descriptors0, descriptors1)
        rotation, translation = geometry.relative_pose(a.rotation, a.translation, b.rotation, b.translation)
        if not len(index) or not translation.any():
            continue
        names = (a.path.name, b.path.name)
        pair = Pair(x0[: len(index)], x1[index], ratio, mutual, rotation, translation, names)
        if least <= agreeing(pair) <= most * len(pair):
            count += 1
            yield pair
    if not count:
        raise UserError(
            f"no two of these {len(views)} images show enough of the same: at least {least} mutual matches would have "
            "to agree with the cameras" + (f", and at most {most:.0%} of all" if most < 1 else "")
        )


def _scaled(pixels: NDArray[Any], scale: float) -> NDArray[Any]:
    if scale == 1:
        return pixels
    from n3net.correspondence.sift import opencv

    cv2 = opencv()
    size = [max(1, round(n * scale)) for n in pixels.shape[1::-1]]
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA))


def agreeing(pair: Pair) -> int:
    """Mutual matches that agree with the true pose, in excess of what chance gives."""
    right = geometry.labels(geometry.essential(*pair.pose), pair.x0, pair.x1)
    mutual = np.ones(len(pair), np.bool_) if pair.mutual is None else pair.mutual
    chance = float(right[~mutual].mean()) if (~mutual).any() else 0.0
    return int((right & mutual).sum() - chance * mutual.sum())
