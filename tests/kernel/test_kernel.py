"""The kernel without Python, and how it is built into a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
MAKES_A_FILE = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo > "$2"
"""


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_literal_loops_agree(tmp_path: Path) -> None:
    program = tmp_path / "selftest"
    source = ROOT / "tests" / "kernel" / "selftest.cpp"
    subprocess.run(f'{COMPILER} -std=c++17 -O0 -pthread "{source}" -o "{program}"', shell=True, check=True)
    run = subprocess.run([program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "baseline, float: ok\nbaseline, double: ok\n" in run.stdout


@pytest.mark.skipif(os.name == "nt", reason="the compiler of this test is a shell script")
@pytest.mark.parametrize("works", [True, False])
def test_wheel_is_for_any_python(tmp_path: Path, works: bool) -> None:
    """With a kernel it is for this platform, without a compiler for any; that of an earlier build is not in it."""
    pytest.importorskip("setuptools", "77")
    compiler = tmp_path / "compiler"
    compiler.write_text(MAKES_A_FILE if works else "#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    lib, dist = tmp_path / "lib", tmp_path / "dist"
    for earlier in ("_kernel.cpython-311-x86_64-linux-gnu.so", "kernel/libn3net.so"):
        (lib / "n3net" / earlier).parent.mkdir(parents=True, exist_ok=True)
        (lib / "n3net" / earlier).write_text("of an earlier build")
    commands = f"""
        egg_info --egg-base {tmp_path} build --build-lib {lib} --build-temp {tmp_path}
        bdist_wheel --dist-dir {dist} --bdist-dir {tmp_path / "wheel"} --compression stored
    """
    run = subprocess.run(
        [sys.executable, "setup.py", "-q", *commands.split()],
        cwd=ROOT,
        env={**os.environ, "CXX": str(compiler), "LDCXXSHARED": f"{compiler} -shared"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert ("n3net: without the kernel" in run.stderr) != works
    (wheel,) = dist.iterdir()
    tags = wheel.stem.split("-")[2:]
    assert tags[:2] == ["py3", "none"]
    assert (tags[2] == "any") != works
    with zipfile.ZipFile(wheel) as content:
        names = [name for name in content.namelist() if name.endswith((".so", ".cpp", ".inc"))]
        assert names == (["n3net/kernel/libn3net.so"] if works else [])
        assert not works or content.read(names[0]) == b"\n"
