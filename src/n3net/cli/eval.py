"""n3net eval: measure models on images, one command a task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from n3net.evaluation.methods import Method
    from n3net.evaluation.restoration import Level, Row, Shown

Data = Annotated[
    list[Path], typer.Option(help="Directory of images as they should be, here or in $N3NET_DATA. Repeatable.")
]
Json = Annotated[Path | None, typer.Option(help="Write all figures to this file.")]
Markdown = Annotated[Path | None, typer.Option(help="Write tables to this file.")]
Html = Annotated[Path | None, typer.Option(help="Write a page with zoomable pictures to this file.")]
Plot = Annotated[
    Path | None, typer.Option(help="Draw PSNR over seconds per megapixel, as .png, .svg or .pdf (needs matplotlib).")
]
Sheet = Annotated[
    Path | None, typer.Option(help="Write a PNG with all methods side by side, of the first image where they differ.")
]
PictureCount = Annotated[int, typer.Option(min=0, help="Images of each data set on that page.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first images of each data set.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the noise.")]
Force = Annotated[bool, typer.Option("-f", "--force", help="Replace files that exist.")]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help="Measure models.")


@app.callback()
def _group() -> None:
    """Measure models, with fixed seeds and stated protocols."""


@app.command()
def gaussian(
    model: Annotated[
        list[str],
        typer.Option(
            help="Weights by name or file, 'bm3d', 'nlm', 'noisy', nn3d:WEIGHTS; LABEL=MODEL renames. Repeatable."
        ),
    ],
    data: Data,
    sigma: Annotated[list[float], typer.Option(help="Noise level in gray levels. Repeatable.")] = [25.0],  # noqa: B006
    json: Json = None,
    markdown: Markdown = None,
    html: Html = None,
    plot: Plot = None,
    picture: Sheet = None,
    pictures: PictureCount = 6,
    limit: Limit = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Remove white Gaussian noise, and compare with the clean images.

    The noise is neither clipped nor rounded and the same for all models; outputs are clipped to the range of the image.

    n3net eval gaussian --model N3.safetensors --model nlm --data Set12 --sigma 25 --json out.json --html out.html
    """
    from n3net.evaluation import gaussian as protocol
    from n3net.evaluation.methods import method
    from n3net.evaluation.plot import check_plot
    from n3net.evaluation.report import check_targets
    from n3net.evaluation.restoration import Level

    check_targets((json, markdown, html, plot, picture), force)
    check_plot(plot)
    kept = max(pictures, 1) if picture else pictures
    methods = [method(name) for name in model]
    rows, seen = _measure(
        methods,
        data,
        limit,
        [Level("sigma", s) for s in sigma],
        lambda images, **options: protocol.evaluate(methods, images, sigma, seed=seed, kept=kept, **options),
        html is not None or picture is not None,
    )
    report = protocol.report(rows, methods, seed)
    _tell(report, seen, json, markdown, html, force)
    _draw(report, seen, plot, picture, force)


@app.command()
def sr(
    model: Annotated[
        list[str], typer.Option(help="Weights by name or file, 'selfex', 'wsd-sr' or 'bicubic'. Repeatable.")
    ],
    data: Data,
    factor: Annotated[list[float], typer.Option(help="Of upscaling. Repeatable.")] = [2.0],  # noqa: B006
    json: Json = None,
    markdown: Markdown = None,
    html: Html = None,
    plot: Plot = None,
    picture: Sheet = None,
    pictures: PictureCount = 6,
    limit: Limit = None,
    force: Force = False,
) -> None:
    """Downscale images, upscale them again, and compare with the originals.

    n3net eval sr --model upscale --model bicubic --data Set5 --factor 2 --json out.json
    """
    from n3net.evaluation import superresolution as protocol
    from n3net.evaluation.plot import check_plot
    from n3net.evaluation.report import check_targets
    from n3net.evaluation.restoration import Level

    check_targets((json, markdown, html, plot, picture), force)
    check_plot(plot)
    kept = max(pictures, 1) if picture else pictures
    methods = [protocol.upscaler(name) for name in model]
    rows, seen = _measure(
        methods,
        data,
        limit,
        [Level("factor", f) for f in factor],
        lambda images, **options: protocol.evaluate(methods, images, factor, kept=kept, **options),
        html is not None or picture is not None,
    )
    report = protocol.report(rows, methods)
    _tell(report, seen, json, markdown, html, force)
    _draw(report, seen, plot, picture, force)
    for rule in ("images", "psnr", "ssim"):
        typer.echo(f"{rule}: {protocol.PROTOCOL[rule]}")


