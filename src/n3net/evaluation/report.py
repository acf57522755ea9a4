"""What was measured, as tables for people and a JSON file for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from n3net.errors import UserError
from n3net.evaluation.restoration import level_of
from n3net.io.files import refuse_existing, writing


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


def check_targets(targets: Sequence[Path | None], force: bool) -> None:
    """Refuse, before anything is measured, files that could not be written at the end."""
    given = [target for target in targets if target is not None]
    for target in given:
        if given.count(target) > 1:
            raise UserError(f"{target}: given for {given.count(target)} files, expected a name for each")
        refuse_existing(target, force)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{target}: cannot be written ({error.strerror or error})") from None


def write(path: Path, content: str | dict[str, Any], force: bool = False) -> None:
    """Write text or JSON in UTF-8, at once or not at all; in JSON, numbers that are not finite become null."""
    if not isinstance(content, str):
        content = json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False)
    try:
        with writing(path, force) as file:
            file.write(f"{content}\n".encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None


def _finite(value: Any) -> Any:
    """JSON has neither NaN nor infinity, such as the PSNR of an image that is exact."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
