"""Drop-ins for other libraries: OpenCV's DMatch, tensors as kornia has them, COLMAP databases through pycolmap."""

from __future__ import annotations

import glob
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from n3net.correspondence.estimators import Pose
from n3net.correspondence.filtering import Filtered, filter_network, filter_pair, score
from n3net.correspondence.intrinsics import from_matrix
from n3net.correspondence.matchfile import Pair
from n3net.correspondence.matching import Matches, View
from n3net.correspondence.sfm import pycolmap
from n3net.correspondence.sift import nearest
from n3net.errors import UserError
from n3net.io.files import placing
from n3net.io.isolation import WorkerError, isolated

Array = npt.NDArray[Any]
Model = str | Path | nn.Module | None

SQUARE = 0.01  # difference of the focal lengths along rows and columns up to which pixels are taken for squares
CORNER = 0.5  # COLMAP's coordinates begin at the corner of the first pixel, ours in its centre


def filter_opencv(
    keypoints0: Sequence[Any],
    keypoints1: Sequence[Any],
    matches: Sequence[Any],
    k0: Array,
    k1: Array,
    *,
    descriptors: tuple[Array | None, Array | None] | None = None,
    model: Model = None,
) -> list[Any]:
    """The good ones among OpenCV's matches.

    Args:
        keypoints0, keypoints1: ``cv2.KeyPoint`` of both images.
        matches: ``cv2.DMatch`` as ``match`` gives them, or sequences of them, best first, as ``knnMatch`` does.
            ``queryIdx`` is of the first image.
        k0, k1: cameras, (3, 3).
        descriptors: of all keypoints, (n, C) each, to be compared by Euclidean distance as SIFT's are. With them the
            network knows how distinct a match is. None is for no keypoints, as in OpenCV.
        model: network for matches, name or file; by default the weights "match".

    Returns:
        A list of ``cv2.DMatch``, in the order they were given.
    """
    best = [m[0] if isinstance(m, Sequence) else m for m in matches if not isinstance(m, Sequence) or len(m)]
    index = np.array([(m.queryIdx, m.trainIdx) for m in best], np.int64).reshape(-1, 2)
    points = [np.array([k.pt for k in keypoints], np.float64).reshape(-1, 2) for keypoints in (keypoints0, keypoints1)]
    kept = _good(index, points, (k0, k1), descriptors, model)
    return [m for m, good in zip(best, kept, strict=True) if good]


def filter_tensors(
    distances: Tensor,
    indices: Tensor,
    keypoints0: Tensor,
    keypoints1: Tensor,
    k0: Tensor,
    k1: Tensor,
    *,
    descriptors: tuple[Tensor, Tensor] | None = None,
    model: Model = None,
) -> tuple[Tensor, Tensor]:
    """The good ones among matches as kornia's matchers return them, in the same form and on the same device.

    Args:
        distances: (M, 1) of ``kornia.feature.match_nn`` and the like.
        indices: (M, 2) numbers of keypoints.
        keypoints0, keypoints1: pixels, (n, 2) or (1, n, 2), or local affine frames (1, n, 2, 3), whose last columns
            they are.
        k0, k1: cameras, (3, 3) or (1, 3, 3).
        descriptors, model: as of :func:`filter_opencv`.
    """
    points = [_array(_centers(keypoints)) for keypoints in (keypoints0, keypoints1)]
    looks = None if descriptors is None else (_array(descriptors[0]), _array(descriptors[1]))
    cameras = (_array(k0.reshape(3, 3)), _array(k1.reshape(3, 3)))
    kept = torch.from_numpy(_good(_array(indices), points, cameras, looks, model)).to(indices.device)
    return distances[kept], indices[kept]


def _good(
    index: Array,
    points: Sequence[Array],
    k: tuple[Array, Array],
    descriptors: tuple[Array | None, Array | None] | None,
    model: Model,
) -> npt.NDArray[np.bool_]:
    """Which matches (M, 2) of keypoints, (n, 2) pixels each, are good, (M,)."""
    x0, x1 = (from_matrix(k[i], f"k{i}").calibrate(points[i][index[:, i]]) for i in range(2))
    d0, d1 = descriptors or (None, None)
    ratio, mutual = (None, None) if d0 is None or d1 is None else _looks(index, d0, d1)
    return np.asarray(score(Pair(x0, x1, ratio, mutual), filter_network(model)) >= 0)


def _looks(index: Array, d0: Array, d1: Array) -> tuple[Array, Array]:
    """What descriptors say about matches (M, 2): ratio and mutual, 1 and false for those that are not nearest."""
    best, ratio, mutual = nearest(d0, d1)
    if len(best) == 0:
        return np.ones(len(index), np.float32), np.zeros(len(index), bool)
    first = index[:, 0]
    same = best[first] == index[:, 1]
    return np.where(same, ratio[first], 1).astype(np.float32), same & mutual[first]


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy()


