"""What has gone wrong in programs of this kind, and does not here: one test each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from n3net.errors import UserError
from n3net.serve.folder import PREFIX, remove_leftovers, run_folder
from n3net.serve.limits import Limits, RefusedError, limited
from n3net.serve.security import Guard, check_address, names_of
from n3net.serve.settings import attachment, box_of, client_name, suffix_of, work_of

API = "/api/state"


def client(server: Any, **headers: str) -> httpx.Client:
    return httpx.Client(base_url=server.address, headers={"X-N3net-Token": server.token, **headers}, timeout=60)


def png(width: int, height: int) -> bytes:
    import io

    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def add(web: httpx.Client, content: bytes, name: str = "a.png") -> httpx.Response:
    return web.post("/api/files", content=content, headers={"X-Name": name})


def raw_request(server: Any, text: str, wait: float = 10) -> bytes:
    """What comes back for bytes that no well-behaved client would send."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as connection:
        connection.sendall(text.encode())
        answer = b""
        while True:
            try:
                got = connection.recv(65536)
            except (TimeoutError, ConnectionResetError):
                return answer
            if not got:
                return answer
            answer += got


# Who is answered


def test_listens_on_loopback_only(server: Any) -> None:
    assert server.address.startswith("http://127.0.0.1:")
    addresses = ["127.0.0.2"] if sys.platform == "linux" else []  # all of 127/8 is this machine there
    with contextlib.suppress(OSError):
        addresses += [str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    for address in addresses:
        if address != "127.0.0.1":
            with socket.socket() as other:
                other.settimeout(2)
                assert other.connect_ex((address, server.port)) != 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", ""])
def test_all_addresses_at_once_are_refused(host: str) -> None:
    with pytest.raises(UserError, match="--host"):
        check_address(host)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", ["/", API])
def test_other_hosts_are_not_served(server: Any, host: str, method: str, path: str) -> None:
    with client(server, Host=host.format(port=server.port)) as web:
        answer = web.request(method, path)
    assert answer.status_code == 421
    assert "files" not in answer.text
    assert "access-control-allow-origin" not in answer.headers


def test_own_names_are_served(server: Any) -> None:
    for host in (f"127.0.0.1:{server.port}", f"localhost:{server.port}", f"LOCALHOST:{server.port}"):
        with client(server, Host=host) as web:
            assert web.get(API).status_code == 200
    assert names_of("192.168.0.7", 80) == {"192.168.0.7:80", "192.168.0.7"}


def test_two_hosts_and_none_are_refused(server: Any) -> None:
    host = f"Host: 127.0.0.1:{server.port}\r\n"
    token = f"X-N3net-Token: {server.token}\r\n"
    for heads in ("", f"{host}Host: evil.example\r\n", f"Host: evil.example\r\n{host}"):
        answer = raw_request(server, f"GET {API} HTTP/1.1\r\n{heads}{token}Connection: close\r\n\r\n")
        assert answer.split()[1] in (b"400", b"421")
    answer = raw_request(server, f"GET {API} HTTP/1.0\r\n{token}\r\n")
    assert answer.split()[1] in (b"400", b"421")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1", "http://localhost:1"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE", "PUT"])
def test_other_origins_are_not_served(server: Any, origin: str, method: str) -> None:
    with client(server, Origin=origin.format(port=server.port)) as web:
        answer = web.request(method, API)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_browsers_send_for_other_sites_is_not_served(server: Any, site: str) -> None:
    with client(server, **{"Sec-Fetch-Site": site}) as web:
        assert web.get(API).status_code == 403
        assert web.get("/page/app.js").status_code == 403
        assert web.get("/").status_code == 200  # somebody follows a link; nothing is in the page without the token


@pytest.mark.parametrize("token", ["", "x", "x" * 43])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", API), ("POST", "/api/files"), ("DELETE", "/api/files/a"), ("GET", "/api/x")]
)
def test_every_call_needs_the_token(server: Any, token: str, method: str, path: str) -> None:
    with client(server, **{"X-N3net-Token": token}) as web:
        assert web.request(method, path).status_code == 401
        assert web.request(method, f"{path}?token={server.token}").status_code == 401
        assert web.request(method, path, cookies={"token": server.token}).status_code == 401


