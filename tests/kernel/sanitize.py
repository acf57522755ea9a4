"""The kernel under AddressSanitizer and UndefinedBehaviorSanitizer: builds it so, and runs tests with it.

    python tests/kernel/sanitize.py FOLDER BYTES LEVEL [arguments of pytest]

FOLDER is where the library goes, BYTES the width of its registers (16, 32 or 64), whatever this processor has. LEVEL is
that of optimisation: 0 compiles in a quarter of the time of 1, and runs slower.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAGS = [
    *("-std=c++17", "-g1", "-fPIC", "-shared", "-pthread", "-w", "-Wno-psabi"),
    *(
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-D_GLIBCXX_SANITIZE_VECTOR",
        "-D_GLIBCXX_ASSERTIONS",
    ),
]


def why_not() -> str | None:
    """Why there are no sanitizers here, or None."""
    if not sys.platform.startswith("linux"):
        return "the sanitizers are loaded as on Linux"
    if shutil.which("g++") is None:
        return "no g++"
    return None if _library("libasan.so").is_absolute() else "g++ has no AddressSanitizer"


def build(folder: Path, register_bytes: int, level: int) -> Path:
    """A library with registers of this width."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"kernel-sanitized-{register_bytes}.so"
    source = ROOT / "src" / "n3net" / "kernel" / "kernel.cpp"
    command = ["g++", *FLAGS, f"-O{level}", f"-DN3_REGISTER_BYTES={register_bytes}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def environment(library: Path) -> dict[str, str]:
    """In which Python runs with that kernel; the sanitizer must come first, and know where exceptions are thrown."""
    return {
        **os.environ,
        "N3NET_KERNEL": str(library),
        "LD_PRELOAD": f"{_library('libasan.so')} {_library('libstdc++.so.6')}",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # Python leaks
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": str(ROOT / "src"),
    }


def _library(name: str) -> Path:
    found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


def main(folder: str, register_bytes: str, level: str, *tests: str) -> int:
    problem = why_not()
    if problem:
        print(f"sanitize: skipped, {problem}")
        return 0
    library = build(Path(folder), int(register_bytes), int(level))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=sys", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment(library), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