@app.command()
def raw(
    data: Data,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Weights by name or file, 'bm3d' or 'noisy'. Repeatable. (default: noisy, dncnn-raw, raw)"),
    ] = None,
    level: Annotated[
        list[str], typer.Option(help="Of the noise: low, middle, high. Repeatable. (default: all)", show_default=False)
    ] = ["low", "middle", "high"],  # noqa: B006
    json: Json = None,
    markdown: Markdown = None,
    limit: Limit = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Turn pictures back into raw data, add the noise of a sensor, remove it, and compare.

    n3net eval raw --data BSDS500/val --model noisy --model bm3d --model dncnn-raw --model raw
    """
    from n3net.evaluation import raw as protocol
    from n3net.evaluation.report import check_targets
    from n3net.evaluation.restoration import Level
    from n3net.raw.simulation import LEVELS

    check_targets((json, markdown), force)
    methods = [protocol.raw_method(name) for name in model or ["noisy", "dncnn-raw", "raw"]]
    rows, seen = _measure(
        methods,
        data,
        limit,
        [Level("a", LEVELS[name].a) for name in level if name in LEVELS],
        lambda images, **options: protocol.evaluate(methods, images, level, seed=seed, **options),
        False,
    )
    report = protocol.report(rows, methods, seed)
    _tell(report, seen, json, markdown, None, force, protocol.markdown_means(report["means"]))
    for rule in ("images", "noise", "psnr"):
        typer.echo(f"{rule}: {protocol.PROTOCOL[rule]}")


@app.command()
def real(
    data: Annotated[Path, typer.Option(help="Directory with pairs of photographs, NAME_real and NAME_mean.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="Weights with a noise map, by name or file, 'twsc' or 'bm3d'. (default: as 'n3net denoise --real')"
        ),
    ] = None,
    json: Json = None,
    markdown: Markdown = None,
    limit: Limit = None,
    force: Force = False,
) -> None:
    """Denoise photographs as 'n3net denoise --real' does, and compare with the mean of many shots.

    n3net eval real --data CC15
    """
    from n3net.evaluation import real as protocol
    from n3net.evaluation.report import check_targets, write
    from n3net.restoration.denoising import PHOTO

    check_targets((json, markdown), force)
    model = PHOTO if model is None else model
    found = protocol.pairs(data, limit)
    with progress_bar() as bar:
        task = bar.add_task("", total=len(found))
        rows = protocol.evaluate(found, model, lambda what: bar.update(task, advance=1, description=what))
    report = protocol.report(rows, model)
    table = protocol.markdown(report)
    typer.echo(table)
    if json:
        write(json, report, force)
    if markdown:
        write(markdown, table, force)


@app.command()
def choice(
    data: Annotated[Path, typer.Option(help="Directory of images without noise.")],
    sigma: Annotated[
        list[float], typer.Option(help="Of white noise, in gray levels. Repeatable.", show_default="5 10 25 50")
    ] = [5.0, 10.0, 25.0, 50.0],  # noqa: B006
    photographs: Annotated[
        Path | None, typer.Option(help="Directory with pairs of photographs, NAME_real and NAME_mean.")
    ] = None,
    harmless: Annotated[int, typer.Option(min=0, help="Images whose result without noise is looked at.")] = 10,
    json: Json = None,
    markdown: Markdown = None,
    limit: Limit = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Let 'n3net denoise' tell white noise from that of cameras, and count how often it is right.

    n3net eval choice --data CBSD68 --photographs CC15
    """
    from n3net.evaluation import choice as protocol
    from n3net.evaluation.images import image_set
    from n3net.evaluation.real import pairs
    from n3net.evaluation.report import check_targets, write

    check_targets((json, markdown), force)
    images, found = image_set(data, limit), [] if photographs is None else pairs(photographs, limit)
    with progress_bar() as bar:
        task = bar.add_task("", total=protocol.count(images, sigma, found, harmless))

        def step(what: str) -> None:
            bar.update(task, advance=1, description=what)

        rows = protocol.evaluate(images, sigma, found, harmless=harmless, seed=seed, progress=step)
    report = protocol.report(rows)
    table = protocol.markdown(report)
    typer.echo(table)
    for rule, how in protocol.PROTOCOL.items():
        typer.echo(f"{rule}: {how}")
    if json:
        write(json, report, force)
    if markdown:
        write(markdown, table, force)


