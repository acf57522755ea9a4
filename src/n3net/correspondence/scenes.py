"""Images with known cameras, and the matches between them.

| file            | camera                                                                                        |
|-----------------|-----------------------------------------------------------------------------------------------|
| cameras.json    | ``images``: {name: {K, R, t, width, height, k1, k2, p1, p2}}, ``x_cam = R X + t``               |
| transforms.json | as of NeRF programs: camera-to-world matrices with OpenGL's axes, fl_x, fl_y, cx, cy, k1 ... p2 |
| bundle.out      | of Bundler: f, k1, k2, R, t; the camera looks along -z, the image is to its centre             |

Pixel centres are at integer coordinates. Lens distortion is undone for the points, not for the images.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3net.correspondence import geometry
from n3net.correspondence.matchfile import Pair
from n3net.errors import UserError

Array = NDArray[np.float64]

FILES = ("cameras.json", "transforms.json", "bundle.out")
LEAST = 30  # mutual matches that agree with the pose, for two images to show the same things
MAX_BYTES = 200_000_000
OPENGL = np.diag([1.0, -1.0, -1.0])  # OpenGL and Bundler look along -z with y up


@dataclass(frozen=True)
class View:
    """An image and its camera, ``x_cam = R X + t``; lens distortion k1, k2, p1, p2 as in OpenCV."""

    path: Path
    k: Array
    rotation: Array
    translation: Array
    distortion: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    def calibrate(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Pixels (N, 2) -> calibrated coordinates without distortion."""
        x = np.c_[np.asarray(pixels, np.float64), np.ones(len(pixels))] @ np.linalg.inv(self.k).T
        return undistort(x[:, :2], self.distortion).astype(np.float32)


def undistort(points: Array, distortion: Sequence[float], steps: int = 20) -> Array:
    """Calibrated points (N, 2) as a lens without distortion would have seen them, by fixed-point iteration."""
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


def read_scene(place: str | Path) -> list[View]:
    """The views of a folder that holds one of ``FILES``, or of such a file itself."""
    place = Path(place)
    found = [place / name for name in FILES if (place / name).is_file()] if place.is_dir() else [place]
    if not found or not found[0].is_file():
        raise UserError(f"{place}: no cameras there; expected {', '.join(FILES[:-1])} or {FILES[-1]}")
    path = found[0]
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path}: {path.stat().st_size} bytes are too many for a file of cameras")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from error
    read = {"transforms.json": _transforms, "bundle.out": _bundle}.get(path.name, _cameras)
    try:
        views = read(path.parent, text)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, np.linalg.LinAlgError) as error:
        raise UserError(f"{path}: not what was expected ({type(error).__name__}: {error})") from error
    for view in views:
        if not all(np.isfinite(a).all() for a in (view.k, view.rotation, view.translation, view.distortion)):
            raise UserError(f"{path}: the camera of {view.path.name} has values that are no numbers")
        if not np.allclose(view.rotation @ view.rotation.T, np.eye(3), atol=1e-3):
            raise UserError(f"{path}: R of {view.path.name} is no rotation")
    if len(views) < 2:
        raise UserError(f"{path}: {len(views)} cameras; pairs need two")
    return views


def _cameras(folder: Path, text: str) -> list[View]:
    views = []
    for name, camera in sorted(json.loads(text)["images"].items()):
        lens = tuple(float(camera.get(key, 0.0)) for key in ("k1", "k2", "p1", "p2"))
        views.append(View(_image(folder, name), _matrix(camera["K"]), _matrix(camera["R"]), _vector(camera["t"]), lens))
    return views


def _transforms(folder: Path, text: str) -> list[View]:
    document = json.loads(text)
    views = []
    for frame in sorted(document["frames"], key=lambda f: str(f["file_path"])):
        value = {**document, **frame}  # a frame may have a camera of its own
        fx = float(value["fl_x"])
        k = np.array([[fx, 0, float(value["cx"])], [0, float(value.get("fl_y", fx)), float(value["cy"])], [0, 0, 1]])
        k[:2, 2] -= 0.5  # their pixels have corners at integer coordinates
        lens = tuple(float(value.get(key, 0.0)) for key in ("k1", "k2", "p1", "p2"))
        pose = np.asarray(frame["transform_matrix"], np.float64)  # camera to world
        rotation = OPENGL @ pose[:3, :3].T
        views.append(View(_image(folder, frame["file_path"]), k, rotation, -rotation @ pose[:3, 3], lens))
    return views


