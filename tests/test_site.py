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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-q",
            "-W",
            "--keep-going",
            "-b",
            "html",
            "-d",
            folder / "cache",
            "docs",
            folder / "html",
        ],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Reader]:
    return {path: Reader(path) for path in site.rglob("*.html")}


def test_all_pages_are_there(site: Path) -> None:
    names = [p.relative_to(ROOT / "docs").with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")]
    assert len(names) > 20
    assert [str(name) for name in names if not (site / name).is_file()] == []


def test_links_lead_somewhere(site: Path, pages: dict[Path, Reader]) -> None:
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


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Reader]) -> None:
    loaded = {link for page in pages.values() for link in page.loaded}
    assert any(link.endswith(".css") or ".css?" in link for link in loaded)
    assert [link for link in loaded if urlsplit(link).netloc] == []
    styles = [
        path for path in site.rglob("*.css") if re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text())
    ]
    assert styles == []


def test_equations_and_public_names_are_there(site: Path) -> None:
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


def test_search_finds_a_word(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    assert "winograd" in index
