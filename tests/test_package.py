"""The package: sdist and wheel are whole, and the wheel works where nothing else of this repository is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KERNEL = ROOT / "src" / "n3net" / "kernel" / "libn3net.so"


@pytest.mark.skipif(os.name == "nt", reason="the compiler of this test is a shell script")
@pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None, reason="what belongs to the package is what git knows"
)
def test_the_wheel_runs_what_the_readme_shows(tmp_path: Path) -> None:
    for module in ("build", "check_manifest", "cv2", "matplotlib", "rawpy", "skimage", "tifffile", "twine", "yaml"):
        pytest.importorskip(module)
    kernel = ["--kernel", str(KERNEL)] if KERNEL.exists() else []
    run = subprocess.run(
        [sys.executable, "tests/package.py", str(tmp_path / "dist"), *kernel],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "n3net denoise noisy.png -o clean.png: runs" in run.stdout
    assert len(list((tmp_path / "dist").iterdir())) == 2


def test_the_version_is_in_one_place() -> None:
    from n3net.version import __version__

    for name in ("pyproject.toml", "setup.py", "CITATION.cff", "docs/conf.py", "src/n3net/__init__.py"):
        assert not re.search(rf"[\"' ]{re.escape(__version__)}\b", (ROOT / name).read_text(encoding="utf-8")), name
