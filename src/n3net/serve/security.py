"""Who is answered: the page that this server handed out, on this machine, and nobody else.

A browser that visits other sites lets them send requests to any address, also to this machine's own. Each request is
therefore checked before anything looks at it, whatever its method:

- ``Host`` must be one of ours. A name that somebody else made point here (DNS rebinding) is not.
- ``Origin``, where there is one, must be ours, and so must be what browsers say in ``Sec-Fetch-Site``.
- Everything but the page's own files needs the token, which was handed over in the fragment of the address. Fragments
  are not sent to servers, stand in no log and no ``Referer``, and other sites cannot read them; headers of this name
  cannot be sent by them without a permission (CORS) that is never given.

There are no WebSockets, no cookies, no forms.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from n3net.errors import UserError
from n3net.serve.limits import Limits, Receive, RefusedError, declared_length, limited

Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

TOKEN_HEADER = "x-n3net-token"
UPLOADS = "/api/files"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


def new_token() -> str:
    return secrets.token_urlsafe(32)


def names_of(host: str, port: int) -> frozenset[str]:
    """What ``Host`` may be for a server that listens on an address."""
    address = ipaddress.ip_address(host)
    names = {f"[{host}]" if address.version == 6 else host}
    if address.is_loopback:
        names |= {"localhost", "127.0.0.1", "[::1]"}
    return frozenset({f"{name}:{port}" for name in names} | ({*names} if port == 80 else set()))


def check_address(host: str) -> str:
    """An address to listen on; one that stands for all of them is refused, as requests could then have any Host."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise UserError(f"--host: expected an address of this machine such as 127.0.0.1, got {host!r}") from None
    if address.is_unspecified:
        raise UserError(f"--host {host} means all addresses of this machine; name the one to listen on")
    return str(address)


class Guard:
    """Around an application: refuses requests that do not come from the page, and adds headers to all answers."""

    def __init__(self, app: App, names: Iterable[str], token: str, limits: Limits) -> None:
        self.app, self.token, self.limits = app, token.encode(), limits
        self.names = frozenset(names)
        self.origins = frozenset(f"http://{name}" for name in self.names)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # WebSockets: there are none, and a refusal needs no words
            await send({"type": "websocket.close", "code": 1008})
            return
        started = False

        async def send_guarded(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                kept = [(k, v) for k, v in message.get("headers", []) if k.lower() != b"server"]
                message["headers"] = [*kept, *((k.lower().encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        try:
            headers = self._single(scope["headers"])
            self._check(scope, headers)
            most = self.limits.file_bytes if scope["path"] == UPLOADS else self.limits.words_bytes
            declared_length(headers, most)
            await self.app(scope, limited(receive, most, self.limits), send_guarded)
        except RefusedError as error:
            if started:
                raise
            await _refuse(send_guarded, error)

    def _single(self, pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
        """Headers by name; those that decide may be there only once."""
        headers: dict[str, str] = {}
        for name, value in pairs:
            key = name.decode("latin-1").lower()
            if key in headers and key in ("host", "origin", "content-length", TOKEN_HEADER):
                raise RefusedError(400, f"{key}: given twice")
            headers[key] = value.decode("latin-1")
        return headers

    def _check(self, scope: Any, headers: dict[str, str]) -> None:
        if headers.get("host", "").lower() not in self.names:
            raise RefusedError(421, "this address is not served here; use the one that 'n3net serve' printed")
        if "origin" in headers and headers["origin"].lower() not in self.origins:
            raise RefusedError(403, "requests from other sites are not served")
        visit = scope["path"] == "/" and scope["method"] == "GET"  # somebody may follow a link to the page
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not visit:
            raise RefusedError(403, "requests from other sites are not served")
        if scope["path"].startswith("/api/"):
            given = headers.get(TOKEN_HEADER, "").encode()
            if not hmac.compare_digest(given, self.token):
                raise RefusedError(401, "open the page with the whole address that 'n3net serve' printed")


async def _refuse(send: Send, error: RefusedError) -> None:
    import json

    body = json.dumps({"error": str(error)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    # What the client still sends is not read, so the connection cannot serve another request.
    await send(
        {"type": "http.response.start", "status": error.status, "headers": [*headers, (b"connection", b"close")]}
    )
    await send({"type": "http.response.body", "body": body})