def _bundle(folder: Path, text: str) -> list[View]:
    from n3net.images import image_size

    numbers = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    count = int(numbers[0].split()[0])
    paths = _listed(folder, count)
    views = []
    for i in range(count):
        focal, k1, k2 = map(float, numbers[1 + 5 * i].split())
        if focal == 0:  # a camera that Bundler could not place
            continue
        rows = np.array([[float(v) for v in line.split()] for line in numbers[2 + 5 * i : 6 + 5 * i]])
        width, height = image_size(paths[i])
        k = np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1]])
        views.append(View(paths[i], k, OPENGL @ rows[:3], OPENGL @ rows[3], (k1, k2, 0.0, 0.0)))
    return views


def _listed(folder: Path, count: int) -> list[Path]:
    """The images of a bundle.out: those of its list.txt, or all in the order of their names."""
    listing = folder / "list.txt"
    if listing.is_file():
        lines = listing.read_text(encoding="utf-8").splitlines()
        paths = [_image(folder, line.split()[0]) for line in lines if line.strip()]
    else:
        paths = images_in(folder / "images" if (folder / "images").is_dir() else folder)
    if len(paths) != count:
        raise ValueError(f"{count} cameras, but {len(paths)} images")
    return paths


def images_in(folder: Path) -> list[Path]:
    """The image files of a folder, by name."""
    from n3net.images import SUFFIXES

    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def _image(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / "images" / name):
        if path.is_file():
            return path
    raise UserError(f"{folder / name}: there is no such image, but there is a camera for it")


def _matrix(value: Any) -> Array:
    return np.asarray(value, np.float64).reshape(3, 3)


def _vector(value: Any) -> Array:
    return np.asarray(value, np.float64).reshape(3)


def scene_pairs(
    views: Sequence[View],
    *,
    limit: int = 2000,
    least: int = LEAST,
    stride: int = 1,
    progress: Callable[[float, str], None] = lambda part, what: None,
) -> Iterator[Pair]:
    """The matches of all ordered pairs of views that show the same things.

    Args:
        views: of one scene.
        limit: keypoints of an image.
        least: mutual matches that must agree with the pose.
        stride: only every ``stride``-th of the candidate pairs, evenly chosen.
        progress: is told the part that is done, 0 to 1, and of what.
    """
    from n3net.correspondence.sift import detect, nearest
    from n3net.images import read_image

    found = []
    for i, view in enumerate(views):
        progress(0.3 * i / len(views), f"keypoints of {view.path.name}")
        keys = detect(read_image(view.path).pixels, limit)
        found.append((keys, view.calibrate(keys.xy)))
    candidates = [(i, j) for i in range(len(views)) for j in range(len(views)) if i != j][::stride]
    for n, (i, j) in enumerate(candidates):
        progress(0.3 + 0.7 * n / len(candidates), f"{views[i].path.name} and {views[j].path.name}")
        (keys0, x0), (keys1, x1) = found[i], found[j]
        index, ratio, mutual = nearest(keys0.descriptors, keys1.descriptors)
        a, b = views[i], views[j]
        rotation, translation = geometry.relative_pose(a.rotation, a.translation, b.rotation, b.translation)
        if not len(index) or not translation.any():
            continue
        names = (a.path.name, b.path.name)
        pair = Pair(x0[: len(index)], x1[index], ratio, mutual, rotation, translation, names)
        if agreeing(pair) >= least:
            yield pair


def agreeing(pair: Pair) -> int:
    """Mutual matches that agree with the true pose, in excess of what chance gives."""
    if pair.rotation is None or pair.translation is None:
        raise ValueError("pair: expected one with a pose")
    right = geometry.labels(geometry.essential(pair.rotation, pair.translation), pair.x0, pair.x1)
    mutual = np.ones(len(pair), np.bool_) if pair.mutual is None else pair.mutual
    chance = float(right[~mutual].mean()) if (~mutual).any() else 0.0
    return int((right & mutual).sum() - chance * mutual.sum())
