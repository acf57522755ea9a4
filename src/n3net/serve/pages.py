"""The page's own files. They are found once, so that no path from a client is ever looked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOLDERS = ("n3net.serve", "n3net.inspection")  # each has a folder 'page'; names are told apart by whoever writes them
START, ALONE = "index.html", "file.html"  # the second is of files that need no server


@dataclass(frozen=True)
class PageFile:
    content: bytes
    type: str


def page_files() -> dict[str, PageFile]:
    """Files by path, such as ``/page/app.js``; ``/`` is the page."""
    found = {}
    for package in FOLDERS:
        for entry in (files(package) / "page").iterdir():
            suffix = entry.name[entry.name.rfind(".") :]
            if suffix in TYPES and entry.name != ALONE:
                path = "/" if entry.name == START else f"/page/{entry.name}"
                found[path] = PageFile(entry.read_bytes(), TYPES[suffix])
    return found
