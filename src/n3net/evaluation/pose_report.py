"""What was measured on pairs of photographs: means with intervals, differences, tables, and JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from n3net.correspondence.metrics import DEGREES, FAILURE, curve_area, mean_accuracy
from n3net.evaluation.correspondence import PROTOCOL, Filter, Row
from n3net.evaluation.metrics import bootstrap

# Figures of a pair whose means over pairs are reported.
FIGURES: dict[str, Callable[[Row], float]] = {
    **{f"map{t}": lambda row, t=t: mean_accuracy(row.error, t) for t in DEGREES},  # type: ignore[misc]
    **{f"auc{t}": lambda row, t=t: curve_area(row.error, t) for t in DEGREES},  # type: ignore[misc]
    "precision": lambda row: row.precision,
    "recall": lambda row: row.recall,
    "average_precision": lambda row: row.average_precision,
}
Key = tuple[str, str, str]  # model, dataset, estimator


def summarize(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Means over pairs with their intervals, for each model, data set and estimator, in the order of measurement."""
    results = []
    for (model, dataset, estimator), group in _groups(rows).items():
        result: dict[str, Any] = {"model": model, "dataset": dataset, "estimator": estimator}
        for figure in FIGURES:
            values = [value for value in _by_pair(group, figure).values() if not np.isnan(value)]
            result[figure] = float(np.mean(values)) if values else None
            result[f"{figure}_interval"] = bootstrap(values) if values else None
        result["n"] = len({row.pair for row in group})
        result["weights"] = len({row.weights for row in group})
        result["failures"] = sum(row.error >= max(FAILURE) for row in group)
        result["kept"] = float(np.mean([row.kept for row in group]))
        result["seconds_scoring"] = float(np.median([row.seconds_scoring for row in group]))
        result["seconds_pose"] = float(np.median([row.seconds_pose for row in group]))
        results.append(result)
    return results


def differences(rows: Sequence[Row], model: str, figure: str = "map20") -> list[dict[str, Any]]:
    """A model against all others on the same pairs: the mean difference of a figure, and its interval over pairs."""
    groups = _groups(rows)
    found = []
    for (other, dataset, estimator), group in groups.items():
        own = groups.get((model, dataset, estimator))
        if other == model or own is None:
            continue
        ours, theirs = _by_pair(own, figure), _by_pair(group, figure)
        values = [ours[pair] - theirs[pair] for pair in ours if pair in theirs]
        found.append(
            {
                "model": model,
                "against": other,
                "dataset": dataset,
                "estimator": estimator,
                figure: float(np.mean(values)),
                f"{figure}_interval": bootstrap(values),
                "n": len(values),
            }
        )
    return found


def _groups(rows: Sequence[Row]) -> dict[Key, list[Row]]:
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.dataset, row.estimator), []).append(row)
    return groups


def _by_pair(rows: Sequence[Row], figure: str) -> dict[int, float]:
    """The figure of each pair, averaged over weights of the same label."""
    values: dict[int, list[float]] = {}
    for row in rows:
        values.setdefault(row.pair, []).append(FIGURES[figure](row))
    return {pair: float(np.mean(found)) for pair, found in values.items()}


def report(rows: Sequence[Row], methods: Sequence[Filter], model: str) -> dict[str, Any]:
    """All that was measured and how, for a JSON file; ``model`` is the one that others are compared with."""
    import torch

    from n3net.version import __version__

    return {
        "task": "correspondence",
        "protocol": PROTOCOL,
        "n3net": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "models": [{"name": m.name, "weights": m.weights, "digest": m.digest} for m in methods if m.weights],
        "results": summarize(rows),
        "differences": differences(rows, model),
        "pairs": [_without_nan(asdict(row) | {"error": row.error}) for row in rows],
    }


def _without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and np.isnan(value) else value for key, value in row.items()}


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Means as a Markdown table, with the interval of mAP@20."""
    lines = [
        "| data (pairs) | matches | estimator | mAP 5 / 10 / 20 | 95 % of mAP@20 | AUC 5 / 10 / 20 | precision "
        "| recall | average precision | kept | scoring + pose (s) |",
        "|---" * 11 + "|",
    ]
    for r in results:
        three = [" / ".join(_number(r[f"{kind}{t}"]) for t in DEGREES) for kind in ("map", "auc")]
        lines.append(
            f"| {r['dataset']} ({r['n']}) | {r['model']}{_seeds(r)} | {r['estimator']} | {three[0]} "
            f"| {interval_text(r['map20_interval'])} | {three[1]} | {_number(r['precision'])} | {_number(r['recall'])} "
            f"| {_number(r['average_precision'])} | {r['kept']:.0f} "
            f"| {r['seconds_scoring']:.3f} + {r['seconds_pose']:.3f} |"
        )
    return "\n".join(lines)


def markdown_differences(found: Sequence[Mapping[str, Any]]) -> str:
    """Differences of mAP@20 as a Markdown table."""
    lines = ["| data (pairs) | estimator | mAP@20 of | against | difference | 95 % |", "|---" * 6 + "|"]
    for d in found:
        low, high = d["map20_interval"]
        lines.append(
            f"| {d['dataset']} ({d['n']}) | {d['estimator']} | {d['model']} | {d['against']} | {d['map20']:+.3f} "
            f"| {low:+.3f} – {high:+.3f} |"
        )
    return "\n".join(lines)


def interval_text(interval: tuple[float, float]) -> str:
    """An interval for a table."""
    return f"{interval[0]:.3f} – {interval[1]:.3f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _seeds(result: Mapping[str, Any]) -> str:
    return f" (mean of {result['weights']} weights)" if result["weights"] > 1 else ""
