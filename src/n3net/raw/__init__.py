"""Raw data of cameras: its noise, its colour filter array, and files of it."""

from __future__ import annotations

from pathlib import Path

# Endings of names of files that LibRaw reads.
SUFFIXES = (
    *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".gpr", ".iiq", ".kdc", ".mef", ".mos"),
    *(".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw"),
)


def is_raw(path: Path | None) -> bool:
    """Whether a file's name says that it is a raw file."""
    return path is not None and path.suffix.lower() in SUFFIXES
