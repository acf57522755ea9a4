"""The paper's Table 6, correspondence classification, beside what is measured here on other scenes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from n3net.correspondence.matchfile import SUFFIX
from n3net.correspondence.metrics import DEGREES
from n3net.evaluation.correspondence import (
    BASELINES,
    PROTOCOL,
    evaluate,
    network,
    pair_sets,
)
from n3net.evaluation.paper import TABLE6
from n3net.evaluation.pose_report import interval_text, summarize
from n3net.weights import available, info, locate

KINDS = {"cnnet": "CNNet", "n3net-sets": "N3Net"}  # models of the registry, and what Table 6 calls them


def table6(
    root: Path | None,
    extra: Sequence[str] = (),
    limit: int | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[str, dict[str, Any]]:
    """The paper's Table 6, and what is measured here on other scenes, as Markdown and for JSON.

    Args:
        root: directory with files of pairs.
        extra: weights to consider beside those that are known by name.
        limit: use only some pairs of each file.
        progress: called after each measurement.
    """
    sets = pair_sets([root], limit) if root is not None and any(root.glob(f"*{SUFFIX}")) else []
    known = {name: info(locate(name))["model"]["name"] for name in [*extra, *available()]}
    methods = [replace(BASELINES[0], name="No Net")]
    methods += [replace(network(name), name=f"{KINDS[kind]}: {name}") for name, kind in known.items() if kind in KINDS]
    rows = [row for pairs in sets for row in evaluate(methods, pairs, ["ransac"], progress)]
    results = summarize(rows)
    head = "| mAP | " + " | ".join(f"{t}°" for t in DEGREES) + " |\n" + "|---" * (len(DEGREES) + 1) + "|"
    lines = ["**Table 6. Correspondence classification: the paper**, trained on / tested on", "", head]
    for scenes, values in TABLE6.items():
        for method, row in values.items():
            lines.append(f"| {scenes}, {method} | {' | '.join(f'{value:.3f}' for value in row)} |")
    lines += [
        "",
        "**Ours**, on other scenes: the paper's data is not available, so these are not the same figures",
        "",
        head,
    ]
    for r in results:
        cells = (f"{r[f'map{t}']:.3f} ({interval_text(r[f'map{t}_interval'])})" for t in DEGREES)
        lines.append(f"| {r['dataset']} ({r['n']} pairs), {r['model']} | {' | '.join(cells)} |")
    lines += [
        "",
        "In brackets: 95 %, bootstrap over pairs. RANSAC for all; scenes that weights were trained on do not count.",
    ]
    if not sets:
        lines.append(
            f"Nothing was measured: no files of matches (*{SUFFIX}); 'n3net data' makes them, --data says where."
        )
    if len(methods) == 1:
        lines.append(
            "There are no weights for correspondences: 'n3net train match' makes some, --model FILE uses them."
        )
    return "\n".join(lines), {"protocol": PROTOCOL, "paper": TABLE6, "results": results}
