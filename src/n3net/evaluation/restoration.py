"""Measuring methods that restore images, whatever has been done to the images."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from n3net.evaluation.methods import Method
from n3net.evaluation.metrics import bootstrap, psnr, ssim

RULES = {
    "interval": "95 %, percentile bootstrap over images, 10,000 draws",
    "seconds": "median over images, wall clock, one warm-up run before",
}


class Level(NamedTuple):
    """How much has been done to an image: ``sigma`` of noise, ``a`` of raw noise, or the ``factor`` of upscaling.

    ``whole`` is what methods are told where the value alone does not say it.
    """

    key: str
    value: float
    whole: Any = None

    @property
    def told(self) -> Any:
        """What methods are told."""
        return self.value if self.whole is None else self.whole

    def __str__(self) -> str:
        return f"x{self.value:g}" if self.key == "factor" else f"{self.name} = {self.value:g}"

    @property
    def name(self) -> str:
        """For people."""
        return "σ" if self.key == "sigma" else self.key


def level_of(result: Mapping[str, Any]) -> Level:
    """The level that a dictionary of results names."""
    key = next(key for key in ("sigma", "a", "factor") if key in result)
    return Level(key, result[key])


@dataclass(frozen=True)
class Row:
    """One image, one method, one level."""

    model: str
    dataset: str
    level: Level
    image: str
    psnr: float
    ssim: float
    seconds: float
    pixels: int = 0  # of the result

    def as_dict(self) -> dict[str, Any]:
        """With the level under its own name."""
        return {(v.key if f == "level" else f): (v.value if f == "level" else v) for f, v in vars(self).items()}


@dataclass(frozen=True)
class Case:
    """An image (C, H, W) in [0, 1] and what is left of it.

    Args:
        image: its name.
        truth: the image.
        degraded: what is left of it, of the same shape.
        given: what methods are given instead, where that is smaller.
        colors: what those are given that work on colours, and make of it what is compared.
        border: pixels that are not counted.
    """

    image: str
    truth: Tensor
    degraded: Tensor
    given: Tensor | None = None
    border: int = 0
    colors: Tensor | None = None

    def given_to(self, method: Method) -> Tensor:
        """What a method starts from."""
        if self.colors is not None and method.channels == 3:
            return self.colors
        return self.degraded if self.given is None else self.given


@dataclass(frozen=True)
class Shown:
    """What was seen, kept for a page with pictures."""

    dataset: str
    level: Level
    image: str
    truth: Tensor  # (C, H, W)
    degraded: Tensor
    outputs: dict[str, Tensor]  # by method, clipped
    psnr: dict[str, float]


def measure(
    methods: Sequence[Method],
    dataset: str,
    level: Level,
    cases: Iterable[Case],
    *,
    progress: Callable[[str], None] = lambda what: None,
    keep: Callable[[Shown], None] | None = None,
    kept: int = 6,
) -> list[Row]:
    """Restore all images with all methods.

    Args:
        methods: what is measured.
        dataset: name of the images.
        level: of all of them.
        cases: the images, made when they are needed.
        progress: called after each image and method.
        keep: is given the pictures of the first ``kept`` images.
    """
    rows = []
    for index, case in enumerate(cases):
        if index == 0:
            for method in methods:
                method.run(case.given_to(method)[..., :64, :64], level.told)
        outputs, scores = {}, {}
        truth = _inner(case.truth, case.border)
        for method in methods:
            given = case.given_to(method)
            start = time.perf_counter()
            out = method.run(given, level.told)
            seconds = time.perf_counter() - start
            outputs[method.name] = out = out.clamp(0, 1)
            inner = _inner(out, case.border)
            scores[method.name] = psnr(inner, truth)
            figures = scores[method.name], ssim(inner, truth), seconds, out[0].numel()
            rows.append(Row(method.name, dataset, level, case.image, *figures))
            progress(f"{dataset} {level} {case.image} {method.name}")
        if keep is not None and index < kept:
            keep(Shown(dataset, level, case.image, case.truth, case.degraded, outputs, scores))
    return rows


def summarize(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Means over images: one entry per model, data set and level, in the order they were measured."""
    groups: dict[tuple[str, str, Level], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.dataset, row.level), []).append(row)
    return [
        {
            "model": model,
            "dataset": dataset,
            level.key: level.value,
            "psnr": float(np.mean([row.psnr for row in group])),
            "ssim": float(np.mean([row.ssim for row in group])),
            "n": len(group),
            "seconds": float(np.median([row.seconds for row in group])),
            "seconds_per_megapixel": float(np.median([1e6 * row.seconds / max(row.pixels, 1) for row in group])),
            "psnr_interval": bootstrap([row.psnr for row in group]),
            "ssim_interval": bootstrap([row.ssim for row in group]),
        }
        for (model, dataset, level), group in groups.items()
    ]


def full_report(
    task: str, protocol: Mapping[str, Any], rows: Sequence[Row], methods: Sequence[Method]
) -> dict[str, Any]:
    """All that was measured and how, for a JSON file."""
    from n3net.version import __version__

    return {
        "task": task,
        "protocol": dict(protocol),
        "n3net": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "models": [{"name": m.name, "trained_for": m.trained_for, "digest": m.digest} for m in methods],
        "results": summarize(rows),
        "images": [row.as_dict() for row in rows],
    }


def _inner(image: Tensor, border: int) -> Tensor:
    height, width = image.shape[-2:]
    return image[..., border : height - border, border : width - border]
