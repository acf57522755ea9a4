"""A server as people start it, with small networks so that a test takes a moment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the page needs it: pip install 'n3net[web]'")
pytest.importorskip("uvicorn", reason="the page needs it: pip install 'n3net[web]'")


@dataclass
class Running:
    """A server process, its address and its token."""

    process: subprocess.Popen[str]
    address: str
    token: str
    temporary: Path
    weights: Path

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    @property
    def page(self) -> str:
        return f"{self.address}/#token={self.token}"

    def stop(self, how: int = signal.SIGINT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(60)


def start(temporary: Path, weights: Path, *options: str) -> Running:
    """``n3net serve`` with a folder for temporary files, and weights, of its own."""
    environment = {
        **os.environ,
        "TMPDIR": str(temporary),
        "N3NET_WEIGHTS": str(weights),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "n3net", "serve", "--no-browser", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"(http://\S+)/#token=(\S+)", line):
            return Running(process, found[1], found[2], temporary, weights)
    raise AssertionError(f"n3net serve ended with {process.wait()} before it said where it is")


@pytest.fixture(scope="session")
def start_server() -> Callable[..., Running]:
    return start


@pytest.fixture(scope="session")
def small_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks of the usual names that do little, quickly."""
    import torch

    from n3net.models import create
    from n3net.weights import save

    folder = tmp_path_factory.mktemp("weights")
    options: dict[str, Any] = {"features": 4, "depth": 2, "noise_map": True, "block_channels": 2}
    for name, channels in (("gray", 1), ("color", 3)):
        torch.manual_seed(0)
        save(folder / f"{name}.safetensors", create("n3net", channels=channels, **options))
    save(folder / "upscale.safetensors", create("vdsr", depth=2, features=4))
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, small_weights: Path) -> Iterator[Running]:
    running = start(tmp_path_factory.mktemp("temporary"), small_weights)
    yield running
    running.stop()