@app.command()
def dnd(
    data: Annotated[Path, typer.Option(help="Directory of the Darmstadt Noise Dataset, with info.mat.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Directory for the bundle.")],
    srgb: Annotated[bool, typer.Option("--srgb", help="The developed images instead of the raw ones.")] = False,
    model: Annotated[
        str | None, typer.Option(help="Weights by name or file. (default: 'raw', or 'color' with --srgb)")
    ] = None,
    force: Force = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first images.")] = None,
    device: Annotated[str, typer.Option(help="Where the network runs: cpu, cuda, mps.")] = "cpu",
) -> None:
    """Denoise the Darmstadt Noise Dataset, and write what its site takes and measures.

    n3net eval dnd --data dnd_2017 -o bundle
    """
    from n3net.evaluation.dnd import make_bundle
    from n3net.models.preparing import check_device

    check_device(device)
    with progress_bar() as bar:
        task = bar.add_task("", total=None)
        count = make_bundle(
            data,
            output,
            "srgb" if srgb else "raw",
            model,
            limit=limit,
            force=force,
            device=device,
            progress=lambda what: bar.update(task, description=what),
        )
    typer.echo(f"{count} images -> {output}; hand the directory in at the benchmark's site, which measures it")


def _measure(
    methods: list[Method],
    data: list[Path],
    limit: int | None,
    levels: list[Level],
    evaluate: Callable[..., list[Row]],
    keep: bool,
) -> tuple[list[Row], list[Shown]]:
    """All data sets at all levels, with a bar; what was measured, and pictures of it if they are kept."""
    from n3net.errors import UserError
    from n3net.evaluation.images import image_sets

    sets = image_sets(data, limit)
    names = [m.name for m in methods]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--model: {names.count(name)} are called {name}; LABEL=MODEL gives one another name")
    for level in levels:
        if levels.count(level) > 1:
            raise UserError(f"{level} is given {levels.count(level)} times; once is enough")
    for m in methods:
        for level in levels:
            if m.trained_for and not m.trained_for[0] <= level.value <= m.trained_for[1]:
                typer.echo(f"note: {m.name} was not trained for {level}, but for {_range(m.trained_for)}", err=True)
    rows: list[Row] = []
    seen: list[Shown] = []
    with progress_bar() as bar:
        task = bar.add_task("", total=sum(len(s.paths) for s in sets) * len(methods) * len(levels))

        def step(what: str) -> None:
            bar.update(task, advance=1, description=what)

        for images in sets:
            rows += evaluate(images, progress=step, keep=seen.append if keep else None)
    return rows, seen


