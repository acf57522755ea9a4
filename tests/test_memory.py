"""What the command line tells the C library about freed memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from n3net.memory import _libc, return_freed_memory

CODE = """
import mmap, resource, sys
from n3net.memory import reuse_freed_memory
import torch
assert sys.argv[1] == "default" or reuse_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)  # 64 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(sum(faults() for _ in range(20)) * mmap.PAGESIZE / 2**20)
"""


@pytest.mark.skipif(not hasattr(_libc(), "mallopt"), reason="not glibc")
def test_tensors_get_the_memory_of_earlier_ones() -> None:
    fresh = {mode: float(subprocess.check_output([sys.executable, "-c", CODE, mode])) for mode in ("default", "reuse")}
    assert fresh["reuse"] < fresh["default"] / 2


def test_giving_memory_back_works_everywhere() -> None:
    return_freed_memory()