def test_there_are_no_websockets(server: Any) -> None:
    heads = f"Host: 127.0.0.1:{server.port}\r\nX-N3net-Token: {server.token}\r\n"
    heads += "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    assert b" 101 " not in raw_request(server, f"GET /api/nothing HTTP/1.1\r\n{heads}{key}\r\n", wait=1)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def nobody(*_: Any) -> None:
        raise AssertionError("a WebSocket reached the application")

    asyncio.run(Guard(nobody, {"x"}, "t", Limits())({"type": "websocket"}, nobody, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/api/state", "/nothing", "/api/files/x/tiles/0/0/0"])
def test_every_answer_has_the_headers(server: Any, path: str) -> None:
    with client(server) as web:
        headers = web.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


def test_the_page_has_no_script_of_its_own_and_fetches_nothing_from_elsewhere(server: Any) -> None:
    from n3net.serve.pages import page_files

    for path, file in page_files().items():
        text = file.content.decode()
        assert "https://" not in text, path
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), path
        if path == "/":
            assert "<script>" not in text
            assert "style=" not in text
            assert " on" not in text.replace(" only", "")


# Files


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page",
        "/page/../app.py",
        "/page/%2e%2e/app.py",
        "/page/..%2fapp.py",
        "//etc/passwd",
        "/page/app.js/",
        "/src",
        "/docs",
        "/openapi.json",
        "/api/files/../../etc/passwd/tiles/0/0/0",
    ],
)
def test_no_path_of_a_client_is_opened(server: Any, path: str) -> None:
    heads = f"Host: 127.0.0.1:{server.port}\r\nX-N3net-Token: {server.token}\r\nConnection: close\r\n"
    answer = raw_request(server, f"GET {path} HTTP/1.1\r\n{heads}\r\n")
    assert answer.split()[1] in (b"404", b"307", b"405")
    assert b"root:" not in answer
    assert b"import" not in answer


def test_names_of_clients_are_used_in_headers_only(server: Any, tmp_path: Path) -> None:
    name = "..%2F..%2F%C3%A9%22%0D%0AX-Evil%3A%201%00.png"
    with client(server) as web:
        photo = add(web, png(24, 24), name).json()
        inside = [path.name for path in server.temporary.rglob("*")]
        assert photo["name"] == 'é"X-Evil: 1.png'
        assert not [n for n in inside if "Evil" in n or "é" in n]
        web.delete(f"/api/files/{photo['id']}")
    assert attachment('é"\r\nx.png') == {"Content-Disposition": "attachment; filename*=UTF-8''%C3%A9%22%0D%0Ax.png"}
    assert client_name("C%3A%5Cfotos%5Ca.png") == "a.png"
    assert client_name("/etc/passwd") == "passwd"
    assert client_name("..") == "image"
    assert len(client_name("a" * 5000 + ".png")) < 200


def test_a_file_that_is_removed_leaves_nothing(server: Any) -> None:
    before = {path.name for path in server.temporary.rglob("*")}
    with client(server) as web:
        photo = add(web, png(40, 30)).json()
        assert {path.name for path in server.temporary.rglob("*")} > before
        assert web.delete(f"/api/files/{photo['id']}").status_code == 200
        assert web.get(f"/api/files/{photo['id']}/tiles/0/0/0").status_code == 404
    assert {path.name for path in server.temporary.rglob("*")} == before


@pytest.mark.parametrize("name", ["a.gif", "a.svg", "a", "a.png.exe"])
def test_other_kinds_of_files_are_refused_in_words(server: Any, name: str) -> None:
    with client(server) as web:
        answer = add(web, b"GIF89a", name)
    assert answer.status_code == 422
    assert ".png" in answer.json()["error"]
    with pytest.raises(UserError):
        suffix_of(name)


# How much


