"""``n3net serve`` as its clients know it: a server process, asked over HTTP, and by a browser where there is one."""

from __future__ import annotations

import atexit
import http.client
import io
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from n3net.bench.harness import Round, Sample
from n3net.bench.inference import forward
from n3net.bench.made_up import picture
from n3net.bench.measure import timed

VISIBLE = (600, 800)  # height and width of what is previewed
ALLOWED = 0.5  # seconds beside the network's
JOBS, CLIENTS = 20, 4
SIDE = 320  # pixels of the photographs that many clients send
HOSTILE = 500


class Page:
    """A server that is stopped when this process ends."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "n3net", "serve", "--no-browser", "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self.stop)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"http://([\d.]+):(\d+)/#token=(\S+)", line):
                self.host, self.port, self.token = found[1], int(found[2]), found[3]
                self.address = found[0]
                return
        raise RuntimeError("n3net serve did not start; it needs pip install 'n3net[web]'")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        """Status and content; a dict is sent as JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
        try:
            content = json.dumps(body) if isinstance(body, dict) else body
            connection.request(method, path, content, {"X-N3net-Token": self.token, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def add(self, content: bytes, name: str = "photo.jpg") -> str:
        status, answer = self.ask("POST", "/api/files", content, **{"X-Name": name})
        if status != 201:
            raise RuntimeError(f"the page refused a photograph: {answer.decode()}")
        return str(json.loads(answer)["id"])

    def jobs(self) -> list[dict[str, Any]]:
        return list(json.loads(self.ask("GET", "/api/state")[1])["jobs"])

    def memory(self) -> float:
        """MiB that the server and its workers hold."""
        total, waiting = 0, [self.process.pid]
        while waiting:
            pid = waiting.pop()
            try:
                status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
                waiting += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split())
            except OSError:
                continue
            total += next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)
        return total / 1024


def jpeg(height: int, width: int) -> bytes:
    file = io.BytesIO()
    # Colours at full resolution: otherwise they share their noise, which is then removed by a gray network from each.
    Image.fromarray(picture(height, width, 3)).save(file, "JPEG", quality=92, subsampling=0)
    return file.getvalue()


