"""From the command to a server that listens, and back when it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import webbrowser
from collections.abc import Callable
from typing import Any

from n3net.errors import UserError
from n3net.serve.folder import run_folder
from n3net.serve.limits import Limits
from n3net.serve.security import check_address, names_of, new_token

HEADS = 20.0  # seconds in which the head of a request has to arrive


def serve(host: str, port: int | None, browser: bool, limits: Limits, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Args:
        host: the address to listen on.
        port: None for the usual one, or any that is free.
        browser: whether to open the page.
        limits: of what clients may ask for.
        tell: is given the address of the page.
    """
    try:
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol

        from n3net.serve.app import Server, build
    except ImportError as error:
        raise UserError(f"the page needs the package {error.name}: pip install 'n3net[web]'") from None

    class Protocol(_Hasty, H11Protocol):
        pass

    class Stoppable(uvicorn.Server):
        """Tells those who wait for news that there will be none, instead of waiting for them."""

        def __init__(self, config: uvicorn.Config, stop: Callable[[], None]) -> None:
            super().__init__(config)
            self._stop = stop

        def handle_exit(self, sig: int, frame: Any) -> None:
            self._stop()
            super().handle_exit(sig, frame)

    listening = _listen(check_address(host), port)
    token, names = new_token(), names_of(*listening.getsockname()[:2])
    place = f"[{host}]" if ":" in host else host
    address = f"http://{place}:{listening.getsockname()[1]}/#token={token}"
    with contextlib.closing(listening), run_folder() as folder:

        async def main() -> None:
            server = Server(folder, limits)
            config = uvicorn.Config(
                build(server, names, token),
                http=Protocol,
                ws="none",
                lifespan="on",
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=10,
                timeout_graceful_shutdown=2,
            )
            tell(address)
            if browser:
                asyncio.get_running_loop().run_in_executor(None, webbrowser.open, address)
            await Stoppable(config, server.stop).serve([listening])

        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(main())


class _Hasty:
    """A connection that is closed when the head of a request does not arrive in time: uvicorn waits forever."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)  # type: ignore[misc]
        if self._idle():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)  # type: ignore[misc]

    def _idle(self) -> bool:
        """Whether no request is being answered."""
        cycle = getattr(self, "cycle", None)
        return cycle is None or bool(cycle.response_complete)

    def _wait(self) -> None:
        if getattr(self, "_patience", None) is None:
            self._patience: Any = asyncio.get_running_loop().call_later(HEADS, self._give_up)

    def _stop_waiting(self) -> None:
        patience, self._patience = getattr(self, "_patience", None), None
        if patience is not None:
            patience.cancel()

    def _give_up(self) -> None:
        self._patience = None
        if self._idle():
            self.transport.close()  # type: ignore[attr-defined]


USUAL = 8421


def _listen(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in (USUAL, 0) if port is None else (port,):
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
            listening.listen(128)  # who comes before the server is ready waits, instead of being turned away
            return listening
        except OSError as error:
            listening.close()
            reason = error.strerror or str(error)
    raise UserError(f"{host}, port {number}: cannot listen there ({reason}); give another --port")
