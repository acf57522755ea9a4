"""Timing and memory of calls and commands, and the machine they ran on."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import torch

from n3net.bench.harness import Round, Sample


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ratio(first: str, first_call: Callable[[], object], second: str, second_call: Callable[[], object]) -> Round:
    """Rounds of the time of one call over that of another, after one of each to warm up."""
    first_call(), second_call()

    def one_round() -> Sample:
        a, b = timed(first_call), timed(second_call)
        return Sample(a / b, {f"{first} (s)": a, f"{second} (s)": b})

    return one_round


def command_seconds(arguments: Sequence[str]) -> float:
    """Seconds of ``n3net`` with these arguments, as a whole process."""
    return timed(lambda: _run([sys.executable, "-m", "n3net", *arguments]))


def command_peak(arguments: Sequence[str]) -> float:
    """MiB that ``n3net`` with these arguments holds at most, as a whole process."""
    code = f"""
import sys
from n3net.bench.measure import own_peak
from n3net.cli import main
sys.argv = {["n3net", *arguments]!r}
try:
    main()
except SystemExit as end:
    if end.code:
        raise
print(own_peak() / 2**20)
"""
    return float(_run([sys.executable, "-c", code]).splitlines()[-1])


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
    return float(_run([sys.executable, "-c", code]))


def _run(command: Sequence[str]) -> str:
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        complaints = run.stderr.strip() or f"it ended with code {run.returncode}"
        raise RuntimeError(f"a process that was to be measured failed: {complaints}")
    return run.stdout


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
