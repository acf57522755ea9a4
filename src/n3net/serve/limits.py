"""How much clients may ask for, and requests that are refused in words when they ask for more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from n3net.errors import UserError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Of one server.

    Args:
        file_bytes: of an upload.
        all_bytes: of all uploads that are there.
        files: that are there, and jobs that are.
        megapixels: of an image.
        all_megapixels: of all images that are there.
        uploads: at the same time.
        words_bytes: of a request that is no upload.
        silence: seconds in which something has to arrive.
        slowest: bytes a second of an upload, on average after the first ``silence``.
        memory: bytes that a worker process may take for one call.
        look_seconds: that a call may last which somebody waits for.
        job_seconds: that a job in the queue may last.
    """

    file_bytes: int = 500 * MB
    all_bytes: int = 8_000 * MB
    files: int = 200
    megapixels: float = 100
    all_megapixels: float = 1000
    uploads: int = 8
    words_bytes: int = 64_000
    silence: float = 15.0
    slowest: float = 20_000.0
    memory: int = 12_000 * MB
    look_seconds: float = 300.0
    job_seconds: float = 4 * 3600.0

    @property
    def pixels(self) -> int:
        return int(self.megapixels * 1e6)


class RefusedError(UserError):
    """A request that is not served: its status in HTTP, and why in words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def limited(receive: Receive, most: int, limits: Limits, clock: Callable[[], float] = time.monotonic) -> Receive:
    """The body of a request as it arrives, refused as soon as it is too long, too slow, or stops."""
    start, got = clock(), 0

    async def next_part() -> Message:
        nonlocal got
        try:
            message = await asyncio.wait_for(receive(), limits.silence)
        except TimeoutError:
            raise RefusedError(408, f"nothing arrived for {limits.silence:g} s; send it again") from None
        got += len(message.get("body", b""))
        if got > most:
            raise RefusedError(413, f"more than {most / MB:g} MB; that is the limit for one request")
        late = clock() - start - limits.silence
        if late > 0 and message.get("more_body") and got < late * limits.slowest:
            raise RefusedError(408, f"slower than {limits.slowest / 1000:g} kB a second; send it again")
        return message

    return next_part


def declared_length(headers: MutableMapping[str, str] | Any, most: int) -> None:
    """Refuse a body that says itself that it is too long, before any of it is read."""
    length = headers.get("content-length", "0")
    if not length.isdigit():
        raise RefusedError(400, "Content-Length: expected a number of bytes")
    if int(length) > most:
        raise RefusedError(413, f"{int(length) / MB:.1f} MB, more than the limit of {most / MB:g} MB")
