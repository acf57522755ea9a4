"""What the paper claims, and what the figures measured here say about it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from n3net.errors import UserError
from n3net.evaluation import gaussian, raw, superresolution
from n3net.evaluation.budget import over
from n3net.evaluation.images import image_set
from n3net.evaluation.methods import method
from n3net.evaluation.reproduce import find_directory
from n3net.evaluation.series import Figures, Key, Outcome, Question, Series, judge, together
from n3net.raw.simulation import LEVELS
from n3net.weights import available, info

SAME = -0.03  # dB: a difference above it counts as none


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and the numbers that test it."""

    text: str
    tests: tuple[Question, ...]


def _gain(data: str, sigma: float, sign: int = 1) -> tuple[tuple[int, Key], ...]:
    """Of N3Net over DnCNN."""
    return (sign, Key("gaussian", "gray", data, sigma)), (-sign, Key("gaussian", "dncnn-gray", data, sigma))


def _pair(task: str, better: str, worse: str, data: str, level: float, said: str) -> Question:
    terms = ((1, Key(task, better, data, level)), (-1, Key(task, worse, data, level)))
    return Question(f"{better} over {worse}, {data} {said}", terms)


BUDGET = "short"
CLAIMS = (
    Claim("KNN blocks beat plain DnCNN", (over(BUDGET, "knn-input", "dncnn-17"),)),
    Claim(
        "matching denoised patches is no better than noisy ones",
        (over(BUDGET, "knn-input", "knn-denoised", more_than=SAME),),
    ),
    Claim(
        "a learned embedding beats both", (over(BUDGET, "n3net", "knn-input"), over(BUDGET, "n3net", "knn-denoised"))
    ),
    Claim("light beats DnCNN-17, with fewer layers and parameters", (over(BUDGET, "n3net-light", "dncnn-17"),)),
    Claim("Concrete is worse than continuous selection", (over(BUDGET, "n3net", "concrete"),)),
    Claim(
        "more neighbours help up to about four",
        (over(BUDGET, "n3net-k4", "n3net-k1"), over(BUDGET, "n3net-k4", "n3net", more_than=SAME)),
    ),
    Claim(
        "N3Net beats DnCNN on white noise",
        tuple(
            Question(f"gray over dncnn-gray, {data} σ = {sigma}", _gain(data, sigma))
            for data in ("Set12", "BSD68")
            for sigma in (25, 50, 70)
        ),
    ),
    Claim(
        "the gain over DnCNN grows with the noise",
        tuple(
            Question(f"gain at σ = {b} over that at {a}, {data}", (*_gain(data, b), *_gain(data, a, -1)))
            for data in ("Set12", "BSD68")
            for a, b in ((25, 50), (50, 70))
        ),
    ),
    Claim(
        "the gain over DnCNN grows with self-similarity",
        tuple(
            Question(f"gain on Urban100 over that on BSD68, σ = {s}", (*_gain("Urban100", s), *_gain("BSD68", s, -1)))
            for s in (25, 50)
        ),
    ),
    Claim(
        "NN3D helps on Urban100 and can hurt on BSD68",
        (
            _pair("gaussian", "nn3d:dncnn-gray", "dncnn-gray", "Urban100", 25, "σ = 25"),
            _pair("gaussian", "dncnn-gray", "nn3d:dncnn-gray", "BSD68", 25, "σ = 25"),
        ),
    ),
    Claim(
        "the first block chooses harder than the second",
        (_pair("choice", "gray, block 1", "gray, block 2", "Set12", 25, "σ = 25, mean largest weight"),),
    ),
    Claim(
        "N3Net beats VDSR on every factor",
        tuple(
            _pair("sr", "upscale", "vdsr", data, f, f"x{f}") for data in ("Set5", "Set14", "BSD100") for f in (2, 3, 4)
        ),
    ),
    Claim(
        "N3Net beats DnCNN and BM3D on raw data",
        tuple(
            _pair("raw", "raw", other, "CBSD68", level.a, f"a = {level.a:g}")
            for other in ("dncnn-raw", "bm3d")
            for level in LEVELS.values()
        ),
    ),
    Claim(
        "N3Net beats CNNet on known and unknown scenes",
        (
            Question("mAP@20 of match over match-cnnet, RANSAC, a scene of the training", stated="known-scenes"),
            Question("mAP@20 of match over match-cnnet, RANSAC, entry-P10", stated="unknown-scenes"),
            Question("the same on hard pairs of it, one seed of each", stated="hard-pairs"),
        ),
    ),
    Claim(
        "N3Net takes at most 3.5 times as long as DnCNN",
        (
            Question(
                "N3Net / DnCNN-17, both as n3net runs them on a CPU (the paper: on a GPU)",
                stated="run-time",
                more_than=None,
                less_than=3.5,
            ),
        ),
    ),
)