def _centers(keypoints: Tensor) -> Tensor:
    """(n, 2) pixels of points or frames."""
    points = keypoints[..., 2] if keypoints.dim() >= 3 and keypoints.shape[-2:] == (2, 3) else keypoints
    if points.shape[-1] != 2 or points.dim() - 2 not in (0, 1) or (points.dim() == 3 and points.shape[0] != 1):
        raise ValueError(f"keypoints: expected shape (n, 2), (1, n, 2) or (1, n, 2, 3), got {tuple(keypoints.shape)}")
    return points.reshape(-1, 2)


@dataclass(frozen=True)
class Counts:
    """What became of a pair of images in a database."""

    images: tuple[str, str]
    matches: int
    kept: int
    inliers: int


def write_database(path: str | Path, results: Iterable[Matches], force: bool = False) -> int:
    """Write a COLMAP database with images, cameras, keypoints, kept matches and verified two-view geometries.

    Images whose camera is known to be the same, of the same K and size, share one; others have one each. Lenses are
    radial (SIMPLE_RADIAL, or OPENCV where pixels are not squares) with no distortion to begin with, which COLMAP's
    mapper refines, and the focal length is marked as known where it is. Images are told apart by name and must have
    the same keypoints in all results. Pairs are stored in the order of COLMAP's numbers of their images.

    Returns:
        Pairs written.
    """
    count = 0
    with _new_database(Path(path), force) as database:
        images: dict[str, tuple[int, View]] = {}
        cameras: dict[Any, tuple[Any, int]] = {}
        pairs: set[tuple[int, int]] = set()
        for matches in results:
            numbers = []
            for view in matches.views:
                if view.name not in images:
                    images[view.name] = (_add_image(database, view, cameras), view)
                number, known = images[view.name]
                if not np.array_equal(known.keypoints, view.keypoints):
                    raise UserError(f"{view.name}: its keypoints are not the same in all pairs; match them in one run")
                numbers.append(number)
            first, second = numbers
            if first == second or (min(numbers), max(numbers)) in pairs:
                continue  # a database has one entry for a pair, whatever its order
            pairs.add((min(numbers), max(numbers)))
            _add_pair(database, first, second, matches.index, matches.result)
            count += 1
    return count


def filter_database(
    source: str | Path,
    target: str | Path,
    model: Model = None,
    *,
    estimator: str = "ransac",
    threshold: float = 1e-3,
    device: str = "cpu",
    force: bool = False,
) -> Iterator[Counts]:
    """Copy a COLMAP database, with the good ones of its matches and with two-view geometries that fit to them.

    Keypoints, descriptors and cameras, of whatever model, are COLMAP's own, so run its feature extractor and matcher
    before. Pairs are yielded as they are done; the file appears under its name at the end.
    """
    colmap = pycolmap()
    source, target = Path(source), Path(target)
    if not source.is_file():
        raise UserError(f"{source}: there is no such file")
    with source.open("rb") as file:
        if file.read(15) != b"SQLite format 3":
            raise UserError(f"{source}: not a COLMAP database")
    try:
        isolated(examine_database, source.absolute())
    except WorkerError as error:
        raise UserError(f"{source}: pycolmap cannot work with this database ({error})") from None
    net = filter_network(model)
    with _new_database(target, force, source) as database:
        try:
            images = {image.image_id: image for image in database.read_all_images()}
            cameras = {camera.camera_id: camera for camera in database.read_all_cameras()}
            numbers, tables = database.read_all_matches()
            database.clear_matches()
            database.clear_two_view_geometries()
            for number, table in zip(numbers, tables, strict=True):
                ids = colmap.pair_id_to_image_pair(number)
                x = [_unproject(database, cameras[images[i].camera_id], i, table[:, n]) for n, i in enumerate(ids)]
                d0, d1 = (_descriptors(database, i) for i in ids)
                ratio, mutual = (None, None) if d0 is None or d1 is None else _looks(table, d0, d1)
                pair = Pair(x[0], x[1], ratio, mutual)
                result = filter_pair(pair, net, estimator=estimator, threshold=threshold, device=device)
                _add_pair(database, ids[0], ids[1], table, result)
                inliers = 0 if result.pose is None else int(result.pose.inliers.sum())
                names = (images[ids[0]].name, images[ids[1]].name)
                yield Counts(names, len(table), int(result.kept.sum()), inliers)
        except (RuntimeError, ValueError, IndexError, KeyError) as error:
            raise UserError(f"{source}: pycolmap cannot work with this database ({error})") from None


