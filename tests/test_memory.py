"""What the command line tells the C library about freed memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from n3net.memory import _libc, return_freed_memory, reuse_freed_memory

CODE = """
import mmap, sys
from pathlib import Path
from n3net.memory import return_freed_memory, reuse_freed_memory
assert sys.argv[1] == "default" or reuse_freed_memory()
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE / 2**20
before = resident()
b"1" * 2**26  # 64 MiB from malloc, used and freed
kept = resident() - before
return_freed_memory()
print(kept, resident() - before)
"""


@pytest.mark.skipif(not hasattr(_libc(), "mallopt"), reason="not glibc")
@pytest.mark.parametrize(("mode", "keeps"), [("default", False), ("reuse", True)])
def test_freed_memory_is_kept_for_the_next_use_until_it_is_given_back(mode: str, keeps: bool) -> None:
    kept, left = map(float, subprocess.check_output([sys.executable, "-c", CODE, mode]).split())
    assert (kept > 60) == keeps
    assert left < 30


def test_giving_memory_back_is_possible_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n3net.memory._libc", lambda: None)  # as where there is no glibc
    return_freed_memory()
    assert not reuse_freed_memory()
