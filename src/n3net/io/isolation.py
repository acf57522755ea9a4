"""Calls in a process of their own, whose end costs the call and not the program.

Decoders are written in C, and a broken file may make them write where they should not, take all memory or never end.
Workers are plain Python processes that are started when they are needed and kept for the next call. Unlike those of
multiprocessing they never run a program's main file again, so they serve scripts too.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

from n3net.errors import UserError

R = TypeVar("R")

# -P: nothing that lies in the current folder is imported. What is sent first says where modules are found.
START = "import pickle, sys; sys.path = pickle.load(sys.stdin.buffer); from n3net.io.isolation import serve; serve()"
PATIENCE = 5.0  # seconds that a process which closed its pipes has to be gone


class WorkerError(UserError):
    """A process ended, or reached a limit, before it had a result."""


class Worker:
    """A process that does one call at a time. It is started by the first, and anew by the first after its end.

    Args:
        memory: bytes that a call may take beside those the process has before it, or None; by RLIMIT_AS, where there
            is one.
        seconds: that a call may last, or None; those it takes to start the process do not count.
        quiet: drop what functions print, and decoders complain about, instead of showing it as standard error.
    """

    def __init__(self, memory: int | None = None, seconds: float | None = None, quiet: bool = False) -> None:
        self.memory, self.seconds, self.quiet = memory, seconds, quiet
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def call(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """``function(*args, **kwargs)``, there.

        Args:
            function: one that a module has by its name, so that it can be imported there.
            args, kwargs: anything that can be pickled, as the result must be.

        Raises:
            WorkerError: the process died, or the call reached a limit.
            Exception: whatever the function raised, unchanged.
        """
        with self._lock:
            return self._call(function, args, kwargs)

    def _call(self, function: Callable[..., R], args: Any, kwargs: Any) -> R:
        name = getattr(function, "__qualname__", repr(function))
        request = _packed((function, args, kwargs, self.memory, _folder()))  # first: it may not be possible
        process, pipes = self._started()
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        alarm = threading.Timer(self.seconds or 0, stop)
        alarm.daemon = True
        try:
            if self.seconds is not None:
                alarm.start()
            _send(pipes[0], request)
            failed, result = _receive(pipes[1])
        except (OSError, EOFError):
            code = self._end(PATIENCE)
            if late.is_set():
                raise WorkerError(f"{name}: not done after {self.seconds:g} s, it was stopped") from None
            raise WorkerError(f"{name}: its process died ({_cause(code)})") from None
        except BaseException:  # an interrupt: nobody would read the answer
            self._end()
            raise
        finally:
            alarm.cancel()
        if not failed:
            return result
        if isinstance(result, MemoryError) and self.memory is not None:
            raise WorkerError(f"{name}: it needs more memory than the {self.memory / 1e6:,.0f} MB it may take")
        raise result

    def _started(self) -> tuple[subprocess.Popen[bytes], tuple[IO[bytes], IO[bytes]]]:
        """The process, with its modules imported, and the pipes to it and from it."""
        if self._process is not None and self._process.poll() is not None:
            self._end()
        fresh = self._process is None
        process = self._process = self._process or subprocess.Popen(
            [sys.executable, "-P", "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if self.quiet else None,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        if fresh:
            try:
                process.stdin.write(pickle.dumps([path or _folder() or path for path in sys.path]))
                process.stdin.flush()
                _receive(process.stdout)
            except (OSError, EOFError):
                raise WorkerError(f"a worker process did not start ({_cause(self._end(PATIENCE))})") from None
            except BaseException:
                self._end()
                raise
        return process, (process.stdin, process.stdout)

    def _end(self, patience: float = 0.0) -> int:
        """End the process, at once or when it had some time to end by itself, and tell how it ended."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # what was not sent
                pipe.close()  # type: ignore[union-attr]
        return code

    def kill(self) -> None:
        """End the process at once, in the middle of a call of another thread if there is one."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process, if it runs; another call would start one."""
        with self._lock:
            self._end()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_idle: list[Worker] = []  # those between calls
