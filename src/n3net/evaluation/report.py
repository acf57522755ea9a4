"""What was measured, as tables for people and a JSON file for programs."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from n3net.evaluation.restoration import level_of


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """Means of an evaluation as a Markdown table."""
    level = level_of(results[0]).name
    lines = [
        f"| model | data | {level} | PSNR (dB) | 95 % | SSIM | images | s / image |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        low, high = r["psnr_interval"]
        lines.append(
            f"| {r['model']} | {r['dataset']} | {level_of(r).value:g} | {r['psnr']:.2f} | {low:.2f} – {high:.2f} "
            f"| {r['ssim']:.4f} | {r['n']} | {r['seconds']:.2f} |"
        )
    return "\n".join(lines)


def markdown_images(rows: Sequence[dict[str, Any]]) -> str:
    """PSNR of each image as a Markdown table, one column per model and level."""
    columns = list(dict.fromkeys((r["model"], level_of(r)) for r in rows))
    values = {(r["dataset"], r["image"], r["model"], level_of(r)): r["psnr"] for r in rows}
    lines = [
        "| image | " + " | ".join(f"{model}, {level}" for model, level in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for dataset, image in dict.fromkeys((r["dataset"], r["image"]) for r in rows):
        cells = [values.get((dataset, image, *column)) for column in columns]
        text = " | ".join("–" if value is None else f"{value:.2f}" for value in cells)
        lines.append(f"| {dataset}/{image} | {text} |")
    return "\n".join(lines)


def write(path: str | Path, content: str | dict[str, Any]) -> Path:
    """Write text or JSON, at once or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=1, ensure_ascii=False)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        file.write(text + "\n")
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
    return path
