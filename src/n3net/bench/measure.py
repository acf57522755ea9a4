"""Timing and memory of calls."""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median, and the middle half of all calls around it."""

    median: float
    low: float
    high: float


def timings(calls: dict[str, Callable[[], object]], repeat: int, tick: Callable[[str], None]) -> dict[str, Timing]:
    """Times the calls in turn, ``repeat`` rounds after one to warm up: a change of the machine meets them all."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeat + 1):
        for name, call in calls.items():
            tick(name)
            start = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: _timing(s) for name, s in seconds.items()}


def _timing(seconds: list[float]) -> Timing:
    if len(seconds) < 2:
        return Timing(seconds[0], seconds[0], seconds[0])
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(statistics.median(seconds), low, high)


def peak_memory(setup: str, call: str, whole: bool = False) -> float:
    """MiB by which the peak memory of a new process grows through ``call``, after ``setup`` and a first small call.

    With ``whole``, all memory of the process, PyTorch included.
    """
    code = f"""
import torch
from n3net.bench.measure import forget_peak, own_peak
torch.set_num_threads({torch.get_num_threads()})
{setup}
{"before = 0" if whole else "forget_peak(); before = own_peak()"}
{call}
print((own_peak() - before) / 2**20)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"the process that measures memory failed:\n{run.stderr}")
    return float(run.stdout)


def forget_peak() -> None:
    """From now on, the peak of this process is what it holds now or later; where that cannot be, of all its life."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="utf8") as file:
            file.write("5")
    except OSError:
        pass


def own_peak() -> int:
    """Bytes of memory that this process has held at most."""
    try:  # unlike getrusage, this does not count what the process that started this one held
        with open("/proc/self/status", encoding="utf8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def machine() -> dict[str, object]:
    """What the figures depend on."""
    from n3net import kernel
    from n3net.version import __version__

    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "kernel": kernel.instruction_set() or "not built",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "n3net": __version__,
        "system": platform.platform(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
