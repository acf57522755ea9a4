"""What clients ask for, from JSON to the settings of a command; anything else is refused in words."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import quote, unquote

from n3net.checking import from_mapping
from n3net.errors import UserError
from n3net.io.picture import SUFFIXES
from n3net.jobs.denoising import Denoise
from n3net.jobs.upscaling import Upscale
from n3net.jobs.work import Work
from n3net.raw import SUFFIXES as RAW_SUFFIXES

LONGEST_NAME = 120
WORKS: dict[str, tuple[type[Work], tuple[str, ...]]] = {
    "denoise": (Denoise, ("sigma", "real", "white_noise", "strength")),
    "upscale": (Upscale, ("factor",)),
}
RANGES = {"sigma": (0, 255), "strength": (0, 1), "factor": (1, 4)}


def work_of(content: Any) -> Work:
    """``{"work": "denoise", "settings": {"sigma": 25}}`` as the settings of a command."""
    name = content.get("work") if isinstance(content, dict) else None
    if name not in WORKS:
        raise UserError(f"work: expected one of {', '.join(WORKS)}, got {name!r}")
    kind, allowed = WORKS[name]
    settings = content.get("settings", {})
    known = {field.name for field in fields(kind)}
    if not isinstance(settings, dict) or set(settings) - ({*allowed} & known):
        raise UserError(f"settings of {name}: expected {', '.join(n for n in allowed if n in known)}, got {settings!r}")
    for key, value in settings.items():
        if key in RANGES and value is not None:
            number(value, key, *RANGES[key])
    work = from_mapping(kind, settings)
    if isinstance(work, Denoise):
        work.check_noise()
    return work


def options() -> dict[str, list[str]]:
    """Which settings there are for each kind of work."""
    return {
        name: [n for n in allowed if n in {field.name for field in fields(kind)}]
        for name, (kind, allowed) in WORKS.items()
    }


def number(value: Any, name: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UserError(f"{name}: expected a number from {low:g} to {high:g}, got {value!r}")
    return float(value)


def box_of(value: Any) -> tuple[int, int, int, int]:
    """Left, top, width, height."""
    if not isinstance(value, list) or len(value) != 4:
        raise UserError(f"box: expected left, top, width and height, got {value!r}")
    left, top, width, height = (math.floor(number(v, "box", 0, 1e6)) for v in value)
    return left, top, width, height


def client_name(text: str) -> str:
    """The name of a client's file, for people to read and for downloads; nothing is ever opened by it."""
    name = PureWindowsPath(PurePosixPath(unquote(text)).name).name
    name = "".join(c for c in name if c.isprintable()).strip().lstrip(".")
    stem, suffix = PurePath(name).stem, PurePath(name).suffix
    return f"{stem[:LONGEST_NAME]}{suffix[:12]}" or "image"


def suffix_of(name: str) -> str:
    """The ending of a name, if it is one of an image."""
    suffix = PurePath(name).suffix.lower()
    if suffix not in SUFFIXES and suffix not in RAW_SUFFIXES:
        what = f"{suffix} files are" if suffix else "a file without ending is"
        raise UserError(
            f"{name}: {what} not among those that can be read: {' '.join(SUFFIXES)}, and raw files of cameras"
        )
    return suffix


def attachment(name: str) -> dict[str, str]:
    """The header of a download."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
