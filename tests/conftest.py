"""What tests of commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import settings

# The same examples in every run; new ones with --hypothesis-profile=default.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """``n3net`` in this process: arguments -> exit code, standard output, standard error."""
    from n3net import cli

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["n3net", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capfd.readouterr()

    return call
