"""n3net match: two photographs in, matches, a pose and a picture out."""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from n3net.cli.pictures import Device, Force, finite
from n3net.errors import UserError

if TYPE_CHECKING:
    from n3net.correspondence.intrinsics import Cameras
    from n3net.correspondence.matching import Matches, Seen

SETTINGS = "settings.json"  # of the run that wrote a directory of pairs
REMEMBERED = 64  # images whose keypoints are not computed again for the next pair

# Options that `n3net filter` has, too.
Model = Annotated[str | None, typer.Option(help="Weights by name or file. (default: 'match')")]
Estimator = Annotated[str, typer.Option(help="Of the pose: ransac, magsac, poselib.")]
Threshold = Annotated[
    float,
    typer.Option(
        min=1e-9, callback=finite, help="Distance to the epipolar line, in focal lengths, of matches that agree."
    ),
]
IntrinsicsFiles = Annotated[
    list[Path] | None, typer.Option(help="File with K (JSON, npy, npz, text). Twice, if the cameras differ.")
]
Focal = Annotated[
    list[str] | None, typer.Option(help="Focal length in pixels, or as 28mm on 35 mm film. Once or twice.")
]
FieldOfView = Annotated[
    list[float] | None, typer.Option(help="Field of view along the longer side, in degrees. Once or twice.")
]


def command(
    photos: Annotated[
        list[Path] | None, typer.Argument(metavar="A B", help="Two image files.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Directory to write to. (default: A-B-matches, or NAME-matches beside NAME.txt)"
        ),
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Instead of A and B: a text file with two names on each line. Resumable.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Directory that names in --pairs are relative to. (default: where that file is)")
    ] = None,
    model: Model = None,
    estimator: Estimator = "ransac",
    threshold: Threshold = 1e-3,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Keypoints of an image, at most.")] = 2000,
    mutual: Annotated[
        bool, typer.Option("--mutual", help="Keep only matches of which each is the other's nearest: better poses.")
    ] = False,
    intrinsics: IntrinsicsFiles = None,
    focal: Focal = None,
    fov: FieldOfView = None,
    picture: Annotated[
        bool | None,
        typer.Option(
            "--picture/--no-picture",
            help="Draw the matches. (default: for A and B, not for --pairs)",
            show_default=False,
        ),
    ] = None,
    database: Annotated[Path | None, typer.Option(help="Write a COLMAP database with all pairs, too.")] = None,
    force: Force = False,
    device: Device = "cpu",
    max_megapixels: Annotated[
        float,
        typer.Option(
            min=0,
            callback=finite,
            help="Refuse larger images: SIFT takes a quarter of a gigabyte for each megapixel.",
        ),
    ] = 50,
) -> None:
    """Match two photographs: SIFT, nearest neighbours, a network that tells right from wrong, the relative pose.

    n3net match left.jpg right.jpg -o out/

    n3net match --pairs pairs.txt -o out/ --focal 1200 --database out/database.db

    Written are matches.npz and matches.json (scores, which are kept, pose, essential matrix), and matches.png (kept
    matches green, rejected ones red). Where nothing is said about the cameras, EXIF data is used, or else the focal
    length is taken as the longer side of the image.

    Exit code: 0 all done, 1 some pairs failed (the others are done), 2 wrong usage, 130 interrupted.
    """
    from n3net.cli.progress import file_progress
    from n3net.correspondence.intrinsics import Cameras
    from n3net.correspondence.sfm import pycolmap
    from n3net.io.files import refuse_existing
    from n3net.jobs import many
    from n3net.models.preparing import check_device

    cameras = Cameras(intrinsics or (), focal or (), fov or ())
    jobs = _jobs(photos or [], pairs, images, output)
    if pairs is not None and cameras.differ:
        raise UserError(
            "with --pairs, all images have the same camera; --intrinsics takes a file that names each image"
        )
    if database is not None:
        refuse_existing(database, force)
        pycolmap()  # or say now that it is not there
    check_device(device)
    drawn = pairs is None if picture is None else picture
    runner = _Runner(model, estimator, threshold, limit, mutual, cameras, device, int(max_megapixels * 1e6))
    if pairs is not None:
        settings = runner.settings | {"images": str(jobs[0].base.resolve())}
        _check_settings(jobs[0].target.parent / SETTINGS, settings, force)
        waiting = [job for job in jobs if force or not job.done(drawn)]
        if len(waiting) < len(jobs):
            typer.echo(f"{len(jobs) - len(waiting)} of {len(jobs)} pairs are done already")
    else:
        waiting = jobs
        for suffix in (".npz", ".json", ".png"):
            refuse_existing(_ending(jobs[0].target, suffix), force)
    with file_progress([1] * len(waiting)) as progress:

        def work(job: _Job) -> None:
            progress(waiting.index(job), job.name, 0)
            runner.run(job, drawn)

        advice = "try fewer keypoints (--limit)"
        code = many.run(waiting, work, _complain, what="pairs", less_memory=advice)
    if database is not None:
        _write_database(database, [job for job in jobs if job.done()], force)
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True)
class _Job:
    """Two images by name, the directory that these are relative to, and the path of the outputs without ending."""

    images: tuple[str, str]
    base: Path
    target: Path

    @property
    def name(self) -> str:
        return " ".join(self.images)

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.base / self.images[0], self.base / self.images[1]

    def done(self, picture: bool = False) -> bool:
        """Whether the JSON file is there, which is written last, and with ``picture`` that, too."""
        suffixes = (".json", ".png") if picture else (".json",)
        return all(_ending(self.target, suffix).exists() for suffix in suffixes)


