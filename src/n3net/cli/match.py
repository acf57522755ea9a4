"""n3net match: two photographs in, matches, a pose and a picture out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from n3net.cli.batches import ManifestOption, Ray, Resume, RetryFailed, ShardOption, SkipExisting, Workers
from n3net.cli.pictures import Device, Force, finite
from n3net.errors import UserError

if TYPE_CHECKING:
    from n3net.jobs.matching import ImagePair

SETTINGS = "settings.json"  # of the run that wrote a directory of pairs

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
    workers: Workers = None,
    shard: ShardOption = None,
    ray: Ray = None,
    resume: Resume = False,
    retry_failed: RetryFailed = False,
    skip_existing: SkipExisting = False,
    manifest: ManifestOption = None,
) -> None:
    """Match two photographs: SIFT, nearest neighbours, a network that tells right from wrong, the relative pose.

    n3net match left.jpg right.jpg -o out/

    n3net match --pairs pairs.txt -o out/ --focal 1200 --database out/database.db

    Written are matches.npz and matches.json (scores, which are kept, pose, essential matrix), and matches.png (matches
    that agree with the pose green, other kept ones amber, rejected ones red). Where nothing is said about the cameras,
    EXIF data is used, or else the focal length is taken as the longer side of the image.

    Exit code: 0 all done, 1 some pairs failed (the others are done), 2 wrong usage, 130 interrupted.
    """
    from n3net.cli import batches
    from n3net.correspondence.intrinsics import Cameras
    from n3net.correspondence.sfm import pycolmap
    from n3net.io.files import refuse_existing
    from n3net.jobs.matching import Match

    options = batches.Batching(workers, shard, ray, resume, retry_failed, skip_existing, manifest)
    if pairs is None and options.given:
        raise UserError("two images are one job; --workers, --shard, --ray, --resume and the like are for --pairs")
    cameras = Cameras(intrinsics or (), focal or (), fov or ())
    jobs = _jobs(photos or [], pairs, images, output)
    if pairs is not None and cameras.differ:
        raise UserError(
            "with --pairs, all images have the same camera; --intrinsics takes a file that names each image"
        )
    if database is not None:
        refuse_existing(database, force)
        pycolmap()  # or say now that it is not there
    drawn = pairs is None if picture is None else picture
    pixels = int(max_megapixels * 1e6)
    task = Match(model, estimator, threshold, limit, mutual, cameras, device, drawn, pixels, many=pairs is not None)
    task.begin()
    folder = jobs[0].target.parent
    if pairs is not None:
        _check_settings(folder / SETTINGS, task.settings | {"images": str(jobs[0].base.resolve())}, force)
        waiting = jobs if force or options.resume else [job for job in jobs if not job.done(drawn)]
        if len(waiting) < len(jobs):
            typer.echo(f"{len(jobs) - len(waiting)} of {len(jobs)} pairs are done already")
    else:
        waiting = jobs
        for suffix in (".npz", ".json", ".png"):
            refuse_existing(jobs[0].file(suffix), force)
    all_done = batches.run(waiting, task, options, folder, force=force) if waiting else True
    if database is not None:
        _write_database(database, [job for job in jobs if job.done()], force)
    if not all_done:
        raise typer.Exit(1)


def _jobs(photos: Sequence[Path], pairs: Path | None, images: Path | None, output: Path | None) -> list[ImagePair]:
    from n3net.jobs.matching import ImagePair

    if pairs is None:
        if len(photos) != 2:
            raise UserError(f"expected two images, got {len(photos)}; many pairs go into a file for --pairs")
        target = output or Path(f"{photos[0].stem}-{photos[1].stem}-matches")
        base = _common_folder(photos)
        first, second = (str(path.relative_to(base)) for path in photos)
        return [ImagePair((first, second), base, target / "matches")]
    if photos:
        raise UserError("give two images, or --pairs, not both")
    target = output or pairs.with_name(f"{pairs.stem}-matches")
    jobs: dict[tuple[str, str], ImagePair] = {}
    owners: dict[str, tuple[str, str]] = {}
    for first, second in read_pairs(pairs):
        stem = "--".join(name.replace("/", "_").replace("\\", "_") for name in (first, second))
        other = owners.setdefault(stem, (first, second))
        if other != (first, second):
            raise UserError(f"{first} {second} and {' '.join(other)} would both be written to {stem}; rename one image")
        jobs[first, second] = ImagePair((first, second), images or pairs.parent, target / stem)
    return list(jobs.values())


def _common_folder(paths: Sequence[Path]) -> Path:
    """What all names can be said relative to."""
    try:
        return Path(commonpath([path.parent for path in paths]))
    except ValueError:  # one is absolute, the other is not
        return Path()


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


def _write_database(path: Path, jobs: Sequence[ImagePair], force: bool) -> None:
    from n3net.correspondence.adapters import write_database
    from n3net.correspondence.results import load_npz

    count = write_database(path, (load_npz(job.file(".npz")) for job in jobs), force)
    typer.echo(f"{path}: {count} pairs")
