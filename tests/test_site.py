"""The site: it builds without a warning, its links lead somewhere, and it loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("furo", reason="needs the extra docs")
pytest.importorskip("myst_parser", reason="needs the extra docs")

ROOT = Path(__file__).parents[1]


class Reader(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and "href" in given:
            self.loaded.append(given["href"])
        self.loaded += [given[name] for name in ("src", "srcset", "data", "poster") if name in given]


def test_the_site(tmp_path: Path) -> None:
    """One test, so that it is built once, however many processes share the tests."""
    site = tmp_path / "html"
    run = subprocess.run(
        [sys.executable, "-m", "sphinx", "-qW", "--keep-going", "-b", "html", "-d", tmp_path / "cache", "docs", site],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    pages = {path: Reader(path) for path in site.rglob("*.html")}
    check_pages(site)
    check_links(site, pages)
    check_resources(site, pages)
    check_content(site)


def check_pages(site: Path) -> None:
    names = [p.relative_to(ROOT / "docs").with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")]
    assert len(names) > 20
    assert [str(name) for name in names if not (site / name).is_file()] == []


def check_links(site: Path, pages: dict[Path, Reader]) -> None:
    wrong = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].ids):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert sum(len(page.links) for page in pages.values()) > 500
    assert wrong == []


def check_resources(site: Path, pages: dict[Path, Reader]) -> None:
    """Nothing is loaded from elsewhere."""
    loaded = {link for page in pages.values() for link in page.loaded}
    assert any(link.endswith(".css") or ".css?" in link for link in loaded)
    assert [link for link in loaded if urlsplit(link).netloc] == []
    styles = [
        path for path in site.rglob("*.css") if re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text())
    ]
    assert styles == []


def check_content(site: Path) -> None:
    """Equations, public names, and an index for the search."""
    assert "<mfrac>" in (site / "layer.html").read_text()
    api = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    for name in (
        "select",
        "nearest",
        "denoise",
        "upscale",
        "match",
        "load",
        "nn.N3Block2d",
        "nn.N3Block",
        "models.create",
    ):
        assert f'id="n3net.{name}"' in api
    assert "winograd" in (site / "searchindex.js").read_text()
