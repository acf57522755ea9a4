"""Makes sdist and wheel, checks them, and tries the wheel: `python tests/package.py DIST`, or `make package`.

- Every file of the repository is in the sdist (check-manifest), and what indexes of packages show is valid (twine).
- The wheel comes from the sdist, without an environment of its own, which would fetch what is here already.
- It is installed into a new environment, in which PyTorch and the rest are those of this one, and n3net is not. There
  its command runs, and all that README shows.

`--kernel FILE` takes a kernel that is built already, so that nothing is compiled.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIES = '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp "{kernel}" "$2"\n'


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    words = [str(word) for word in command]
    environment = {**os.environ, **variables}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(dist: Path, kernel: Path | None, folder: Path) -> Path:
    """sdist and wheel in ``dist``, of what git knows; the wheel."""
    source, variables = folder / "source", {}
    run("git", "checkout-index", "--all", f"--prefix={source}/")
    if kernel is not None:
        compiler = folder / "compiler"
        compiler.write_text(COPIES.format(kernel=kernel.resolve()))
        compiler.chmod(0o755)
        variables = {"CXX": str(compiler), "LDCXXSHARED": str(compiler)}
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist.resolve(), source, **variables)
    (wheel,) = dist.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel, and with the libraries of this one behind it; its programs."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
        PYTHONPATH="",
    )
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")  # their own .pth files do not count
    return python.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, help="folder for the two files, which must be empty or missing")
    parser.add_argument("--kernel", type=Path, help="a kernel to put into the wheel")
    arguments = parser.parse_args()
    if arguments.dist.exists() and any(arguments.dist.iterdir()):
        sys.exit(f"{arguments.dist} is not empty")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(run(sys.executable, "-m", "check_manifest", "--no-build-isolation").strip().splitlines()[-1])
        wheel = build(arguments.dist, arguments.kernel, folder)
        print(run(sys.executable, "-m", "twine", "check", "--strict", *arguments.dist.iterdir()).strip())
        programs, empty = install(wheel, folder / "environment"), folder / "empty"
        empty.mkdir()
        plain = {"PYTHONPATH": "", "N3NET_DATA": "", "N3NET_WEIGHTS": str(empty / "weights")}
        where = run(programs / "python", "-c", "import n3net; print(n3net.__file__)", cwd=empty, **plain)
        if not where.startswith(str(folder)):
            sys.exit(f"n3net is not that of the wheel, but {where}")
        print(run(programs / "n3net", "--version", cwd=empty, **plain).strip())
        run(programs / "n3net", "help", "denoise", cwd=empty, **plain)
        print(run(programs / "python", ROOT / "tests" / "pages.py", ROOT / "README.md", cwd=empty, **plain).strip())


if __name__ == "__main__":
    main()
