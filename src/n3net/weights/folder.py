"""All weights in a folder, ours and those of other programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from n3net.errors import UserError
from n3net.weights.format import info, save
from n3net.weights.importers import import_file
from n3net.weights.store import SUFFIX

ENDINGS = (".mat", ".caffemodel", ".pth", ".pt", ".t7")


def weights_of(folder: Path, made: Path, say: Callable[[str], None] = lambda note: None) -> dict[str, Path]:
    """Files of our format by name, those of other programs imported.

    Args:
        folder: searched with its subfolders.
        made: an empty folder, for what is imported.
        say: is told which files are passed over, and why.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder")
    found: dict[str, Path] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (SUFFIX, *ENDINGS) and path.is_file()):
        name = path.stem if path.suffix == SUFFIX else path.name
        name = name if name not in found else str(path.relative_to(folder))
        try:
            if path.suffix == SUFFIX:
                info(path)
                found[name] = path
            else:
                found[name] = save(made / f"{len(found)}{SUFFIX}", *import_file(path))
        except UserError as error:
            say(f"passed over: {str(error).partition(';')[0]}")
    return found
