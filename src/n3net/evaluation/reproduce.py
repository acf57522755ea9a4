"""The paper's tables, filled with what can be measured here. What cannot is a dash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from n3net.errors import UserError
from n3net.evaluation import gaussian, superresolution
from n3net.evaluation.images import image_set
from n3net.evaluation.methods import Method, method, trained_for
from n3net.evaluation.paper import Reported, Table
from n3net.evaluation.restoration import Level, Row, summarize
from n3net.methods.registry import METHODS
from n3net.models.interface import Recipe
from n3net.models.registry import MODELS, full_config
from n3net.weights import available, info, locate
from n3net.weights.format import expected_shapes
from n3net.weights.record import origin
from n3net.weights.store import NN3D, SHIPPED

# What may differ from the paper's network without making it another row of a table.
DETAILS = {"noise_map", "relative", "options", "first_norm", "norm", "unit"}

NEARLY = 2.5  # gray levels that NN3D's second network may be off: its authors had one every 5

# Where else the images of a data set may be; BSD100 is the validation split of BSDS500.
ELSEWHERE = {"BSD100": "BSDS500/val"}


@dataclass(frozen=True)
class Scoreboard:
    """How the figures of a table are measured.

    Args:
        level: key of the level in results.
        rules: the protocol.
        method: by name.
        trained_for: lowest and highest level of a training record.
        evaluate: methods on images at some levels.
        stated: which of the rules stand below a table.
    """

    level: str
    rules: Mapping[str, str]
    method: Callable[[str], Method]
    trained_for: Callable[[dict[str, Any]], tuple[float, float] | None]
    evaluate: Callable[..., list[Row]]
    stated: tuple[str, ...]


SCOREBOARDS = {
    "gaussian": Scoreboard("sigma", gaussian.PROTOCOL, method, trained_for, gaussian.evaluate, ("noise", "psnr")),
    "sr": Scoreboard(
        "factor",
        superresolution.PROTOCOL,
        superresolution.upscaler,
        superresolution.trained_for,
        superresolution.evaluate,
        ("images", "psnr"),
    ),
}


@dataclass(frozen=True)
class Measured:
    """What stands beside a figure of the paper: the weights, what for, and their means over ``n`` images."""

    figure: Reported
    weights: str
    trained_for: tuple[float, float] | None
    psnr: float
    ssim: float
    n: int
    source: str  # where the weights come from


def reproduce(
    table: Table,
    root: Path | None,
    extra: Sequence[str] = (),
    datasets: Sequence[str] = (),
    *,
    files: Mapping[str, Path] | None = None,
    limit: int | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[Table, list[Measured]]:
    """Measure all figures of a table for which there are weights and data.

    Args:
        table: of the paper.
        root: directory with one directory for each data set.
        extra: weights to consider beside those that are known by name.
        datasets: measure on these instead of the paper's.
        files: further weights by name, as :func:`n3net.weights.folder.weights_of` finds them.
        limit: use only the first images.
        progress: called before each measurement.

    Returns:
        The table, with rows or columns for further data sets, and what was measured.
    """
    table, board = with_datasets(table, datasets), SCOREBOARDS[table.task]
    paths = {**{name: locate(name) for name in extra}, **(files or {})}
    records = {name: info(path) for name, path in paths.items()}
    for name, path in available().items():
        with suppress(UserError):  # 'n3net weights list' says what is wrong with it
            records.setdefault(name, info(path))
            paths.setdefault(name, path)
    cache: dict[tuple[str, str, float], tuple[Method, dict[str, Any]]] = {}
    measured = []
    for figure in table.figures:
        directory = None if root is None else find_directory(root, figure.dataset)
        if directory is None:
            continue
        for name in candidates(figure, records, board):
            key = (name, figure.dataset, figure.level)
            if key not in cache:
                progress(f"{figure.dataset} {Level(board.level, figure.level)} {name}")
                model = board.method(_at_paths(name, paths))
                rows = board.evaluate([model], image_set(directory, limit), [figure.level])
                cache[key] = model, summarize(rows)[0]
            model, result = cache[key]
            numbers = result["psnr"], result["ssim"], result["n"]
            measured.append(Measured(figure, name, model.trained_for, *numbers, _source(name, paths, records)))
    return table, measured


def _at_paths(name: str, paths: Mapping[str, Path]) -> str:
    """A name of weights, or of NN3D on some, with their files."""
    parts = name.removeprefix(NN3D).split(",")
    if name in paths or not all(part in paths for part in parts):
        return f"{name}={paths[name]}" if name in paths else name
    return f"{name}={NN3D}{','.join(str(paths[part]) for part in parts)}"


def _source(name: str, paths: Mapping[str, Path], records: Mapping[str, dict[str, Any]]) -> str:
    """Where the weights of a name come from; methods that learn nothing have none."""
    parts = [name] if name in paths else name.removeprefix(NN3D).split(",")
    known = [origin(part, records[part], paths[part].parent == SHIPPED) for part in parts if part in paths]
    if not known:
        return f"{name}, no weights"
    return ("NN3D on " if name not in paths else "") + " and ".join(known)


def find_directory(root: Path, dataset: str) -> Path | None:
    """Where the images of a data set are."""
    return next((root / d for d in (dataset, ELSEWHERE.get(dataset, dataset)) if (root / d).is_dir()), None)


def with_datasets(table: Table, datasets: Sequence[str]) -> Table:
    """Only these data sets; those that the paper has no figures for get a dash in its place."""
    if not datasets:
        return table
    known = list(dict.fromkeys(f.dataset for f in table.figures))
    figures = [f for f in table.figures if f.dataset in datasets or len(known) == 1]
    for dataset in datasets:
        if dataset not in known:
            first = [f for f in table.figures if f.dataset == known[0]]
            figures += [
                replace(
                    f,
                    row=f.row.replace(known[0], dataset),
                    column=f.column.replace(known[0], dataset),
                    dataset=dataset,
                    psnr=None,
                    ssim=None,
                )
                for f in first
            ]
    return replace(table, figures=tuple(figures))


def candidates(
    figure: Reported, records: dict[str, dict[str, Any]], board: Scoreboard = SCOREBOARDS["gaussian"]
) -> Iterator[str]:
    """Names of weights and methods that can be measured for a figure."""
    if figure.model is None:
        return
    if figure.model == "bicubic" or figure.model in METHODS:
        yield figure.model
        return
    fitting = {name: record for name, record in records.items() if _stands_for(record["model"], figure)}
    for name, record in fitting.items():
        levels = board.trained_for(record)
        if not levels or not levels[0] <= figure.level <= levels[1] or _training(record).get("clipped"):
            continue
        if figure.model != "nn3d":
            yield name
        elif record["model"]["config"].get("noise_map"):
            yield f"{NN3D}{name}"
        else:
            yield from (f"{NN3D}{name},{other}" for other in _for_half(figure.level, record, fitting, board))


def _for_half(level: float, record: dict[str, Any], records: dict[str, dict[str, Any]], board: Scoreboard) -> list[str]:
    """The weights of the same origin for half of a level, or nearly: what NN3D's second round asks for."""
    found = []
    for name, other in records.items():
        levels = board.trained_for(other)
        alike = _training(other).get("imported") == _training(record).get("imported")
        if levels and levels[0] == levels[1] and alike and abs(levels[0] - level / 2) <= NEARLY:
            found.append((abs(levels[0] - level / 2), name))
    return [name for _, name in sorted(found)[:1]]


