"""Checkpoints that survive: written beside and renamed, the last two kept, a broken one noticed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from n3net.io.files import writing

KEEP = 2


def read(path: Path) -> dict[str, Any] | None:
    """The contents of a file, or None when it is truncated or damaged."""
    try:
        with zipfile.ZipFile(path) as file:
            if file.testzip() is not None:  # checks every CRC
                return None
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, zipfile.BadZipFile, RuntimeError, ValueError, KeyError):
        return None
    return state


def save(directory: Path, step: int, state: dict[str, Any]) -> None:
    """Write the checkpoint of a step, then remove all but the last ``KEEP``."""
    directory.mkdir(parents=True, exist_ok=True)
    with writing(directory / f"step-{step:09d}.pt", force=True, durable=True) as file:
        torch.save(state, file)
    for old in (*_steps(directory)[:-KEEP], *directory.glob(".step-*.part")):  # also what a killed run left
        old.unlink(missing_ok=True)


def latest(directory: Path) -> tuple[dict[str, Any] | None, list[Path]]:
    """The newest whole checkpoint, if there is one, and the broken ones that are newer."""
    broken: list[Path] = []
    for path in reversed(_steps(directory)):
        state = read(path)
        if state is not None:
            return state, broken
        broken.append(path)
    return None, broken


def _steps(directory: Path) -> list[Path]:
    return sorted(directory.glob("step-*.pt"))
