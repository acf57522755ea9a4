"""n3net filter: matches of any matcher in, the good ones and a pose out."""

from __future__ import annotations

from os.path import realpath
from pathlib import Path
from typing import Annotated

import typer

from n3net.cli.match import Estimator, FieldOfView, Focal, IntrinsicsFiles, Model, Threshold
from n3net.cli.pictures import Device, Force
from n3net.errors import UserError


def command(
    matches: Annotated[Path, typer.Argument(help="An npz file with matches, or a COLMAP database (.db).")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write. (default: NAME-filtered beside it)")
    ] = None,
    model: Model = None,
    estimator: Estimator = "ransac",
    threshold: Threshold = 1e-3,
    intrinsics: IntrinsicsFiles = None,
    focal: Focal = None,
    fov: FieldOfView = None,
    size: Annotated[
        list[str] | None, typer.Option(help="Of the images, as 1024x768, if the file does not tell. Once or twice.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write counts and the pose to this file, too.")] = None,
    force: Force = False,
    device: Device = "cpu",
) -> None:
    """Tell right matches from wrong ones, whatever found them.

    n3net filter matches.npz --focal 1200 --size 1920x1080

    n3net filter database.db -o filtered.db

    An npz file has calibrated coordinates (x0, x1), points in pixels (points0, points1), or keypoints0, keypoints1 and
    matches; if they are known also ratio, mutual, K0, K1, size0, size1. The output has all of that, and scores, kept,
    inliers, rotation, translation, essential.
    """
    from n3net.correspondence.arrays import write_arrays
    from n3net.correspondence.estimators import check
    from n3net.correspondence.filtering import filter_network, filter_pair
    from n3net.correspondence.foreign import read_foreign
    from n3net.correspondence.intrinsics import Cameras
    from n3net.correspondence.results import filtered_arrays, filtered_document, save_json
    from n3net.io.files import refuse_existing
    from n3net.models.preparing import check_device

    cameras = Cameras(intrinsics or (), focal or (), fov or ())
    sizes = [_size(text) for text in size or ()]
    target = output or matches.with_name(f"{matches.stem}-filtered{matches.suffix}")
    if json is not None and realpath(json) == realpath(target):
        raise UserError(f"--output and --json are the same file, {target}: give --json another name")
    for path in (target, json):
        refuse_existing(path, force)
    check(estimator)
    check_device(device)
    net = filter_network(model)
    if matches.suffix == ".db":
        if intrinsics or focal or fov or size or json:
            raise UserError("a COLMAP database has its own cameras and sizes; --json is for npz files")
        from n3net.correspondence.adapters import filter_database

        options = {"estimator": estimator, "threshold": threshold, "device": device, "force": force}
        pairs = list(filter_database(matches, target, net, **options))  # type: ignore[arg-type]
        for pair in pairs:
            typer.echo(f"{' '.join(pair.images)}  {pair.matches} matches, {pair.kept} kept, {pair.inliers} agree")
        typer.echo(f"{matches} -> {target}  {len(pairs)} pairs")
        return
    foreign = read_foreign(matches, cameras, sizes)
    result = filter_pair(foreign.pair, net, estimator=estimator, threshold=threshold, device=device)
    content = filtered_document(result)
    notes = [*(f"camera {i}: {c.source}" for i, c in enumerate(foreign.cameras or ())), *result.notes]
    write_arrays(target, foreign.arrays | filtered_arrays(result), force)
    if json is not None:
        save_json(json, content | {"notes": notes}, force)
    counts = f"{content['matches']} matches, {content['kept']} kept, {content['inliers']} agree"
    typer.echo(f"{matches} -> {target}  {counts}, {result.seconds['scoring']:.2f} s of scoring")
    if result.pose is not None:
        from n3net.correspondence.results import describe

        typer.echo(f"  pose: {describe(result.pose)}")
    for note in notes:
        typer.echo(f"  {note}")


def _size(text: str) -> tuple[int, int]:
    try:
        width, height = (int(number) for number in text.lower().split("x"))
    except ValueError:
        raise UserError(f"--size: expected WIDTHxHEIGHT like 1024x768, got {text!r}") from None
    if min(width, height) < 1:
        raise UserError(f"--size: expected positive numbers, got {text!r}")
    return width, height
