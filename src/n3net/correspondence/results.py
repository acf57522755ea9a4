"""What was found, in files: npz for programs (and to be read again), JSON for everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.correspondence.arrays import read_arrays, write_arrays
from n3net.correspondence.estimators import Pose
from n3net.correspondence.filtering import Filtered
from n3net.correspondence.geometry import pose_error
from n3net.correspondence.intrinsics import Intrinsics
from n3net.correspondence.matching import Matches, View
from n3net.errors import UserError
from n3net.io.files import writing

Array = npt.NDArray[Any]

MEANING = (
    "x_cam1 = R x_cam0 + t, t of length 1 as two images do not tell the scale; x right, y down, z ahead; "
    "centre = -R' t is the second camera's place in the first's coordinates; x1' E x0 = 0 in calibrated ones"
)
COLUMNS = ("x0", "y0", "x1", "y1", "score", "kept", "inlier")


def filtered_arrays(result: Filtered) -> dict[str, Array]:
    """Scores, kept, inliers, and the pose if there is one."""
    pose = result.pose
    arrays: dict[str, Array] = {"scores": result.scores, "kept": result.kept}
    arrays["inliers"] = np.zeros_like(result.kept) if pose is None else pose.inliers
    if pose is not None:
        arrays |= {"rotation": pose.rotation, "translation": pose.translation, "essential": pose.essential}
        arrays |= {"center": pose.center, "motion": np.array(pose.motion)}
    return arrays


def filtered_document(result: Filtered) -> dict[str, Any]:
    """The same without the matches, for JSON."""
    pose = result.pose
    return {
        "matches": len(result.scores),
        "kept": int(result.kept.sum()),
        "inliers": 0 if pose is None else int(pose.inliers.sum()),
        "pose": None
        if pose is None
        else {
            "rotation": pose.rotation.tolist(),
            "translation": pose.translation.tolist(),
            "essential": pose.essential.tolist(),
            "center": pose.center.tolist(),
            "motion": pose.motion,
            "words": describe(pose),
            "meaning": MEANING,
        },
    }


def describe(pose: Pose) -> str:
    """A pose in a line: how far the camera turned, and where it is then."""
    turn, _ = pose_error(pose.rotation, np.ones(3), np.eye(3), np.ones(3))
    if pose.motion == "rotation":
        return f"the second camera is turned by {turn:.1f} degrees, and where the first is"
    x, y, z = pose.center
    return f"the second camera is turned by {turn:.1f} degrees, and {x:.2f} right, {y:.2f} down, {z:.2f} ahead"


def describe_fully(pose: Pose) -> list[str]:
    """A pose in lines: the same, R and t as the files have them, and what they mean."""
    rows = ["  ".join(f"{value:8.5f}" for value in row) for row in (*pose.rotation, pose.translation, pose.center)]
    names = ("R", "", "", "t", "centre")
    return [describe(pose), *(f"  {name:6} {row}" for name, row in zip(names, rows, strict=True)), f"  {MEANING}"]


def save_npz(path: Path, matches: Matches, force: bool = False) -> None:
    """All arrays: what :func:`load_npz` reads, and ``n3net filter``, too."""
    points = matches.points
    arrays: dict[str, Array] = {"index": matches.index, "ratio": matches.ratio, "mutual": matches.mutual}
    for i, view in enumerate(matches.views):
        arrays |= {f"points{i}": points[i], f"keypoints{i}": view.keypoints, f"K{i}": view.camera.k}
        arrays |= {f"size{i}": np.array(view.size), f"name{i}": np.array(view.name)}
        arrays |= {f"camera{i}": np.array(view.camera.source), f"known{i}": np.array(view.camera.known)}
    write_arrays(path, arrays | filtered_arrays(matches.result), force)


def load_npz(path: Path) -> Matches:
    """Matches that :func:`save_npz` wrote; notes and times are not in it."""
    a = read_arrays(path)
    try:
        views = [
            View(
                str(a[f"name{i}"]),
                (int(a[f"size{i}"][0]), int(a[f"size{i}"][1])),
                a[f"keypoints{i}"],
                Intrinsics(a[f"K{i}"], str(a[f"camera{i}"]), bool(a[f"known{i}"])),
            )
            for i in range(2)
        ]
        pose = None
        if "rotation" in a:
            motion: Any = str(a["motion"])
            pose = Pose(a["rotation"], a["translation"], a["essential"], a["inliers"], motion)
        result = Filtered(a["scores"], a["kept"], pose)
        return Matches((views[0], views[1]), a["index"], a["ratio"], a["mutual"], result, {})
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a file that 'n3net match' wrote ({error})") from None


def document(matches: Matches, settings: dict[str, Any]) -> dict[str, Any]:
    """All of it for JSON; scores that are not finite, of matches that are no numbers, become null."""
    images = [
        {"name": v.name, "width": v.size[0], "height": v.size[1], "K": v.camera.k.tolist(), "camera": v.camera.source}
        for v in matches.views
    ]
    rows = np.hstack([*matches.points, matches.scores[:, None]]).astype(np.float64).round(4).tolist()
    table = [
        [*(value if np.isfinite(value) else None for value in row), bool(kept), bool(inlier)]
        for row, kept, inlier in zip(rows, matches.kept, matches.inliers, strict=True)
    ]
    counts = filtered_document(matches.result)
    return {
        "images": images,
        "settings": settings,
        **counts,
        "notes": list(matches.notes),
        "seconds": {step: round(value, 4) for step, value in matches.seconds.items()},
        "columns": list(COLUMNS),
        "table": table,
    }


def save_json(path: Path, content: dict[str, Any], force: bool = False) -> None:
    """One line for each entry, and for each row of a table."""
    lines = []
    for key, value in content.items():
        if key == "table" and value:
            text = "[\n  " + ",\n  ".join(json.dumps(row) for row in value) + "\n ]"
        else:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        lines.append(f"{json.dumps(key)}: {text}")
    with writing(path, force) as file:
        file.write(("{\n " + ",\n ".join(lines) + "\n}\n").encode())
