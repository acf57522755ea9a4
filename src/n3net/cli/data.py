"""n3net data: files of matches, from photos with and without cameras, and made up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from n3net.correspondence.matchfile import Pair

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Files of matches, to train and evaluate networks for correspondences.",
)

Output = Annotated[Path, typer.Option("--output", "-o", help="The file of matches to write (.pairs).")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Limit = Annotated[int, typer.Option("--keypoints", min=8, max=100_000, help="Keypoints of an image.")]
Least = Annotated[
    int, typer.Option("--least", min=0, help="Mutual matches that must agree with the pose for a pair to be written.")
]


@app.command()
def matches(
    scene: Annotated[Path, typer.Argument(help="A folder with images and cameras.json or transforms.json.")],
    output: Output,
    keypoints: Limit = 2000,
    least: Least = 30,
    scales: Annotated[
        list[float] | None, typer.Option("--scale", help="Size of the images as part of their own; several for all.")
    ] = None,
    every: Annotated[int, typer.Option("--every", min=1, help="Take one pair of images in this many.")] = 1,
    most: Annotated[
        float, typer.Option(min=0, max=1, help="Hard pairs only: part of all matches that --least counts, at most.")
    ] = 1.0,
    force: Force = False,
) -> None:
    """SIFT matches of all pairs of images whose cameras are known, with their true poses."""
    from n3net.cli.progress import file_progress
    from n3net.correspondence.matchfile import write_pairs
    from n3net.correspondence.scenes import read_scene, scene_pairs
    from n3net.errors import UserError
    from n3net.io.files import refuse_existing

    if scales and not all(0 < scale <= 1 for scale in scales):
        raise UserError(f"--scale: expected parts of the size, more than 0 and at most 1, got {scales}")
    refuse_existing(output, force)
    views = read_scene(scene)
    with file_progress([100]) as update:
        found = scene_pairs(
            views,
            limit=keypoints,
            least=least,
            most=most,
            scales=scales or (1.0,),
            stride=every,
            progress=lambda part, what: update(0, what, part),
        )
        count = write_pairs(output, found, force)
    typer.echo(f"{output}: {count} pairs of {len(views)} images")


@app.command("from-images")
def from_images(
    folder: Annotated[Path, typer.Argument(help="Photos of one scene.")],
    output: Output,
    keypoints: Limit = 2000,
    least: Least = 30,
    cameras: Annotated[
        Path | None, typer.Option(help="Also write the cameras that were found, as a cameras.json.")
    ] = None,
    one_camera: Annotated[
        bool, typer.Option(help="Whether photos of equal size share a camera and its focal length.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of what is random in structure from motion.")] = 0,
    force: Force = False,
) -> None:
    """Photos without known cameras: structure from motion (COLMAP), then the matches of all pairs with their poses.

    Its libraries come with the package's extra 'colmap'.
    """
    from n3net.cli.progress import file_progress
    from n3net.correspondence.matchfile import write_pairs
    from n3net.correspondence.scenes import images_in, scene_pairs
    from n3net.correspondence.sfm import reconstruct, write_cameras
    from n3net.io.files import refuse_existing

    for target in (output, cameras):
        refuse_existing(target, force)
    with file_progress([70, 30]) as update:
        views = reconstruct(folder, one_camera=one_camera, seed=seed, progress=lambda part, what: update(0, what, part))
        found = scene_pairs(views, limit=keypoints, least=least, progress=lambda part, what: update(1, what, part))
        count = write_pairs(output, found, force)
    if cameras is not None:
        write_cameras(cameras, views, force)
    typer.echo(f"{output}: {count} pairs; {len(views)} of {len(images_in(folder))} photos found their place")


@app.command()
def synthetic(
    output: Output,
    count: Annotated[int, typer.Option(min=1, help="Pairs.")] = 1000,
    matches: Annotated[int, typer.Option(min=8, max=1_000_000, help="Matches of a pair.")] = 2000,
    outliers: Annotated[
        tuple[float, float], typer.Option(help="Share of wrong matches: the ends of a range to draw from.")
    ] = (0.0, 0.95),
    poses: Annotated[
        Path | None, typer.Option(help="An .npz of real camera pairs (K1, K2, R, t); by default they are made up.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same file.")] = 0,
    force: Force = False,
) -> None:
    """Matches of made up scenes, right and wrong ones, with their true poses."""
    import numpy as np

    from n3net.cli.progress import file_progress
    from n3net.correspondence.matchfile import write_pairs
    from n3net.correspondence.synthetic import Poses, synthetic_pair
    from n3net.errors import UserError
    from n3net.io.files import refuse_existing

    if not 0 <= outliers[0] <= outliers[1] < 1:
        raise UserError(f"--outliers: expected two shares below 1, the smaller first, got {outliers}")
    refuse_existing(output, force)
    drawn = None if poses is None else Poses(poses)
    with file_progress([count]) as update:

        def pairs() -> Iterator[Pair]:
            for i in range(count):
                update(0, str(output.name), i / count)
                yield synthetic_pair(np.random.default_rng([seed, i]), matches, outliers, drawn)

        write_pairs(output, pairs(), force)
    typer.echo(f"{output}: {count} pairs")


@app.command("info")
def info_(
    file: Annotated[Path, typer.Argument(help="A file of matches (.pairs).")],
) -> None:
    """What is in a file of matches."""
    import numpy as np

    from n3net.correspondence import geometry
    from n3net.correspondence.matchfile import PairFile

    pairs = PairFile(file)
    sizes, right = [], []
    for pair in pairs:
        sizes.append(len(pair))
        if pair.rotation is not None and len(pair):
            right.append(float(geometry.labels(geometry.essential(*pair.pose), pair.x0, pair.x1).mean()))
    typer.echo(f"pairs            {len(pairs)}, {len(right)} with a pose")
    if sizes:
        typer.echo(f"matches          {min(sizes)} to {max(sizes)}, {sum(sizes)} in all")
        typer.echo(f"bytes a match    {file.stat().st_size / max(sum(sizes), 1):.1f}")
    if right:
        low, middle, high = np.quantile(right, [0.1, 0.5, 0.9])
        typer.echo(f"right matches    {middle:.1%} in the median pair, {low:.1%} to {high:.1%} in 8 of 10")
