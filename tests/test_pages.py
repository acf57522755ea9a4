"""README and docs: their code and their commands run, and what they name exists."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import pages

PAGES = {path.relative_to(pages.ROOT).as_posix(): path for path in pages.PAGES}
WITH_PYTHON = [name for name, path in PAGES.items() if pages.read(path).python]
WITH_COMMANDS = [name for name, path in PAGES.items() if pages.read(path).lines]
# Commands, and the first page that has them: that is where they run.
FIRST = {tuple(a): name for name, path in reversed(PAGES.items()) for a in pages.read(path).commands}
NEEDS = {"docs/match.md": "pycolmap", "docs/raw.md": "rawpy"}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, with nobody's data and weights."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("N3NET_DATA", raising=False)
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "weights"))


@pytest.mark.parametrize("name", WITH_PYTHON)
def test_code_runs(name: str) -> None:
    pytest.importorskip(NEEDS.get(name, "n3net"))
    pages.run_python(pages.read(PAGES[name]))


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_commands_run(name: str) -> None:
    for module in ("cv2", "matplotlib", "rawpy", "skimage", "tifffile", "yaml"):
        pytest.importorskip(module)
    page = pages.read(PAGES[name])
    unknown = [line for line in page.lines if not pages.is_known(line)]
    assert not unknown
    for arguments in page.commands:
        if FIRST[tuple(arguments)] == name:
            pages.try_command(arguments)


@pytest.mark.parametrize("name", PAGES)
def test_commands_in_sentences_exist(name: str) -> None:
    for text in pages.read(PAGES[name]).mentioned:
        pages.check_names(text)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    """In the repository; tests/test_site.py follows those of the site."""
    text = re.sub(r"(?ms)^```.*?^```", "", PAGES[name].read_text(encoding="utf-8"))
    wrong = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        file, _, anchor = link.partition("#")
        target = PAGES[name].parent / file if file else PAGES[name]
        if not target.exists() or (anchor and anchor not in anchors(target.resolve())):
            wrong.append(link)
    assert wrong == []


@cache
def anchors(path: Path) -> set[str]:
    """Of the headings of a page, as repositories' own pages and the site make them."""
    titles = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_papers_figures_are_those_of_the_tables() -> None:
    from n3net.evaluation.paper import TABLES

    text = PAGES["docs/tables.md"].read_text(encoding="utf-8")
    for table in TABLES.values():
        for figure in table.figures:
            rows = [line for line in text.splitlines() if line.startswith(f"| {figure.row} |")]
            assert rows
            assert figure.psnr is None or any(f" {figure.psnr:.2f} " in row for row in rows), (table.title, figure)


def test_pictures_are_made_by_a_command(tmp_path: Path) -> None:
    for module in ("cv2", "matplotlib", "skimage", "tifffile"):
        pytest.importorskip(module)
    script = pages.pictures()
    gallery = PAGES["docs/gallery.md"].read_text(encoding="utf-8")
    shown = re.findall(r"\]\(images/([\w-]+)\.", gallery)
    assert [block["stem"] for block in script.BLOCK.finditer(gallery)] == shown
    script.inputs(tmp_path)
    read = {
        word for a in pages.read(PAGES["docs/gallery.md"]).commands for word in a if re.search("(png|jpg|dng)$", word)
    }
    assert {path.name for path in tmp_path.iterdir()} - read == set()
    for draw in script.DRAWN.values():
        draw(tmp_path / "x.png")
        assert (tmp_path / "x.png").stat().st_size > 10_000


def test_every_extra_is_explained() -> None:
    extras = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    explained = set(re.findall(r"`(\w+)`", PAGES["docs/install.md"].read_text(encoding="utf-8")))
    assert set(extras) - explained == set()
