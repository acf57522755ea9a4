"""n3net help, and completion for shells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from n3net import cli
from n3net.cli import help as pages


def test_every_command_has_a_page(command: Any) -> None:
    for name in cli.COMMANDS:
        code, out, err = command("help", name)
        assert code == 0, err
        assert len(out) > 500
    assert set(pages.PAGES) <= set(cli.COMMANDS)
    assert not set(pages.PAGES) & set(pages.topics())


def test_the_list_has_every_page(command: Any) -> None:
    _, out, _ = command("help")
    words = out.split()
    assert [page for page in pages.topics() if page not in words and page != "index"] == []


def test_a_page_without_what_terminals_lack(command: Any) -> None:
    code, out, _ = command("help", "layer.md")
    assert code == 0
    assert "](" not in out
    assert "$$" not in out
    assert "N3Block2d" in out


def test_code_stays_as_it_is() -> None:
    assert pages.plain("[a](b.md)\n```python\nx[0](1)\n```\n") == "a\n```python\nx[0](1)\n```\n"


def test_a_page_that_is_not_there(command: Any) -> None:
    code, _, err = command("help", "lyer")
    assert code == 2
    assert "no page 'lyer', did you mean 'layer'?" in err


@pytest.mark.skipif(os.name == "nt", reason="bash")
def test_completion_is_installed_and_completes(tmp_path: Path) -> None:
    home = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    installed = subprocess.run(
        [sys.executable, "-m", "n3net", "--install-completion", "bash"],
        env=home,
        capture_output=True,
        text=True,
        check=True,
    )
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert str(script) in installed.stdout
    assert "complete -o default -F _n3net_completion n3net" in script.read_text()
    for words, expected in (
        ("n3net den", "denoise"),
        ("n3net denoise --str", "--strength"),
        ("n3net help from", "from-2018"),
    ):
        asked = {**home, "_N3NET_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        found = subprocess.run([sys.executable, "-m", "n3net"], env=asked, capture_output=True, text=True, check=False)
        assert found.stdout.split() == [expected], found.stderr
