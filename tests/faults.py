"""Faults, for real: processes that are killed, disks that are full, folders that vanish, clocks that jump.

``make faults`` runs it: batches of files and trainings are disturbed at random moments, and what they leave behind is
compared with an undisturbed run. It prints what was tried and what was found; all that is found should be 0. Processes
are forked from one that has imported everything, so that a moment costs a fraction of a second.

    python tests/faults.py [--moments 100] [--seed 0] [--only kills,disk,...]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
from PIL import Image

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
FOUND = ("files lost", "half files", "differences", "left over", "tracebacks", "not said", "hangs")
FILES = 5
PATIENCE = 120.0  # seconds after which a process hangs
MODEL = "n3net"
CONFIG = """
task: gaussian
model: {name: n3net, noise_map: true, stages: 2, depth: 2, features: 4, block_channels: 2, k: 2, patch_size: 4,
        stride: 2, window: 5, options: reference-2018}
data: {root: ROOT, train: [train], validation: [validation], sigma: [0, 50], crop: 16, crops_per_image: 4}
steps: 40
batch_size: 2
log_every: 1
save_every: 2
validate_every: 10
"""


class Found(Counter[str]):
    """How often something was tried, and what was wrong afterwards."""

    def see(self, what: str, wrong: int, about: object = "") -> None:
        self[what] += int(wrong)
        if wrong:
            print(f"    {what}: {wrong} {about}", flush=True)

    def look(self, process: Process, said: str | None = None) -> None:
        """What a process that has ended printed."""
        text = process.text()
        self.see("tracebacks", "Traceback" in text, text[-1500:])
        if said is not None and process.code != 0:
            self.see("not said", said not in text, f"{said!r}: code {process.code}, {text[-500:]!r}")


class Process:
    """``n3net`` in a process of its own, forked from this one."""

    def __init__(self, *arguments: str | Path, limits: Callable[[], None] = lambda: None) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self.code: int | None = None
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS[1:])  # none may leave the child by this process's own way out
        self.pid = os.fork()
        if self.pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[1:])
            return
        code = 99
        try:
            for number in SIGNALS[1:]:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[1:])
            for stream in (1, 2):
                os.dup2(self._output.fileno(), stream)
            from n3net import cli

            sys.argv = ["n3net", *map(str, arguments)]
            limits()
            cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            if "N3NET_FAULTS_MODULES" in os.environ:
                Path(os.environ["N3NET_FAULTS_MODULES"]).write_text("\n".join(sys.modules))
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            from n3net.io.isolation import close_idle

            sys.stdout.flush()
            sys.stderr.flush()
            close_idle()
            os._exit(code)

    def wait(self, seconds: float = PATIENCE) -> bool:
        """Whether it ended within a time."""
        end = time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() >= end:
                return False
            time.sleep(0.002)
        return True

    def finish(self, found: Found) -> Process:
        """Wait, and kill it if that takes too long."""
        if not self.wait():
            found.see("hangs", 1, self.text()[-500:])
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        return self

    def text(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")


class Bench:
    """A folder with inputs, weights, a config, and what undisturbed runs make of them."""

    def __init__(self, root: Path, seed: int) -> None:
        from n3net.models import create
        from n3net.weights import info, save

        self.root, self.random = root, random.Random(seed)
        rng = np.random.default_rng(seed)
        for folder, count in (("in", FILES), ("train", 2), ("validation", 1)):
            (root / folder).mkdir()
            for i in range(count):
                small = Image.fromarray(rng.integers(0, 256, (8, 9), np.uint8))
                small.resize((72, 64), Image.Resampling.BICUBIC).save(root / folder / f"{i}.png")
        torch.manual_seed(seed)
        options = {"stages": 2, "depth": 3, "features": 8, "block_channels": 4, "noise_map": True}
        self.weights = save(root / "model.safetensors", create(MODEL, **options))
        self.config = root / "config.yaml"
        self.config.write_text(CONFIG.replace("ROOT", str(root)))
        self.outputs: dict[str, bytes] = {}
        self.batch_seconds = self._undisturbed(lambda folder: self.batch(folder), "batch")
        self.train_seconds = self._undisturbed(lambda folder: self.train(folder), "run")
        self.outputs = {path.name: path.read_bytes() for path in (root / "batch").iterdir()}
        self.digest = info(root / "run" / "weights.safetensors")["digest"]
        self.log = rows(root / "run")

    def _undisturbed(self, start: Callable[[Path], Process], name: str) -> float:
        """How long a run takes, once what it imports has been imported here."""
        modules = self.root / "modules"
        os.environ["N3NET_FAULTS_MODULES"] = str(modules)
        process = start(self.root / f"{name}-first").finish(Found())
        del os.environ["N3NET_FAULTS_MODULES"]
        assert process.code == 0, process.text()
        for module in modules.read_text().splitlines():
            with suppress(Exception):
                importlib.import_module(module)
        begin = time.monotonic()
        start(self.root / name).finish(Found())
        return time.monotonic() - begin

    def batch(self, out: Path, *more: str, limits: Callable[[], None] = lambda: None) -> Process:
        options = ("--sigma", "10", "--model", self.weights, *more)
        return Process("denoise", self.root / "in", "-o", out, *options, limits=limits)

    def train(self, run: Path, *more: str, limits: Callable[[], None] = lambda: None) -> Process:
        return Process("train", self.config, *more, "--runs", run, limits=limits)

    def check_outputs(self, out: Path, found: Found, complete: bool = False) -> None:
        """Each file that has its name must be the one of the undisturbed run."""
        there = {path.name: path for path in out.iterdir()} if out.is_dir() else {}
        wrong = [name for name, path in there.items() if name[0] != "." and path.read_bytes() != self.outputs.get(name)]
        found.see("half files", len(wrong), wrong)
        if complete:
            found.see("files lost", len(self.outputs.keys() - there.keys()), sorted(there))
            parts = [name for name in there if name.startswith(".")]
            found.see("left over", len(parts), parts)

    def check_run(self, run: Path, found: Found) -> None:
        """A complete run must have the weights and the log of the undisturbed one, bit by bit."""
        from n3net.weights import info, load

        found.see("files lost", not (run / "weights.safetensors").is_file(), run)
        if (run / "weights.safetensors").is_file():
            found.see("differences", info(run / "weights.safetensors")["digest"] != self.digest, run)
            load(run / "weights.safetensors")
            load(run / "best.safetensors")
        found.see("differences", rows(run) != self.log, "in the log")
        parts = [path for path in run.rglob(".*") if path.name != ".lock"]
        found.see("left over", len(parts), parts)


def rows(run: Path) -> list[dict[str, object]]:
    """The log without what depends on time."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] != "speed"]