def _training(record: dict[str, Any]) -> dict[str, Any]:
    training = record.get("training")
    return training if isinstance(training, dict) else {}


def _stands_for(model: dict[str, Any], figure: Reported) -> bool:
    """Whether a model is the gray network of a figure, whatever name it was created by."""
    wanted = "dncnn-17" if figure.model == "nn3d" else str(figure.model)
    if model["name"] not in MODELS or wanted not in MODELS or MODELS[model["name"]].build is not MODELS[wanted].build:
        return False
    expected, found = full_config(wanted, **figure.config), full_config(model["name"], **model["config"])
    keys = [key for key in expected if key not in DETAILS]
    differing = [key for key in keys if found.get(key) != expected[key]]
    if found.get("channels", 1) != 1 or any(found.get(k) is not None and expected[k] is not None for k in differing):
        return False
    # where one of them leaves it to the model, the tensors decide
    as_expected = Recipe(model["name"], {**found, **{key: expected[key] for key in keys}})
    return not differing or expected_shapes(Recipe(model["name"], found)) == expected_shapes(as_expected)


def to_markdown(table: Table, measured: Sequence[Measured]) -> str:
    """The table with 'paper / ours' in each cell, and the weights that were used."""
    ours: dict[Reported, list[Measured]] = {}
    for m in measured:
        ours.setdefault(_key(m.figure), []).append(m)
    with_ssim = any(f.ssim is not None for f in table.figures)
    columns = list(dict.fromkeys(f.column for f in table.figures))
    rows: dict[str, dict[str, Reported]] = {}
    for f in table.figures:
        rows.setdefault(f.row, {})[f.column] = f
    heads = [head for c in columns for head in ([f"{c} PSNR", f"{c} SSIM"] if with_ssim else [c])]
    lines = [f"**{table.title}** (paper / ours)", "", f"| {table.corner} | {' | '.join(heads)} |"]
    lines.append("|---" * (len(heads) + 1) + "|")
    notes: list[str] = []
    for row, cells in rows.items():
        texts = []
        for column in columns:
            figure = cells.get(column)
            found = ours.get(_key(figure), []) if figure else []
            marks = [_mark(m, SCOREBOARDS[table.task].level, notes) for m in found]
            texts.append(_cell(figure.psnr if figure else None, [m.psnr for m in found], marks, 2))
            if with_ssim:
                texts.append(_cell(figure.ssim if figure else None, [m.ssim for m in found], marks, 3))
        lines.append(f"| {row} | {' | '.join(texts)} |")
    lines += ["", *(f"[{i}] {note}" for i, note in enumerate(notes, start=1))]
    if not measured:
        lines.append("Nothing was measured: there are no weights or no data for any of these rows.")
    board = SCOREBOARDS[table.task]
    lines += [f"{rule}: {board.rules[rule]}." for rule in board.stated]
    return "\n".join(lines)