def examine_database(path: Path) -> None:
    """Do to a copy of a database what :func:`filter_database` does: pycolmap ends its process where one is damaged."""
    import sqlite3

    with tempfile.TemporaryDirectory(prefix="n3net-") as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(path, copy)
        try:
            with closing(sqlite3.connect(copy)) as connection:
                problem = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            problem = str(error)
        if problem != "ok":
            raise UserError(f"{path}: pycolmap cannot work with this database, it is damaged ({problem})")
        try:
            with pycolmap().Database.open(str(copy)) as database:
                images = database.read_all_images()
                cameras = {camera.camera_id: camera for camera in database.read_all_cameras()}
                for image in images:
                    _unproject(database, cameras[image.camera_id], image.image_id, ...)
                    _descriptors(database, image.image_id)
                database.read_all_matches()
                database.clear_matches()
                database.clear_two_view_geometries()
        except (RuntimeError, ValueError, IndexError, KeyError) as error:
            raise UserError(f"{path}: pycolmap cannot work with this database ({error})") from None


@contextmanager
def _new_database(path: Path, force: bool, template: Path | None = None) -> Iterator[Any]:
    """A database that appears under its name when it is complete."""
    with placing(path, force) as part:
        try:
            try:
                if template is not None:
                    shutil.copyfile(template, part)
                opened = pycolmap().Database.open(str(part))
            except RuntimeError as error:
                raise UserError(f"{template or path}: pycolmap cannot open this database ({error})") from None
            with opened as database:
                yield database
        finally:
            for journal in part.parent.glob(f"{glob.escape(part.name)}-*"):  # which SQLite keeps beside its files
                journal.unlink(missing_ok=True)


def _add_image(database: Any, view: View, cameras: dict[Any, tuple[Any, int]]) -> int:
    """An image, a frame of its camera's rig as COLMAP wants it; cameras that are known are shared."""
    colmap = pycolmap()
    key = (view.size, np.round(view.camera.k, 6).tobytes()) if view.camera.known else view.name
    if key not in cameras:
        camera = _camera(view)
        camera.camera_id = database.write_camera(camera)
        rig = colmap.Rig()
        rig.add_ref_sensor(camera.sensor_id)
        cameras[key] = camera, database.write_rig(rig)
    camera, rig_id = cameras[key]
    image = colmap.Image(name=view.name, camera_id=camera.camera_id)
    image.image_id = database.write_image(image)
    frame = colmap.Frame()
    frame.rig_id = rig_id
    frame.add_data_id(image.data_id)
    database.write_frame(frame)
    database.write_keypoints(image.image_id, np.ascontiguousarray(view.keypoints + CORNER, np.float32))
    return int(image.image_id)


def _camera(view: View) -> Any:
    k = view.camera.k
    center = [k[0, 2] + CORNER, k[1, 2] + CORNER]
    if abs(k[0, 0] / k[1, 1] - 1) <= SQUARE:
        model, params = "SIMPLE_RADIAL", [(k[0, 0] + k[1, 1]) / 2, *center, 0]
    else:
        model, params = "OPENCV", [k[0, 0], k[1, 1], *center, 0, 0, 0, 0]
    camera = pycolmap().Camera(model=model, width=view.size[0], height=view.size[1], params=params)
    camera.has_prior_focal_length = view.camera.known
    return camera


def _add_pair(database: Any, first: int, second: int, index: Array, result: Filtered) -> None:
    index = index.astype(np.uint32)
    database.write_matches(first, second, index[result.kept])
    if result.pose is not None:
        database.write_two_view_geometry(first, second, _geometry(result.pose, index))


def _geometry(pose: Pose, index: Array) -> Any:
    colmap = pycolmap()
    kinds = colmap.TwoViewGeometryConfiguration
    geometry = colmap.TwoViewGeometry()
    geometry.config = {"general": kinds.CALIBRATED, "plane": kinds.PLANAR, "rotation": kinds.PANORAMIC}[pose.motion]
    geometry.E = pose.essential
    geometry.cam2_from_cam1 = colmap.Rigid3d(colmap.Rotation3d(pose.rotation), pose.translation)
    geometry.inlier_matches = index[pose.inliers]
    return geometry


def _unproject(database: Any, camera: Any, image: int, numbers: Any) -> npt.NDArray[np.float32]:
    """Keypoints in calibrated coordinates, lens distortion removed."""
    points = database.read_keypoints(image)[:, :2][numbers].astype(np.float64)
    return np.asarray(camera.cam_from_img(points), np.float32).reshape(-1, 2)


def _descriptors(database: Any, image: int) -> Array | None:
    """SIFT descriptors of all keypoints, or None if the database has none."""
    found = database.read_descriptors(image) if database.exists_descriptors(image) else None
    data: Array | None = getattr(found, "data", found)  # an array in older versions
    return data if data is not None and data.ndim == 2 and data.shape[1] == 128 else None