def killed_batches(bench: Bench, moments: int) -> Found:
    """Killed at random moments; the same command again does what is missing."""
    found, seconds = Found(), bench.batch_seconds
    while found["moments"] < moments:
        out = bench.root / "killed"
        shutil.rmtree(out, ignore_errors=True)
        begin = time.monotonic()
        process, number = bench.batch(out), bench.random.choice(SIGNALS)
        if process.wait(bench.random.uniform(0, seconds)):
            seconds = min(seconds, time.monotonic() - begin)  # faster than what was measured
            continue
        os.kill(process.pid, number)
        process.finish(found)
        found["moments"] += 1
        found[f"by {signal.Signals(number).name}"] += 1
        bench.check_outputs(out, found)
        if process.code not in (0, -signal.SIGKILL):
            found.look(process)
            parts = list(out.glob(".*")) if out.is_dir() else []
            found.see("left over", len(parts), f"{parts} after {signal.Signals(number).name}")
        found.look(bench.batch(out).finish(found))  # does what is missing, and refuses to replace the rest
        bench.check_outputs(out, found, complete=True)
    return found


def killed_trainings(bench: Bench, moments: int) -> Found:
    """Killed at random moments, over and over, and continued until they are done."""
    found, runs = Found(), 0
    while found["moments"] < moments:
        run, patience = bench.root / f"killed-run-{runs}", 0.8 * bench.train_seconds
        runs += 1
        while True:
            process, number = bench.train(run), bench.random.choice(SIGNALS)
            ended = process.wait(bench.random.uniform(0, patience))
            patience *= 1.1  # on a machine that has become busy, none would reach its first checkpoint
            if not ended:
                os.kill(process.pid, number)
                found["moments"] += 1
                found[f"by {signal.Signals(number).name}"] += 1
            process.finish(found)
            if process.code != -signal.SIGKILL:
                found.look(process)
            if process.code == 0:
                break
        bench.check_run(run, found)
        before = (run / "log.jsonl").read_bytes()
        found.look(bench.train(run).finish(found))
        found.see("differences", (run / "log.jsonl").read_bytes() != before, "in the log of a complete run")
        shutil.rmtree(run)
    found["runs completed"] = runs
    return found


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """A disk of some kilobytes, in memory."""
    place.mkdir(exist_ok=True)
    options = f"size={size}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True, capture_output=True)