def report(figures: Figures) -> str:
    """A line for each claim, the numbers below it, then how these were measured."""
    lines: list[str] = []
    commands: list[str] = []
    for claim in CLAIMS:
        outcomes = [judge(test, figures) for test in claim.tests]
        lines.append(f"{together([o.verdict for o in outcomes]):12} {claim.text}")
        for test, outcome in zip(claim.tests, outcomes, strict=True):
            lines.append(f"{'':12} - {test.what}: {_said(test, outcome)}")
            commands += outcome.commands
    lines += ["", "In brackets: 95 %, bootstrap over images or pairs. Held or not: where all of it is on one side.", ""]
    lines += ["Measured by", *(f"  {command}" for command in dict.fromkeys(commands))]
    old = _outdated(figures)
    if old:
        lines += ["", f"Measured with weights that have changed since: {', '.join(old)}; --data DIR measures again."]
    return "\n".join(lines)


def measure(root: Path, limit: int | None = None, progress: Callable[[str], None] = lambda what: None) -> list[Series]:
    """All series of the claims for which there are weights by name, or methods, and data."""
    wanted = list(dict.fromkeys(key for claim in CLAIMS for test in claim.tests for _, key in test.terms))
    series = []
    for key in wanted:
        directory = find_directory(root, key.data)
        if directory is None or key.task == "choice" or "/" in key.model:
            continue
        with suppress(UserError):  # no weights of that name
            progress(f"{key.data} {key.level:g} {key.model}")
            images = image_set(directory, limit)
            if key.task == "raw":
                name = next(name for name, level in LEVELS.items() if level.a == key.level)
                tested = raw.raw_method(key.model)
                rows = raw.evaluate([tested], images, [name])
            elif key.task == "sr":
                tested = superresolution.upscaler(key.model)
                rows = superresolution.evaluate([tested], images, [key.level])
            else:
                tested = method(key.model)
                rows = gaussian.evaluate([tested], images, [key.level])
            series.append(Series(*key, [row.psnr for row in rows], command_for(key), tested.digest))
    return series


def command_for(key: Key) -> str:
    """What measures a series by hand."""
    level = {"gaussian": f" --sigma {key.level:g}", "sr": f" --factor {key.level:g}"}.get(key.task, "")
    return f"n3net eval {key.task} --model {key.model} --data {key.data}{level}"


def _said(test: Question, outcome: Outcome) -> str:
    if outcome.figure is None or outcome.interval is None:
        return "not measured"
    sign, digits = ("", 2) if test.less_than is not None else ("+", 3)
    low, high = (f"{end:{sign}.{digits}f}" for end in outcome.interval)
    return f"{outcome.figure:{sign}.{digits}f} ({low} to {high}), {outcome.verdict}"


def _outdated(figures: Figures) -> list[str]:
    """Names of weights whose checksum is no longer that of the file."""
    known = available()
    old = []
    for name in dict.fromkeys(s.model.partition(",")[0] for s in figures.series):
        digests = {s.digest for s in figures.series if s.model.partition(",")[0] == name and s.digest}
        if name in known and digests and digests != {info(known[name])["digest"]}:
            old.append(name)
    return old
