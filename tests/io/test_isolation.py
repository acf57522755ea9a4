"""Calls in a process of their own: what they give back, and what their ends cost."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from n3net.errors import UserError
from n3net.io import read_image
from n3net.io.isolation import Worker, WorkerError, isolated


def test_results_come_back_whole() -> None:
    array = np.arange(300_000, dtype=np.uint16).reshape(3, 100, 1000)
    back = isolated(np.flip, array, axis=1)
    assert back.dtype == array.dtype
    assert np.array_equal(back, np.flip(array, 1))
    back[0, 0, 0] = 1  # as an array that was made here
    assert isolated(dict, a=[1, "é", None]) == {"a": [1, "é", None]}


def test_the_process_is_another_one_and_is_kept() -> None:
    first = isolated(os.getpid)
    assert first != os.getpid()
    assert isolated(os.getpid) == first


def test_names_are_relative_to_the_folder_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        monkeypatch.chdir(tmp_path / name)
        assert isolated(Path.read_text, Path("file")) == name


def test_exceptions_pass_through(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file") as caught:
        isolated(read_image, tmp_path / "none.png")
    assert type(caught.value) is UserError
    with pytest.raises(ValueError, match="invalid literal"):
        isolated(int, "five")
    process = isolated(os.getpid)
    with pytest.raises(KeyError):
        isolated({}.__getitem__, 1)
    assert isolated(os.getpid) == process, "an exception is no reason for another process"


def test_a_process_that_dies_costs_its_call_only() -> None:
    with Worker() as worker:
        before = worker.call(os.getpid)
        with pytest.raises(WorkerError, match=r"string_at: its process died \(SIGSEGV, Segmentation fault\)"):
            worker.call(ctypes.string_at, 0)
        with pytest.raises(WorkerError, match=r"_exit: its process died \(exit code 3\)"):
            worker.call(os._exit, 3)
        assert worker.call(os.getpid) != before


def test_a_process_that_is_killed_between_calls_is_replaced() -> None:
    with Worker() as worker:
        os.kill(worker.call(os.getpid), signal.SIGKILL)
        with contextlib.suppress(WorkerError):  # while it is not yet known to be dead
            worker.call(abs, -1)
        assert worker.call(abs, -1) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits on memory are Linux's")
def test_memory_is_limited_for_the_call() -> None:
    with pytest.raises(WorkerError, match="bytearray: it needs more memory than the 50 MB"):
        isolated(bytearray, 200_000_000, memory=50_000_000)
    assert len(isolated(bytearray, 200_000_000, memory=500_000_000)) == 200_000_000
    assert len(isolated(bytearray, 200_000_000)) == 200_000_000


def test_time_is_limited() -> None:
    with pytest.raises(WorkerError, match=r"sleep: not done after 0.2 s"):
        isolated(time.sleep, 600, seconds=0.2)
    assert isolated(abs, -2, seconds=60) == 2


def test_what_cannot_be_sent_or_answered_is_said() -> None:
    with pytest.raises((AttributeError, TypeError, ValueError)):
        isolated(lambda: 1)
    with pytest.raises((RuntimeError, TypeError), match="pickle"):
        isolated(threading.Lock)
    assert isolated(abs, -3) == 3


def test_what_a_function_prints_is_no_answer() -> None:
    assert isolated(print, "on standard error") is None
    assert isolated(os.write, 1, b"too\n") == 4
    assert isolated(os.read, 0, 10) == b"", "its standard input is not that of the requests"


def test_threads_may_call_at_once() -> None:
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda n: isolated(pow, n, 3), range(40)))
    assert results == [n**3 for n in range(40)]


def test_scripts_without_a_guard_can_use_it(tmp_path: Path) -> None:
    """Those of multiprocessing would run the script again."""
    import subprocess

    script = tmp_path / "script.py"
    script.write_text("from n3net.io.isolation import isolated\nprint(isolated(abs, -7))\n")
    (tmp_path / "pickle.py").write_text("raise SystemExit('a file of the current folder was imported')\n")
    path = os.pathsep.join([str(Path(read_image.__code__.co_filename).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-P", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
    )
    assert done.stdout == "7\n", done.stderr