def to_json(table: Table, measured: Sequence[Measured]) -> dict[str, Any]:
    """The same for programs: all figures of the paper, and the results in the form of 'n3net eval'."""
    return {
        "title": table.title,
        "protocol": SCOREBOARDS[table.task].rules,
        "paper": [asdict(figure) for figure in table.figures],
        "results": [
            {
                "model": m.weights,
                "weights": m.source,
                "dataset": m.figure.dataset,
                SCOREBOARDS[table.task].level: m.figure.level,
                "psnr": m.psnr,
                "ssim": m.ssim,
                "n": m.n,
                "row": m.figure.row,
                "column": m.figure.column,
                "paper_psnr": m.figure.psnr,
            }
            for m in measured
        ],
    }


def find_table(name: str, tables: dict[str, Table]) -> Table:
    """A table by name."""
    if name not in tables:
        raise UserError(
            f"there is no {name!r} to reproduce; there are {', '.join(sorted([*tables, 'claims', 'table4', 'table6']))}"
        )
    return tables[name]


def _key(figure: Reported) -> Reported:
    return replace(figure, config=tuple(figure.config.items()))  # type: ignore[arg-type]  # hashable


def _mark(m: Measured, level: str, notes: list[str]) -> int:
    note = f"{m.source}, {m.n} image{'s' if m.n > 1 else ''}"
    if m.trained_for and m.trained_for[0] < m.trained_for[1]:
        note += f"; one network for {level} {m.trained_for[0]:g} to {m.trained_for[1]:g}"
    if note not in notes:
        notes.append(note)
    return notes.index(note) + 1


def _cell(paper: float | None, ours: Sequence[float], marks: Sequence[int], digits: int) -> str:
    left = "–" if paper is None else f"{paper:.{digits}f}"
    right = ", ".join(f"{value:.{digits}f} [{mark}]" for value, mark in zip(ours, marks, strict=True)) or "–"
    return f"{left} / {right}"