def _ending(target: Path, suffix: str) -> Path:
    return target.with_name(target.name + suffix)


def _jobs(photos: Sequence[Path], pairs: Path | None, images: Path | None, output: Path | None) -> list[_Job]:
    if pairs is None:
        if len(photos) != 2:
            raise UserError(f"expected two images, got {len(photos)}; many pairs go into a file for --pairs")
        target = output or Path(f"{photos[0].stem}-{photos[1].stem}-matches")
        return [_Job((str(photos[0]), str(photos[1])), Path(), target / "matches")]
    if photos:
        raise UserError("give two images, or --pairs, not both")
    target = output or pairs.with_name(f"{pairs.stem}-matches")
    jobs: dict[tuple[str, str], _Job] = {}
    owners: dict[str, tuple[str, str]] = {}
    for first, second in read_pairs(pairs):
        stem = "--".join(name.replace("/", "_").replace("\\", "_") for name in (first, second))
        other = owners.setdefault(stem, (first, second))
        if other != (first, second):
            raise UserError(f"{first} {second} and {' '.join(other)} would both be written to {stem}; rename one image")
        jobs[first, second] = _Job((first, second), images or pairs.parent, target / stem)
    return list(jobs.values())


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Two names on each line, in quotes if they have spaces; empty lines and those that begin with # do not count."""
    try:
        lines = path.read_text(encoding="utf8").splitlines()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file; expected two names of images on each line") from None
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from None
        if not words:
            continue
        if len(words) != 2:
            raise UserError(
                f"{path}, line {number}: expected two names of images, got {len(words)}: {line.strip()[:80]}"
            )
        found.append((words[0], words[1]))
    if not found:
        raise UserError(f"{path}: no pairs in it; expected two names of images on each line")
    return found


def _check_settings(path: Path, settings: dict[str, Any], force: bool) -> None:
    """Refuse to add to what was made with other settings."""
    from n3net.correspondence.results import save_json

    if path.exists() and not force:
        try:
            before = json.loads(path.read_text(encoding="utf8"))
        except (ValueError, OSError) as error:
            raise UserError(f"{path}: cannot be read ({error}); use another directory, or --force") from None
        before = before if isinstance(before, dict) else {}
        different = [key for key in settings if key != "model" and before.get(key) != settings[key]]  # but its digest
        if different:
            raise UserError(
                f"{path.parent}: was begun with other settings ({', '.join(different)}); "
                "use another directory, or --force to do all pairs again"
            )
        return
    save_json(path, dict(settings), force=True)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