def test_a_body_that_says_it_is_too_long_is_not_read(server: Any) -> None:
    heads = f"Host: 127.0.0.1:{server.port}\r\nX-N3net-Token: {server.token}\r\nX-Name: a.png\r\n"
    answer = raw_request(server, f"POST /api/files HTTP/1.1\r\n{heads}Content-Length: 9999999999\r\n\r\n")
    assert answer.split()[1] == b"413"
    answer = raw_request(server, f"POST /api/jobs HTTP/1.1\r\n{heads}Content-Length: 100000\r\n\r\n")
    assert answer.split()[1] == b"413"


def test_a_body_without_end_is_cut_off(server: Any) -> None:
    def endless() -> Any:
        while True:
            yield b" " * 4096

    with client(server) as web:
        with contextlib.suppress(httpx.WriteError):  # the server closes the connection while we are sending
            assert web.post("/api/jobs", content=endless()).status_code == 413
        assert web.get(API).status_code == 200


def bodies(*parts: bytes) -> Any:
    """A client that sends parts, and then nothing."""
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]

    async def receive() -> Any:
        if waiting:
            return waiting.pop(0)
        await asyncio.sleep(60)

    return receive


def drain(receive: Any, times: int) -> None:
    async def main() -> None:
        for _ in range(times):
            await receive()

    asyncio.run(main())


def test_a_client_that_stops_sending_is_refused() -> None:
    limits = Limits(silence=0.05)
    with pytest.raises(RefusedError, match="nothing arrived") as refused:
        drain(limited(bodies(b"a"), 100, limits), 2)
    assert refused.value.status == 408


def test_a_client_that_sends_slowly_is_refused() -> None:
    seconds = iter([0.0, 10.0, 30.0, 300.0])
    limits = Limits(silence=20, slowest=1000)
    receive = limited(bodies(b"a" * 10, b"a" * 10_000, b"a"), 100_000, limits, lambda: next(seconds))
    with pytest.raises(RefusedError, match="slower than") as refused:
        drain(receive, 3)
    assert refused.value.status == 408


def test_too_much_is_refused_while_it_arrives() -> None:
    with pytest.raises(RefusedError, match="more than") as refused:
        drain(limited(bodies(b"a" * 60, b"a" * 60), 100, Limits()), 2)
    assert refused.value.status == 413


def test_a_form_with_many_parts_is_refused(server: Any) -> None:
    with client(server) as web:
        answer = web.post("/api/files", files=[("f", ("a.png", b"x"))] * 500)
    assert answer.status_code == 415
    assert "not a form" in answer.json()["error"]


