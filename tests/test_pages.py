"""README and docs: their code and their commands run, and what they name exists."""

from __future__ import annotations

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