class _Runner:
    """What is the same for all pairs."""

    def __init__(
        self,
        model: str | None,
        estimator: str,
        threshold: float,
        limit: int,
        mutual: bool,
        cameras: Cameras,
        device: str,
        max_pixels: int,
    ) -> None:
        from n3net.correspondence.estimators import check
        from n3net.correspondence.filtering import MODEL, resolve

        check(estimator)
        self.net = resolve(model)
        self.cameras, self.max_pixels = cameras, max_pixels
        self.limit = limit
        self.options: dict[str, Any] = {
            "estimator": estimator,
            "threshold": threshold,
            "mutual": mutual,
            "device": device,
        }
        self.settings = {
            "model": model or MODEL,
            "digest": getattr(self.net, "record", {}).get("digest"),
            "estimator": estimator,
            "threshold": threshold,
            "limit": limit,
            "mutual": mutual,
            "cameras": [
                *(f"{path}, sha256 {_digest(path)}" for path in cameras.files),
                *cameras.focal,
                *(f"{angle:g} degrees" for angle in cameras.fov),
            ],
        }
        self._seen = lru_cache(REMEMBERED)(self._look)

    def _look(self, path: Path, name: str, which: int) -> Seen:
        from n3net.correspondence.matching import look, open_image

        try:
            pixels, from_exif = open_image(path, self.max_pixels)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        size = (pixels.shape[1], pixels.shape[0])
        return look(pixels, self.cameras.of(which, size, name) or from_exif, self.limit, name)

    def run(self, job: _Job, picture: bool) -> None:
        """Match, write, and say what came out."""
        from n3net.correspondence.matching import match_views
        from n3net.correspondence.results import document, save_json, save_npz

        start = time.perf_counter()
        seen = [
            self._seen(path, name, i if self.cameras.differ else 0)
            for i, (path, name) in enumerate(zip(job.paths, job.images, strict=True))
        ]
        matches = match_views(seen[0], seen[1], self.net, **self.options)
        save_npz(_ending(job.target, ".npz"), matches, force=True)
        if picture:
            self._draw(job, matches)
        save_json(_ending(job.target, ".json"), document(matches, self.settings), force=True)
        _tell(job, matches, time.perf_counter() - start)

    def _draw(self, job: _Job, matches: Matches) -> None:
        from n3net.correspondence.matching import open_image
        from n3net.correspondence.picture import draw
        from n3net.io.files import writing

        sheet = draw(matches, *(open_image(path, self.max_pixels)[0] for path in job.paths))
        with writing(_ending(job.target, ".png"), force=True) as file:
            sheet.save(file, "PNG")


def _tell(job: _Job, matches: Matches, seconds: float) -> None:
    from n3net.correspondence.results import describe

    scoring = f"{matches.seconds['scoring']:.2f} s of them scoring"
    counts = f"{len(matches.kept)} matches, {int(matches.kept.sum())} kept, {int(matches.inliers.sum())} agree"
    typer.echo(f"{job.name} -> {job.target.parent}  {counts}, {seconds:.1f} s, {scoring}")
    for view in matches.views:
        typer.echo(f"  camera of {view.name}: {view.camera.source}")
    if matches.pose is not None:
        typer.echo(f"  pose: {describe(matches.pose)}")
    for note in matches.result.notes:
        typer.echo(f"  note: {note}")


def _complain(line: str) -> None:
    typer.echo(f"n3net: {line}", err=True)


def _write_database(path: Path, jobs: Sequence[_Job], force: bool) -> None:
    from n3net.correspondence.adapters import write_database
    from n3net.correspondence.results import load_npz

    count = write_database(path, (load_npz(_ending(job.target, ".npz")) for job in jobs), force)
    typer.echo(f"{path}: {count} pairs")