def full_disks(bench: Bench, moments: int) -> Found:
    """Disks of all sizes, too small for the output, the checkpoints, the log; then they get larger."""
    found = Found()
    most = 1200
    for i in range(moments):
        size = 16 + (most - 16) * i // max(moments - 1, 1) // 4 * 4
        with small_disk(bench.root / "disk", size) as disk:
            process = bench.batch(disk / "out").finish(found)
            found.look(process, "No space left")
            bench.check_outputs(disk / "out", found)
            parts = list(disk.rglob(".*.part"))
            found.see("left over", len(parts), parts)
            shutil.rmtree(disk / "out", ignore_errors=True)
            found.look(bench.train(disk / "run").finish(found), "No space left")
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            found.look(bench.train(disk / "run").finish(found))
            bench.check_run(disk / "run", found)
        found["moments"] += 2
    return found


def full_files(bench: Bench, moments: int) -> Found:
    """Files that may not grow beyond a limit (ulimit -f), where no disk can be made."""
    found = Found()
    for _ in range(moments):
        limit = bench.random.randrange(0, 60_000)

        def limits(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        out, run = bench.root / "limited", bench.root / "limited-run"
        for folder in (out, run):
            shutil.rmtree(folder, ignore_errors=True)
        found.look(bench.batch(out, limits=limits).finish(found), "File too large")
        bench.check_outputs(out, found)
        found.look(bench.train(run, limits=limits).finish(found), "File too large")
        found.look(bench.train(run).finish(found))
        bench.check_run(run, found)
        found["moments"] += 2
    return found


def folders(bench: Bench, moments: int) -> Found:
    """Folders that cannot be written to, and that vanish: of the inputs, the outputs, a run."""
    found = Found()
    with small_disk(bench.root / "disk", 64_000) as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        found.look(bench.batch(disk / "out").finish(found), "Read-only file system")
        found.look(bench.train(disk / "run").finish(found), "Read-only file system")
        found["moments"] += 2
    for i in range(moments):
        work = Path(tempfile.mkdtemp(dir=bench.root))
        shutil.copytree(bench.root / "in", work / "in")
        process = Process(
            "denoise", work / "in", "-o", work / "out", "--sigma", "10", "--model", bench.weights
        ) if i % 2 else bench.train(work / "run")  # fmt: skip
        process.wait(bench.random.uniform(0, bench.batch_seconds if i % 2 else bench.train_seconds))
        victim = work / (bench.random.choice(["in", "out"]) if i % 2 else "run")
        moved = work / "moved"
        if victim.exists():
            victim.rename(moved)
        found.look(process.finish(found))
        if i % 2:
            bench.check_outputs(work / "out", found)
            bench.check_outputs(moved, found) if victim.name == "out" else None
        found["moments"] += 1
        shutil.rmtree(work)
    return found


def two_at_once(bench: Bench, moments: int) -> Found:
    """Two runs to one place, with and without --force, and two trainings in one folder."""
    found = Found()
    for i in range(moments):
        out, run = bench.root / "twice", bench.root / "twice-run"
        for folder in (out, run):
            shutil.rmtree(folder, ignore_errors=True)
        more = ("--force",) if i % 2 else ()
        pair = [bench.batch(out, *more)]
        time.sleep(bench.random.uniform(0, 0.05))
        pair.append(bench.batch(out, *more))
        for process in pair:
            found.look(process.finish(found), "another program is writing it" if i % 2 else "")
        bench.check_outputs(out, found, complete=True)
        pair = [bench.train(run), bench.train(run)]
        for process in pair:
            found.look(process.finish(found), "another process is training there")
        found.see("differences", 0 not in [process.code for process in pair], "neither trained")
        bench.check_run(run, found)
        found["moments"] += 2
    return found


JUMPING_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <sys/time.h>
static long jump(void) {
    static unsigned n;
    n = n * 1664525u + 1013904223u;
    return (long)(n >> 8) % 200000000 - 100000000;
}
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, t);
    if (id == CLOCK_REALTIME) t->tv_sec += jump();
    return code;
}
int gettimeofday(struct timeval *t, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec; t->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"""


def jumping_clocks(bench: Bench, moments: int) -> Found:
    """A clock of the day that jumps by years whenever it is looked at: a budget must not notice."""
    found = Found()
    source, library = bench.root / "clock.c", bench.root / "clock.so"
    source.write_text(JUMPING_CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", source, "-o", library, "-ldl"], check=True, capture_output=True)
    for budget in (1, 2)[: max(1, min(moments, 2))]:
        run = bench.root / f"clock-{budget}"
        command = [sys.executable, "-m", "n3net", "train", bench.config, "--budget", f"{budget}s", "--runs", run]
        done = subprocess.run(
            [*command, "save_every=50"],
            env={**os.environ, "LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        text = done.stdout + done.stderr
        found.see("tracebacks", "Traceback" in text, text[-1500:])
        state = torch.load(max((run / "checkpoints").glob("*.pt")), weights_only=True)["state"]
        found.see("differences", not budget <= state["elapsed"] < budget + 1, f"{state['elapsed']} s of {budget}")
        found["moments"] += 1
    return found


def little_memory(bench: Bench, moments: int) -> Found:
    """Address space that ends somewhere (ulimit -v)."""
    found = Found()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for i in range(moments):
        limit = used + 1_000_000 * (4 + 200 * i // max(moments, 1))

        def limits(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        out, run = bench.root / "memory", bench.root / "memory-run"
        for folder in (out, run):
            shutil.rmtree(folder, ignore_errors=True)
        process = bench.batch(out, limits=limits).finish(found)
        found.look(process)
        _note(process, found)
        bench.check_outputs(out, found)
        process = bench.train(run, limits=limits).finish(found)
        found.look(process)
        _note(process, found)
        found.look(bench.train(run).finish(found))
        bench.check_run(run, found)
        found["moments"] += 2
    return found


def _note(process: Process, found: Found) -> None:
    """How a process without memory ended; libraries may abort it, which must do no harm either."""
    kind = "done all the same" if process.code == 0 else "by words" if process.code in (1, 2) else "died"
    found[kind] += 1
    if kind == "died":
        print(f"    died with code {process.code}: {process.text()[-300:]!r}", flush=True)


# Name -> what is done, and how many times for 100 moments of each kind of kill.
FAULTS: dict[str, tuple[Callable[[Bench, int], Found], float]] = {
    "kills-batch": (killed_batches, 1.0),
    "kills-training": (killed_trainings, 1.0),
    "disk": (full_disks, 0.2),
    "ulimit-f": (full_files, 0.1),
    "folders": (folders, 0.2),
    "two": (two_at_once, 0.1),
    "clock": (jumping_clocks, 0.02),
    "memory": (little_memory, 0.2),
}


def run(moments: int, seed: int, only: list[str]) -> int:
    """All faults, in a folder that is removed afterwards; the number of things that were found."""
    torch.set_num_threads(1)
    total = 0
    with tempfile.TemporaryDirectory(prefix="n3net-faults-") as folder:
        bench = Bench(Path(folder), seed)
        print(f"undisturbed: a batch {bench.batch_seconds:.2f} s, a training {bench.train_seconds:.2f} s", flush=True)
        for name in only:
            function, share = FAULTS[name]
            start = time.monotonic()
            try:
                found = function(bench, max(1, round(share * moments)))
            except subprocess.CalledProcessError as error:
                print(f"{name:15s} skipped: {error.cmd[0]} is not possible here ({error.stderr.decode().strip()})")
                continue
            except FileNotFoundError as error:
                print(f"{name:15s} skipped: there is no {error.filename}")
                continue
            wrong = sum(found[what] for what in FOUND)
            total += wrong
            tried = ", ".join(f"{found[what]} {what}" for what in found if what not in FOUND)
            words = ", ".join(f"{found[what]} {what}" for what in FOUND)
            print(f"{name:15s} {tried}: {words}  ({time.monotonic() - start:.0f} s)", flush=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(FAULTS))
    given = parser.parse_args()
    return 1 if run(given.moments, given.seed, given.only.split(",")) else 0


if __name__ == "__main__":
    sys.exit(main())
