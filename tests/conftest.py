"""What tests of several folders share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image

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


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder with two small pictures in ``train`` and two in ``val``."""
    for folder in ("train", "val"):
        (tmp_path / folder).mkdir()
        for i in range(2):
            pixels = np.random.default_rng(i).integers(0, 256, (60, 70, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{i}.png")
    return tmp_path