def first_preview(height: int = 3000, width: int = 4000) -> Round:
    """From the drop of a photograph to the preview of its middle, less what is allowed, over the network's own time."""
    from n3net.models.preparing import prepare
    from n3net.weights import load

    page, content = Page(), jpeg(height, width)
    tall, wide = VISIBLE
    box = [(width - wide) // 2, (height - tall) // 2, wide, tall]
    network = forward(prepare(load("color")), VISIBLE)

    def preview() -> str:
        name = page.add(content)
        status, answer = page.ask("POST", f"/api/files/{name}/preview", {"work": "denoise", "settings": {}, "box": box})
        if status != 200 or len(answer) != tall * wide * 3:
            raise RuntimeError(f"the page gave no preview: {answer[:300].decode(errors='replace')}")
        return name

    network()
    page.ask("DELETE", f"/api/files/{preview()}")

    def one_round() -> Sample:
        before = timed(network)
        start = time.perf_counter()
        name = preview()
        seconds = time.perf_counter() - start
        alone = (before + timed(network)) / 2
        page.ask("DELETE", f"/api/files/{name}")
        return Sample((seconds - ALLOWED) / alone, {"drop to preview (s)": seconds, "network (s)": alone})

    return one_round


def explorer(side: int = 512) -> Round:
    """Milliseconds in which the explorer answers a mouse position, all that is drawn included, in Chromium."""
    try:
        from selenium import webdriver
    except ImportError:
        raise RuntimeError("the explorer is measured in a browser: pip install selenium") from None
    driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or browser is None:
        raise RuntimeError("the explorer is measured in a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    page = Page()
    page.add(jpeg(side, side))
    tab = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    atexit.register(tab.quit)
    tab.get(page.address)
    tab.execute_script("location.hash = 'neighbours'")
    end = time.monotonic() + 300
    while not tab.execute_script("return Boolean(window.explorer)"):
        if time.monotonic() > end:
            raise RuntimeError("the explorer did not open")
        time.sleep(0.2)
    script = """
        const canvas = explorer.canvas, box = canvas.getBoundingClientRect(), start = performance.now();
        for (let i = 0; i < 20; i++) {
          const x = box.left + box.width * (0.1 + 0.04 * i), y = box.top + box.height * (0.2 + 0.03 * ((i * 7) % 20));
          canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y }));
          canvas.getContext("2d").getImageData(0, 0, 1, 1);  // what was asked for is drawn now
        }
        return (performance.now() - start) / 20;"""
    tab.execute_script(script)
    return lambda: Sample(float(tab.execute_script(script)))


def many_jobs() -> Round:
    """Peak memory of the server and its workers with 20 jobs of 4 clients, over that with one job."""

    def peak(clients: int, each: int) -> float:
        page, highest, done = Page(), 0.0, threading.Event()

        def send() -> None:
            names = [page.add(jpeg(SIDE, SIDE)) for _ in range(each)]
            for name in names:
                page.ask("POST", "/api/jobs", {"file": name, "work": "denoise", "settings": {}})

        def watch() -> None:
            nonlocal highest
            while not done.wait(0.1):
                highest = max(highest, page.memory())

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            threads = [threading.Thread(target=send) for _ in range(clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            while (jobs := page.jobs()) and {job["state"] for job in jobs} & {"waiting", "running"}:
                time.sleep(0.2)
        finally:
            done.set()
            watching.join()
            page.stop()
        if [job["state"] for job in jobs] != ["done"] * (clients * each):
            raise RuntimeError(f"not all jobs were done: {[job['state'] for job in jobs]}")
        return highest

    def one_round() -> Sample:
        one, all_ = peak(1, 1), peak(CLIENTS, JOBS // CLIENTS)
        return Sample(all_ / one, {"one job (MiB)": one, f"{JOBS} jobs of {CLIENTS} clients (MiB)": all_})

    return one_round


def hostile() -> Round:
    """Of 500 hostile requests, those that succeed; and one more if the server does not answer after them."""

    def one_round() -> Sample:
        page = Page()
        held: list[socket.socket] = []
        succeeded = sum(
            attack(page, number, held) for number in range(HOSTILE) for attack in [_ATTACKS[number % len(_ATTACKS)]]
        )
        alive = page.ask("GET", "/api/state")[0] == 200 and not json.loads(page.ask("GET", "/api/state")[1])["files"]
        for connection in held:
            connection.close()
        page.stop()
        return Sample(succeeded + (0 if alive else 1))

    return one_round


Attack = Callable[[Page, int, list[socket.socket]], bool]  # whether it got something


def _got(page: Page, method: str, path: str, body: Any = None, **headers: str) -> bool:
    return page.ask(method, path, body, **headers)[0] < 400


def _slow(page: Page, number: int, held: list[socket.socket]) -> bool:
    held.append(socket.create_connection((page.host, page.port)))
    held[-1].sendall(b"POST /api/files HTTP/1.1\r\nHost: ")
    return False


def _endless(page: Page, number: int, held: list[socket.socket]) -> bool:
    head = f"POST /api/jobs HTTP/1.1\r\nHost: {page.host}:{page.port}\r\nX-N3net-Token: {page.token}\r\n"
    with socket.create_connection((page.host, page.port), timeout=30) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        answer = b""
        try:
            for _ in range(200):
                connection.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
            answer = connection.recv(64)
        except OSError:
            pass
        return b" 200 " in answer or b" 201 " in answer


@cache
def _bomb() -> bytes:
    """268 megapixels in a few kilobytes."""
    file = io.BytesIO()
    Image.new("1", (1 << 14, 1 << 14)).save(file, "PNG")
    return file.getvalue()


def _request(method: str, path: str, body: Any = None, **headers: str) -> Attack:
    """An attack that is one request, the same each time."""
    return lambda page, number, held: _got(page, method, path, body, **headers)


_ATTACKS: list[Attack] = [
    _request("GET", "/api/state", Host="evil.example"),
    lambda page, n, held: _got(page, "GET", "/api/state", Host=f"evil.example:{page.port}"),
    _request("POST", "/api/jobs", {}, Origin="http://evil.example"),
    _request("OPTIONS", "/api/files", Origin="null"),
    lambda page, n, held: _got(page, "GET", "/api/state", **{"X-N3net-Token": f"{n:043d}"}),
    _request("GET", "/api/state", **{"Sec-Fetch-Site": "cross-site"}),
    lambda page, n, held: _got(page, "GET", f"/page/{'../' * (n % 9)}app.py"),
    lambda page, n, held: _got(page, "GET", f"/api/files/{'..%2f' * (n % 9)}etc%2fpasswd/tiles/0/0/0"),
    _request("POST", "/api/files", b"", **{"X-Name": "a.png", "Content-Length": "99999999999"}),
    _request("POST", "/api/files", b"no picture" * 200, **{"X-Name": "..%2f..%2fa.png"}),
    _request("POST", "/api/files", b"<svg/>", **{"X-Name": "a.svg"}),
    _request("POST", "/api/files", b"--x" * 5000, **{"Content-Type": "multipart/form-data; boundary=x"}),
    _request("POST", "/api/jobs", b"[" * 60_000),
    _request("POST", "/api/looks", {"file": "x", "model": "/etc/passwd"}),
    _request("GET", "/api/jobs/x/file", Range="bytes=" + ",".join(["0-1"] * 2000)),
    _slow,
    _endless,
    lambda page, n, held: _got(page, "POST", "/api/files", _bomb(), **{"X-Name": "a.png"}),
]