def bomb(width: int, height: int) -> bytes:
    """A PNG file of a few bytes that says it has so many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (bomb(60_000, 60_000), "more than the limit of 100 megapixels"),
        (bomb(2_000_000_000, 2), "megapixels"),
        (bomb(3000, 3000), ""),
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n", ""),
        (b"<svg/>", ""),
        (os.urandom(3000), ""),
    ],
)
def test_files_that_are_no_pictures_are_refused_in_words_and_leave_nothing(
    server: Any, content: bytes, words: str
) -> None:
    before = {path.name for path in server.temporary.rglob("*")}
    with client(server) as web:
        answer = add(web, content)
        assert answer.status_code in (400, 422)
        assert words in answer.json()["error"]
        assert "Traceback" not in answer.text
        assert str(server.temporary) not in answer.text
        assert web.get(API).json()["files"] == []
    assert {path.name for path in server.temporary.rglob("*")} == before


@pytest.mark.parametrize(
    "ranges", ["bytes=0-1", "bytes=" + ",".join(f"{i}-{i}" for i in range(3000)), "bytes=" + "0-," * 5000]
)
def test_many_ranges_are_not_made(server: Any, ranges: str) -> None:
    with client(server) as web:
        photo = add(web, png(16, 16)).json()
        answer = web.get(f"/api/files/{photo['id']}/tiles/0/0/0", headers={"Range": ranges})
        assert answer.status_code == 200
        assert len(answer.content) == 16 * 16 * 3
        web.delete(f"/api/files/{photo['id']}")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[", b"[]", b"null", b"1e999", b'{"work": "rm"}',
        b'{"work": "denoise", "settings": {"model": "/etc/passwd"}}',
        b'{"work": "denoise", "settings": {"sigma": 1e300}}', b'{"work": "denoise", "settings": {"sigma": NaN}}',
        b'{"work": "denoise", "settings": {"device": "cuda"}}', b'{"work": "upscale", "settings": {"factor": 4000}}',
        b'{"work": "denoise", "settings": [1]}', b'{"file": {"a": 1}, "work": "denoise"}', b"[" * 50_000,
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_in_words(server: Any, content: bytes) -> None:
    with client(server) as web:
        answer = web.post("/api/jobs", content=content)
        assert answer.status_code in (400, 404, 422)
        assert answer.json()["error"]
        assert web.post("/api/matches", content=content).status_code in (400, 404, 422)
        assert web.post("/api/looks", content=content).status_code in (400, 404, 422)


def test_settings_are_those_of_the_commands() -> None:
    from n3net.jobs.denoising import Denoise
    from n3net.jobs.upscaling import Upscale

    assert work_of({"work": "denoise", "settings": {"sigma": 12}}) == Denoise(sigma=12.0)
    assert work_of({"work": "upscale", "settings": {"factor": 1.5}}) == Upscale(factor=1.5)
    with pytest.raises(UserError, match="--real"):
        work_of({"work": "denoise", "settings": {"sigma": 12, "real": True}})
    with pytest.raises(UserError, match="box"):
        box_of([1, 2, 3])


def test_requests_without_a_head_do_not_keep_others_waiting(server: Any) -> None:
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]
    for connection in slow:
        connection.sendall(b"GET / HTTP/1.1\r\nHost:")
    try:
        with client(server) as web:
            assert web.get(API).status_code == 200
    finally:
        for connection in slow:
            connection.close()


def test_errors_of_the_program_are_not_shown_to_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    from n3net.serve.app import Server, build

    async def broken(*_: Any) -> Any:
        raise RuntimeError("secret of the program")

    async def main() -> Any:
        server = Server(tmp_path, Limits())
        monkeypatch.setattr(server, "state", broken)
        return build(server, {"testserver"}, "t")

    web = TestClient(asyncio.run(main()), raise_server_exceptions=False)
    answer = web.get(API, headers={"X-N3net-Token": "t"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "terminal" in answer.json()["error"]


# The folder


def test_the_folder_is_gone_after_it_was_used(tmp_path: Path) -> None:
    with run_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert remove_leftovers(tmp_path) == []  # somebody uses it
        assert folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_others_and_links_stay(tmp_path: Path) -> None:
    target = tmp_path / "photos"
    target.mkdir()
    (target / "lock").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    (tmp_path / f"{PREFIX}file").touch()
    assert remove_leftovers(tmp_path) == []
    assert (target / "lock").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_stopped_leaves_nothing(
    tmp_path: Path, small_weights: Path, start_server: Any, how: int
) -> None:
    running = start_server(tmp_path, small_weights)
    with client(running) as web:
        assert add(web, png(16, 16)).status_code == 201
    running.stop(how)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_was_killed_leaves_nothing_after_the_next_start(
    tmp_path: Path, small_weights: Path, start_server: Any
) -> None:
    running = start_server(tmp_path, small_weights)
    with client(running) as web:
        assert add(web, png(16, 16)).status_code == 201
    running.stop(signal.SIGKILL)
    left = list(tmp_path.iterdir())
    assert len(left) == 1
    assert remove_leftovers(tmp_path) == left
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_is_missing_and_what_is_wrong(command: Any) -> None:
    code, _, said = command("serve", "--host", "0.0.0.0", "--no-browser")
    assert code == 2
    assert "name the one to listen on" in said
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, said = command("serve", "--port", str(taken.getsockname()[1]), "--no-browser")
    assert code == 2
    assert "give another --port" in said