_idle_lock = threading.Lock()


def isolated(
    function: Callable[..., R], *args: Any, memory: int | None = None, seconds: float | None = None, **kwargs: Any
) -> R:
    """``function(*args, **kwargs)`` in a process that is kept for the next call; see :class:`Worker`.

    As many threads as there are may call; there are then as many processes.
    """
    with _idle_lock:
        worker = _idle.pop() if _idle else Worker(quiet=True)
    worker.memory, worker.seconds = memory, seconds
    try:
        return worker.call(function, *args, **kwargs)
    finally:
        with _idle_lock:
            _idle.append(worker)


@atexit.register
def close_idle() -> None:
    """End the processes of :func:`isolated` that wait for calls."""
    with _idle_lock:
        workers = [_idle.pop() for _ in range(len(_idle))]
    for worker in workers:
        worker.close()


if hasattr(os, "register_at_fork"):  # a forked process must not speak to the workers of its parent
    os.register_at_fork(after_in_child=_idle.clear)


def serve() -> None:
    """What a worker process does: calls from its standard input, answers to its standard output, until that ends.

    When its input ends, whoever asked is gone, and nobody wants the rest of a call.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")  # as in the command line
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the caller decides
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what functions print is not an answer
    calls: queue.SimpleQueue[list[bytearray]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=[requests, calls], daemon=True).start()
    with contextlib.suppress(OSError):
        _send(answers, _packed("ready"))
        while True:
            _send(answers, _answer(*_unpacked(calls.get())))


def _listen(requests: IO[bytes], calls: queue.SimpleQueue[list[bytearray]]) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            calls.put(_parts(requests))
    os._exit(0)


def _folder() -> str | None:
    """The current one, which names of files may be relative to; None where it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _answer(function: Callable[..., Any], args: Any, kwargs: Any, memory: int | None, folder: str | None) -> list[Any]:
    """Whether it failed, and the result or the exception."""
    try:
        if folder is not None:
            os.chdir(folder)
        with _memory_limit(memory):
            result = function(*args, **kwargs)
        return _packed((False, result))
    except Exception as error:
        try:
            packed = _packed((True, error))
            pickle.loads(packed[0], buffers=packed[1:])  # some exceptions can be written and not read
            return packed
        except Exception:
            return _packed((True, RuntimeError(f"{type(error).__name__}: {error}")))


@contextlib.contextmanager
def _memory_limit(memory: int | None) -> Iterator[None]:
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        memory = None
    if memory is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = used + memory if before[1] == resource.RLIM_INFINITY else min(used + memory, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"signal {-code}"
    return f"{number.name}, {signal.strsignal(number) or 'a signal'}"


def _packed(value: Any) -> list[Any]:
    """A pickle and, apart from it and not copied, the memory of the arrays in it."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, 5, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]


def _send(pipe: IO[bytes], parts: list[Any]) -> None:
    sizes = [memoryview(part).nbytes for part in parts]
    pipe.write(b"".join(n.to_bytes(8, "little") for n in (len(parts), *sizes)))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    return _unpacked(_parts(pipe))


def _parts(pipe: IO[bytes]) -> list[bytearray]:
    count = int.from_bytes(_exactly(pipe, 8), "little")
    sizes = [int.from_bytes(_exactly(pipe, 8), "little") for _ in range(count)]
    return [_exactly(pipe, n) for n in sizes]


def _unpacked(parts: list[bytearray]) -> Any:
    """What was packed; arrays can be written to, as if they were made here."""
    head, *buffers = parts
    return pickle.loads(head, buffers=buffers)


def _exactly(pipe: IO[bytes], size: int) -> bytearray:
    data, done = bytearray(size), 0
    view = memoryview(data)
    while done < size:
        got = pipe.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError
        done += got
    return data
