"""What guards a run: against signals, a second process in its folder, and numbers that are none."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.tasks import Task
from n3net.tasks.data import Batch

PATIENCE = 60.0  # seconds that the processes before a restart have to end


def first_not_finite(net: nn.Module, task: Task, batch: Batch) -> str:
    """The first layer whose output is not finite, or the first parameters whose gradient is not."""
    found: list[str] = []

    def look(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
                found.append(name)

        return hook

    leaves = [(name, m) for name, m in net.named_modules() if not any(True for _ in m.children())]
    handles = [module.register_forward_hook(look(name)) for name, module in leaves]
    try:
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            with torch.no_grad():
                task.loss(net, batch)
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return f", first in the output of {found[0]}"
    for name, p in net.named_parameters():
        if p.grad is not None and not bool(torch.isfinite(p.grad).all()):
            return f", first in the gradient of {name}"
    return ""


@contextmanager
def on_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the loop to stop after its step; a second one stops at once."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {number: signal.getsignal(number) for number in numbers}

        def once(number: int, frame: Any) -> None:
            handle(number)
            for n in numbers:
                signal.signal(n, signal.SIG_DFL)

        for number in numbers:
            signal.signal(number, once)
    except ValueError:  # not in the main thread: no signals arrive here
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def only_one(run: Path) -> Iterator[None]:
    """Refuse to train in a folder in which another run trains. The first process of a run speaks for all of it."""
    first = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"
    if not first or sys.platform == "win32":
        yield
        return
    import fcntl

    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    until = time.monotonic() + (PATIENCE if again else 0)
    with (run / ".lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= until:
                    raise UserError(f"{run}: another process is training there") from None
                time.sleep(0.5)
        yield
