"""A scene in three dimensions: photographs, matches that the network keeps, COLMAP's mapper.

    python examples/reconstruct.py sceaux_castle/images --intrinsics sceaux_castle/K.txt

Needs `pip install 'n3net[match,colmap]'`. All pairs of the folder's photographs are matched and written into a COLMAP
database, from which pycolmap reconstructs the cameras. Where there is a cameras.json with known poses, in the folder or
above it, rotations are compared with these: on the eleven photographs of sceaux_castle all are within 0.1 degrees.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap

from n3net.correspondence.adapters import write_database
from n3net.correspondence.filtering import filter_network
from n3net.correspondence.intrinsics import from_file
from n3net.correspondence.matching import look, match_views
from n3net.correspondence.scenes import images_in


def reconstruct(photos: list[Path], database: Path, intrinsics: Path | None, keypoints: int = 4000) -> Any:
    """The largest reconstruction, as pycolmap has it."""
    camera = None if intrinsics is None else from_file(intrinsics)
    seen = [look(photo, camera, keypoints) for photo in photos]
    net = filter_network(None)
    pairs = itertools.combinations(seen, 2)
    count = write_database(database, (match_views(first, second, net) for first, second in pairs), force=True)
    print(f"{database}: {count} pairs of {len(photos)} photographs")
    pycolmap.logging.minloglevel = int(pycolmap.logging.Level.FATAL)
    pycolmap.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        models = pycolmap.incremental_mapping(database, photos[0].parent, folder)
    if not models:
        raise SystemExit("no reconstruction was found")
    return max(models.values(), key=lambda model: model.num_reg_images())


def rotation_errors(model: Any, cameras: dict[str, Any]) -> dict[str, float]:
    """Degrees between each camera's rotation and the known one, after the two worlds are turned onto each other."""
    images = [model.image(number) for number in model.reg_image_ids()]
    ours = {image.name: image.cam_from_world().rotation.matrix() for image in images if image.name in cameras}
    known = {name: np.array(cameras[name]["R"]) for name in ours}
    u, _, v = np.linalg.svd(sum(ours[name].T @ known[name] for name in ours))
    turn = u @ np.diag([1, 1, np.linalg.det(u @ v)]) @ v
    traces = {name: np.trace(known[name] @ turn.T @ ours[name].T) for name in ours}
    return {name: float(np.degrees(np.arccos(np.clip((trace - 1) / 2, -1, 1)))) for name, trace in traces.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="of the photographs")
    parser.add_argument("--intrinsics", type=Path, help="file with K, one for all (default: EXIF data)")
    parser.add_argument("--database", type=Path, default=Path("database.db"))
    parser.add_argument("--keypoints", type=int, default=4000, help="of a photograph, at most")
    parser.add_argument("--first", type=int, help="only so many photographs")
    options = parser.parse_args()
    photos = images_in(options.folder)[: options.first]
    model = reconstruct(photos, options.database, options.intrinsics, options.keypoints)
    print(f"{model.num_reg_images()} photographs placed, {model.num_points3D()} points")
    for camera in model.cameras.values():
        print(f"camera {camera.camera_id}: {camera.model.name} {np.round(camera.params, 4).tolist()}")
    for path in (options.folder / "cameras.json", options.folder.parent / "cameras.json"):
        if path.exists():
            errors = rotation_errors(model, json.loads(path.read_text())["images"])
            print(f"rotations: {max(errors.values()):.3f} degrees from {path.name} at most, of {len(errors)}")


if __name__ == "__main__":
    main()