def _tell(
    report: dict[str, Any],
    seen: list[Shown],
    json: Path | None,
    markdown: Path | None,
    html: Path | None,
    force: bool,
    further: str = "",
) -> None:
    """The figures on standard output and in files; ``further`` is a table below that of all figures."""
    from n3net.evaluation.html import page
    from n3net.evaluation.report import markdown as table
    from n3net.evaluation.report import markdown_images, write

    text = table(report["results"]) + (f"\n\n{further}\n" if further else "")
    typer.echo(text)
    if json:
        write(json, report, force)
    if markdown:
        how = "\n".join(f"- {key}: {rule}" for key, rule in report["protocol"].items())
        write(markdown, f"{text}\n\n{markdown_images(report['images'])}\n\n{how}", force)
    if html:
        write(html, page(report, seen), force)


def _draw(report: dict[str, Any], seen: list[Shown], plot: Path | None, picture: Path | None, force: bool) -> None:
    from n3net.evaluation.plot import draw_picture, draw_plot

    if plot:
        draw_plot(report, plot, force)
    if picture:
        draw_picture(seen, picture, force)


@app.command()
def correspondence(
    data: Annotated[list[Path], typer.Option(help="File of matches (.pairs), or directory of them. Repeatable.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="Weights by name or file, WEIGHTS+mutual, or LABEL=WEIGHTS. Repeatable. (default: 'match')"),
    ] = None,
    estimator: Annotated[
        list[str] | None, typer.Option(help="ransac, magsac, poselib. Repeatable. (default: all that are installed)")
    ] = None,
    json: Json = None,
    markdown: Markdown = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only some pairs of each file, drawn at random, but always the same.")
    ] = None,
    force: Force = False,
) -> None:
    """Filter matches of image pairs with known poses, and estimate the poses from those that are kept.

    The same pairs are measured with all matches, ratio test, ratio test and mutual check, the weights 'match-cnnet' if
    they are there, and perfect labels. Weights given under the same label, as of several seeds, are averaged.

    n3net eval correspondence --model match --data castle-P30.pairs --json out.json

    n3net eval correspondence --model n3=a.safetensors --model n3=b.safetensors --model cn=c.safetensors --data DIR
    """
    from n3net.correspondence import estimators
    from n3net.correspondence.filtering import MODEL
    from n3net.evaluation import correspondence as protocol
    from n3net.evaluation import pose_report
    from n3net.evaluation.report import check_targets, write
    from n3net.weights import available

    check_targets((json, markdown), force)
    names = model or [MODEL]
    if protocol.CNNET in available() and protocol.CNNET not in names:
        names = [*names, protocol.CNNET]
    chosen = list(dict.fromkeys(estimator or estimators.available()))
    for name in chosen or ["ransac"]:
        estimators.check(name)
    networks = [protocol.network(name) for name in names]
    methods = [*networks, *protocol.BASELINES]
    sets = protocol.pair_sets(data, limit)
    rows: list[protocol.Row] = []
    with progress_bar() as bar:
        task = bar.add_task("", total=sum(map(len, sets)) * len(methods))
        for pairs in sets:
            rows += protocol.evaluate(
                methods, pairs, chosen, lambda what: bar.update(task, advance=1, description=what)
            )
    report = pose_report.report(rows, methods, networks[0].name)
    table = f"{pose_report.markdown(report['results'])}\n\n{pose_report.markdown_differences(report['differences'])}"
    typer.echo(table)
    if json:
        write(json, report, force)
    if markdown:
        how = "\n".join(f"- {key}: {text}" for key, text in protocol.PROTOCOL.items())
        write(markdown, f"{table}\n\n{how}", force)


def progress_bar() -> Progress:
    """On stderr, so that stdout is the result alone."""
    from rich.console import Console

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _range(levels: tuple[float, float]) -> str:
    return f"{levels[0]:g}" if levels[0] == levels[1] else f"{levels[0]:g} to {levels[1]:g}"
