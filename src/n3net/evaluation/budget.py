"""Variants of the paper's Tables 1 and 2, trained with one recipe and one budget each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from n3net.errors import UserError
from n3net.evaluation import gaussian
from n3net.evaluation.images import image_set
from n3net.evaluation.methods import method
from n3net.evaluation.paper import TABLES
from n3net.evaluation.series import Figures, Key, Question, Series, judge, stored
from n3net.weights import info

# Name of a budget, which is also that of its config -> what it is, in words.
BUDGETS = {"short": "2,500 steps of 4 crops, σ = 25, one recipe for all (config short)"}
SIGMA, STEPS = 25.0, 2500
NEAR = 0.05  # dB that two rows of the paper must differ by for their order to be told


@dataclass(frozen=True)
class Variant:
    """What is trained, by which overrides of the budget's config, and where the paper has it: table, row or column."""

    name: str
    overrides: str
    table: str
    place: str


def _variants() -> dict[str, Variant]:
    rows = list(dict.fromkeys(f.row for f in TABLES["table1"].figures))
    models = [str(f.model) for f in TABLES["table1"].figures]
    found = [Variant(m, f"model.name={m}", "table1", row) for m, row in zip(models, rows, strict=True)]
    found.append(Variant("n3net-2018", "model.options=reference-2018", "table1", "(full, form of 2018)"))
    found += [Variant(f"n3net-k{k}", f"model.k={k}", "table2", f"k = {k}") for k in range(1, 7)]
    return {v.name: v for v in found}


VARIANTS = _variants()
GUIDED = "knn-denoised"  # which needs the weights of dncnn-17


def command_of(budget: str, variant: str, folder: str = "runs") -> str:
    """How a variant is trained."""
    guide = f" data.guide={folder}/{budget}/dncnn-17/weights.safetensors" if variant == GUIDED else ""
    return f"n3net train {budget} {VARIANTS[variant].overrides}{guide} --runs {folder}/{budget}/{variant}"


def key_of(budget: str, variant: str, data: str) -> Key:
    return Key("gaussian", f"{budget}/{variant}", data, SIGMA)


def over(budget: str, better: str, worse: str, data: str = "Set12", more_than: float = 0.0) -> Question:
    """That one variant is better than another."""
    terms = ((1, key_of(budget, better, data)), (-1, key_of(budget, worse, data)))
    return Question(f"{better} over {worse}, {data}", terms, more_than=more_than)


def measure(
    budget: str,
    folder: Path,
    directories: Sequence[Path],
    limit: int | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Series]:
    """All runs of a folder, ``VARIANT`` or ``VARIANT-seedN``, on the images of some directories."""
    check(budget)
    if not folder.is_dir():
        raise UserError(
            f"{folder}: there is no such folder; expected the runs of {budget}, one folder for each variant"
        )
    series = []
    for run in sorted(path for path in folder.iterdir() if (path / "weights.safetensors").is_file()):
        name, _, seed = run.name.partition("-seed")
        if name not in VARIANTS or not re.fullmatch(r"\d*", seed):
            continue
        weights = run / "weights.safetensors"
        steps = info(weights).get("training", {}).get("steps", STEPS)
        if steps != STEPS:
            raise UserError(f"{weights}: trained for {steps} steps, and the budget {budget!r} is {STEPS}")
        model = method(f"{run.name}={weights}")
        for directory in directories:
            progress(f"{directory.name} {run.name}")
            rows = gaussian.evaluate([model], image_set(directory, limit), [SIGMA])
            command = (
                f"{command_of(budget, name)}{f' seed={seed}' if seed else ''}; n3net reproduce table1 --budget {budget}"
            )
            key = key_of(budget, name, directory.name)
            series.append(Series(*key, [row.psnr for row in rows], command, model.digest, int(seed or 0)))
    return series


def check(budget: str) -> None:
    if budget not in BUDGETS:
        raise UserError(f"--budget: there is no {budget!r}; there is {', '.join(BUDGETS)}")


def table(name: str, budget: str, data: str = "Set12", figures: Figures | None = None) -> str:
    """Paper and ours side by side, which orders hold, and what is not measured yet, as Markdown."""
    check(budget)
    if name not in ("table1", "table2"):
        raise UserError(f"--budget: is for table1 and table2, got {name}")
    figures = stored() if figures is None else figures
    paper = {f.row if name == "table1" else f.column: f.psnr for f in TABLES[name].figures if f.level == SIGMA}
    places = {v.place: v.name for v in VARIANTS.values() if v.table == name}
    if name == "table2":
        places["k = 7"] = "n3net"
    lines = [f"**{TABLES[name].title}**; ours: {BUDGETS[budget]}, {data}", ""]
    lines += ["| | paper, Urban100 | ours | 95 % | seeds |", "|---|---|---|---|---|"]
    missing = []
    for place, variant in places.items():
        given, found = paper.get(place), figures.of(key_of(budget, variant, data))
        shown = "–" if given is None else f"{given:.2f}"
        if not found:
            missing.append(variant)
            lines.append(f"| {place} | {shown} | not measured | | |")
            continue
        ours = judge(Question("", ((1, found[0].key),)), figures)
        assert ours.figure is not None
        assert ours.interval is not None
        lines.append(f"| {place} | {shown} | {ours.figure:.2f} | {_range(ours.interval)} | {len(found)} |")
    lines.append("")
    for (a, first), (b, second) in combinations(places.items(), 2):
        x, y = paper.get(a), paper.get(b)
        if x is None or y is None or abs(x - y) < NEAR:
            continue
        better, worse = (first, second) if x > y else (second, first)
        outcome = judge(over(budget, better, worse, data), figures)
        if outcome.figure is not None and outcome.interval is not None:
            lines.append(
                f"{outcome.verdict}: {better} over {worse}, paper +{abs(x - y):.2f} dB, "
                f"ours {outcome.figure:+.2f} ({_range(outcome.interval, '+')})"
            )
    lines += [f"Not measured yet: {command_of(budget, variant)}" for variant in missing]
    return "\n".join(lines)


def _range(interval: tuple[float, float], sign: str = "") -> str:
    return f"{interval[0]:{sign}.2f} – {interval[1]:{sign}.2f}"
