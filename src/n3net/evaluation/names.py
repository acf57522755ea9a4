"""What models and data sets are called in tables, so that two of them are never taken for one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from n3net.errors import UserError
from n3net.weights.store import NN3D

MUTUAL, BEST = "+mutual", "+best"  # after weights: what else is done


def split_label(name: str) -> tuple[str, str]:
    """Label and model of ``LABEL=MODEL``; the label is empty where there is none.

    Paths of weights may have ``=`` in them: the label ends where a file begins, or else at the last ``=``.
    """
    starts = [0, *(i + 1 for i, letter in enumerate(name) if letter == "=")]
    start = next((i for i in starts if _is_file(name[i:])), starts[-1])
    return name[: max(start - 1, 0)], name[start:]


def _is_file(model: str) -> bool:
    weights = model.removesuffix(MUTUAL).removesuffix(BEST)
    parts = weights.removeprefix(NN3D).split(",") if weights.startswith(NN3D) else [weights]
    return Path(model).is_file() or all(Path(part).is_file() for part in parts)


def unique_names(paths: Sequence[Path]) -> list[str]:
    """Directories by their names and files without ending, and before those that are equal as many parents as needed.

    Args:
        paths: absolute.
    """
    bare = [path if path.is_dir() else path.with_suffix("") for path in paths]
    names = []
    for path in bare:
        if bare.count(path) > 1:
            raise UserError(f"--data {path}: given {bare.count(path)} times, expected each data set once")
        count = 1
        while any(other.parts[-count:] == path.parts[-count:] for other in bare if other != path):
            count += 1
        names.append(str(Path(*path.parts[-count:])))
    return names
