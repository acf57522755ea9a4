"""Cameras of photos that come without: structure from motion with COLMAP, through pycolmap."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from n3net.correspondence.intrinsics import LENS
from n3net.correspondence.scenes import PlacedImage, images_in
from n3net.errors import UserError
from n3net.io.files import writing

MODEL = "SIMPLE_RADIAL"  # f, cx, cy, k1: what a handful of photos can determine
LEAST = 3  # photos that must find their place
STEPS = {"keypoints": 0.0, "matching": 0.3, "reconstruction": 0.6}  # parts of the whole where they begin

Progress = Callable[[float, str], None]


def pycolmap() -> Any:
    """The module of that name, or how to get it."""
    try:
        import pycolmap as module
    except ImportError:
        raise UserError("this needs pycolmap: pip install 'n3net[colmap]'") from None
    return module


def reconstruct(
    folder: str | Path,
    *,
    one_camera: bool = True,
    features: int = 4096,
    seed: int = 0,
    progress: Progress = lambda part, what: None,
) -> list[PlacedImage]:
    """Photos of one scene -> those whose place was found, with their cameras.

    Args:
        folder: of the photos.
        one_camera: whether all photos of the same size were taken by one camera at one focal length.
        features: keypoints of a photo.
        seed: of what is random in it.
        progress: is told the part that is done, 0 to 1, and of what.

    Raises:
        UserError: no reconstruction was found, and why that may be; or a photo cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder")
    paths = images_in(folder)
    if len(paths) < LEAST:
        raise UserError(f"{folder}: {len(paths)} photos; structure from motion needs at least {LEAST} of one scene")
    same_camera = len({_size(path) for path in paths}) == 1 and one_camera
    _refuse_turned(paths)
    colmap = pycolmap()
    with _quiet(colmap), tempfile.TemporaryDirectory(prefix="n3net-sfm-") as work:
        models = _run(colmap, folder, [path.name for path in paths], Path(work), same_camera, features, seed, progress)
    placed = {number: model.num_reg_images() for number, model in models.items()}
    if not placed or max(placed.values()) < LEAST:
        raise UserError(
            f"{folder}: no reconstruction of these {len(paths)} photos was found"
            + (f" (at most {max(placed.values())} fit together)" if placed else ", not even of two")
            + ". Structure from motion needs photos of a still scene, from places that lie side by side, with most of "
            "what one shows in the next; photos along the direction of view, of a plane or from one place do not do"
        )
    best = models[max(placed, key=lambda number: placed[number])]
    return _views(folder, best)


def _run(
    colmap: Any,
    folder: Path,
    names: Sequence[str],
    work: Path,
    same_camera: bool,
    features: int,
    seed: int,
    progress: Progress,
) -> dict[int, Any]:
    database = work / "database.db"
    colmap.set_random_seed(seed)
    reader, extraction = colmap.ImageReaderOptions(), colmap.FeatureExtractionOptions()
    reader.camera_model = MODEL
    extraction.sift.max_num_features = features
    mode = colmap.CameraMode.SINGLE if same_camera else colmap.CameraMode.AUTO
    options = colmap.IncrementalPipelineOptions()
    options.random_seed, options.min_model_size = seed, LEAST
    count = 2

    def next_image() -> None:
        nonlocal count
        count += 1
        start = STEPS["reconstruction"]
        progress(start + (1 - start) * min(count / len(names), 1), f"{count} of {len(names)} photos placed")

    try:
        progress(STEPS["keypoints"], f"keypoints of {len(names)} photos")
        colmap.extract_features(
            database,
            folder,
            image_names=list(names),
            camera_mode=mode,
            reader_options=reader,
            extraction_options=extraction,
            device=colmap.Device.cpu,
        )
        progress(STEPS["matching"], f"matching {len(names) * (len(names) - 1) // 2} pairs of photos")
        colmap.match_exhaustive(database, device=colmap.Device.cpu)
        progress(STEPS["reconstruction"], "reconstruction")
        found: dict[int, Any] = colmap.incremental_mapping(
            database, folder, work, options, next_image_callback=next_image
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{folder}: COLMAP failed: {error}") from error
    return found


def _size(path: Path) -> tuple[int, int]:
    """Width and height."""
    from n3net.io import image_size

    try:
        height, width = image_size(path)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return width, height


def _refuse_turned(paths: Sequence[Path]) -> None:
    """COLMAP takes the pixels of TIFF files as they are stored; we turn them as the file says."""
    from PIL import Image

    from n3net.io.orientation import ORIENTATION

    for path in paths:
        with Image.open(path) as image:
            if image.format == "TIFF" and image.getexif().get(ORIENTATION, 1) != 1:
                raise UserError(f"{path}: a TIFF file whose pixels are stored turned; save it upright and try again")


def _views(folder: Path, model: Any) -> list[PlacedImage]:
    views = []
    for number in model.reg_image_ids():
        image = model.image(number)
        camera, pose = model.camera(image.camera_id), image.cam_from_world()
        focal, x, y, k1 = camera.params
        k = np.array([[focal, 0, x - 0.5], [0, focal, y - 0.5], [0, 0, 1]])  # theirs has pixel corners at integers
        rotation = np.asarray(pose.rotation.matrix(), np.float64)
        translation, size = np.asarray(pose.translation, np.float64), (camera.width, camera.height)
        views.append(PlacedImage(folder / image.name, k, rotation, translation, (k1, 0, 0, 0), size))
    return sorted(views, key=lambda view: view.path.name)


def write_cameras(path: str | Path, views: Sequence[PlacedImage], force: bool = False) -> None:
    """A cameras.json, which :func:`n3net.correspondence.scenes.read_scene` reads; it belongs beside the photos."""
    images = {}
    for view in views:
        width, height = view.size or _size(view.path)
        lens = dict(zip(LENS, view.distortion, strict=True))
        pose = {"K": view.k.tolist(), "R": view.rotation.tolist(), "t": view.translation.tolist()}
        images[view.path.name] = {"width": width, "height": height, **pose, **lens}
    convention = "x_cam = R X + t; pixel = K x_cam after the distortion k1, k2, p1, p2; pixel centres at integers"
    with writing(Path(path), force) as file:
        file.write(json.dumps({"convention": convention, "images": images}, indent=1).encode())


@contextmanager
def _quiet(colmap: Any) -> Iterator[None]:
    """Without COLMAP's log: what went wrong is said in our words."""
    level, stderr = colmap.logging.minloglevel, colmap.logging.logtostderr
    colmap.logging.minloglevel = int(colmap.logging.Level.FATAL)
    try:
        yield
    finally:
        colmap.logging.minloglevel, colmap.logging.logtostderr = level, stderr
