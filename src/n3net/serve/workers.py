"""Worker processes of the server: one for what somebody waits for, one for the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from n3net.io.isolation import Worker

R = TypeVar("R")


class Lane:
    """One process, one call at a time; others wait for their turn."""

    def __init__(self, memory: int, seconds: float) -> None:
        self._worker = Worker(memory, seconds)
        self._turn = asyncio.Lock()

    async def call(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        async with self._turn:
            try:
                return await asyncio.to_thread(self._worker.call, function, *args, **kwargs)
            except asyncio.CancelledError:
                self._worker.kill()  # nobody waits any more, and the next call is not to wait either
                raise

    def stop(self) -> None:
        """End the call that runs; the next one starts a new process."""
        self._worker.kill()

    def close(self) -> None:
        self._worker.kill()
        self._worker.close()
