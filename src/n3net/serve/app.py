"""The server's routes: each takes a request apart, calls what the commands call, and puts an answer together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path, PurePath
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from n3net.errors import UserError
from n3net.serve import tasks
from n3net.serve.display import TILE, read_tile
from n3net.serve.folder import new_id
from n3net.serve.jobs import Queue
from n3net.serve.limits import Limits, RefusedError
from n3net.serve.pages import page_files
from n3net.serve.security import Guard
from n3net.serve.settings import attachment, box_of, client_name, number, options, work_of
from n3net.serve.uploads import Upload, Uploads
from n3net.serve.workers import Lane
from n3net.version import __version__

BINARY = "application/octet-stream"
PATIENCE = 20.0  # seconds until a client that waits for news hears that there are none
PIECE = 1 << 20  # bytes of a file that are sent at a time
LOOKS = 6  # that are kept
UNREAD = (408, 409, 413, 415, 503)  # answers to requests of which not all was read: the connection has no other use


class Server:
    """What one server has: files, jobs, looks, and the processes that work on them."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder, self.limits = folder, limits
        self.version, self._news, self._stopping = 0, asyncio.Event(), False
        self.soon = Lane(limits.memory, limits.look_seconds)
        self.late = Lane(limits.memory, limits.job_seconds)
        self.uploads = Uploads(folder, limits, self.soon, self.changed)
        self.queue = Queue(folder, limits, self.late, self.changed)
        self.looks: dict[str, tuple[Path, str]] = {}
        self._explorable: list[str] | None = None

    def changed(self) -> None:
        self.version += 1
        self._news.set()
        self._news = asyncio.Event()

    def stop(self) -> None:
        """Answer those who wait, at once, and end what runs."""
        self._stopping = True
        self.changed()
        self.soon.stop()
        self.late.stop()

    async def state(self, since: int) -> dict[str, Any]:
        """All files and jobs, as soon as something is newer than what the client knows."""
        if since == self.version and not self._stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), PATIENCE)
        return {
            "version": self.version,
            "files": [upload.state() for upload in self.uploads.files.values()],
            "jobs": [job.report() for job in self.queue.jobs.values()],
            "left": self.queue.left(),
        }

    async def explore(self, upload: Upload, content: dict[str, Any]) -> dict[str, Any]:
        """Look into the blocks of a network; the document is kept for a while."""
        model = content.get("model")
        if model not in await self.explorable():
            raise UserError(f"model: expected one of {', '.join(await self.explorable())}, got {model!r}")
        given = content.get("sigma")
        sigma = None if given is None else number(given, "sigma", 0, 255)
        noise = number(content.get("noise", 0), "noise", 0, 255)
        center = [number(c, "center", 0, 1) for c in _list(content.get("center", [0.5, 0.5]), 2, "center")]
        identity = new_id()
        target, title = self.folder / f"{identity}.look", PurePath(upload.name).stem
        most = self.limits.megapixels
        about = await self.soon.call(tasks.explore, upload.source, target, model, sigma, noise, center, title, most)
        while len(self.looks) >= LOOKS:
            self.looks.pop(next(iter(self.looks)))[0].unlink(missing_ok=True)
        self.looks[identity] = target, title
        return {"id": identity, "name": f"{title}-neighbours.html", **about}

    async def explorable(self) -> list[str]:
        if self._explorable is None:
            self._explorable = await self.soon.call(tasks.explorable)
        return self._explorable

    async def match(self, content: dict[str, Any]) -> dict[str, Any]:
        """Match two photographs, whose cameras may be given as focal lengths or as nine numbers each."""
        from n3net.correspondence.intrinsics import Cameras

        chosen = [self.uploads.get(name) for name in _list(content.get("files"), 2, "files")]
        focal = tuple(str(f)[:40] for f in content.get("focal", []) if str(f).strip())
        matrices = [str(k)[:1000] for k in content.get("K", []) if str(k).strip()]
        given: list[Path] = []
        try:
            for text in matrices:
                given.append(self.folder / f"{new_id()}.txt")
                given[-1].write_text(text, encoding="utf-8")
            cameras = Cameras(files=tuple(given), focal=focal)
            sources, names = [upload.source for upload in chosen], [upload.name for upload in chosen]
            return await self.soon.call(tasks.match, sources, names, cameras, self.limits.megapixels)
        except UserError as error:  # the server's own names of files mean nothing to anybody
            words = str(error)
            for path in given:
                words = words.replace(str(path), "K")
            raise UserError(words) from None
        finally:
            for path in given:
                path.unlink(missing_ok=True)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        working = asyncio.create_task(self.queue.work())
        warming = [asyncio.create_task(lane.call(tasks.warm)) for lane in (self.soon, self.late)]
        try:
            yield
        finally:
            for task in (working, *warming):
                task.cancel()
            self.soon.close()
            self.late.close()


def build(server: Server, names: Any, token: str) -> Any:
    """The application, guarded."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with server.running():
            yield

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    _add_pages(app)
    _add_files(app, server)
    _add_jobs(app, server)
    _add_looks(app, server)
    _add_words(app)
    return Guard(app, names, token, server.limits)


def _add_pages(app: FastAPI) -> None:
    found = page_files()

    @app.get("/")
    @app.get("/page/{name}")
    async def page(request: Request) -> Response:
        file = found.get(request.url.path)
        if file is None:
            raise RefusedError(404, "there is no such page")
        return Response(file.content, media_type=file.type)


def _add_files(app: FastAPI, server: Server) -> None:
    @app.get("/api/about")
    async def about() -> dict[str, Any]:
        limits = server.limits
        return {
            "version": __version__,
            "tile": TILE,
            "options": options(),
            "limits": {"bytes": limits.file_bytes, "megapixels": limits.megapixels, "files": limits.files},
        }

    @app.get("/api/state")
    async def state(since: int = -1) -> dict[str, Any]:
        return await server.state(since)

    @app.post("/api/files", status_code=201)
    async def add(request: Request) -> dict[str, Any]:
        if request.headers.get("content-type", "").startswith("multipart/"):
            raise RefusedError(415, "send the file itself as the body of the request, not a form")
        name = client_name(request.headers.get("x-name", ""))
        return (await server.uploads.add(name, request.stream())).state()

    @app.delete("/api/files/{name}")
    async def remove(name: str) -> dict[str, Any]:
        upload = server.uploads.get(name)
        for job in [job for job in server.queue.jobs.values() if job.upload is upload]:
            server.queue.remove(job)
        server.uploads.remove(upload)
        return {}

    @app.get("/api/files/{name}/tiles/{level}/{row}/{column}")
    async def tile(name: str, level: int, row: int, column: int) -> Response:
        upload = server.uploads.get(name)
        return _tile(upload.levels, upload.about["levels"], level, row, column)

    @app.post("/api/files/{name}/preview")
    async def preview(name: str, request: Request) -> Response:
        upload, content = server.uploads.get(name), await _content(request)
        work, box = work_of(content), box_of(content.get("box"))
        most = server.limits.megapixels
        found = await server.soon.call(tasks.preview, upload.source, work, box, most)
        height, width = found.pixels.shape[:2]
        head = {"X-Width": str(width), "X-Height": str(height), "X-Note": json.dumps(found.note)}
        return Response(found.pixels.tobytes(), media_type=BINARY, headers=head)


def _add_jobs(app: FastAPI, server: Server) -> None:
    queue = server.queue

    @app.post("/api/jobs", status_code=201)
    async def add(request: Request) -> dict[str, Any]:
        content = await _content(request)
        work = work_of(content)
        settings = {"work": content["work"], "settings": content.get("settings", {})}
        return queue.add(server.uploads.get(content.get("file")), work, settings).report()

    @app.delete("/api/jobs/{name}")
    async def remove(name: str) -> dict[str, Any]:
        queue.remove(queue.get(name))
        return {}

    @app.get("/api/jobs/{name}/tiles/{level}/{row}/{column}")
    async def tile(name: str, level: int, row: int, column: int) -> Response:
        job = queue.get(name)
        return _tile(job.levels, job.about.get("levels", 0), level, row, column)

    @app.get("/api/jobs/{name}/file")
    async def file(name: str) -> Response:
        job = queue.get(name)
        if job.state != "done":
            raise RefusedError(409, "this photograph is not done yet")
        return _file(job.target, job.name)

    @app.post("/api/archive")
    async def archive(request: Request) -> Response:
        content = await _content(request)
        asked = content.get("jobs")
        jobs = [queue.get(name) for name in (asked if isinstance(asked, list) else [])]
        jobs = [job for job in jobs if job.state == "done"]
        if not jobs:
            raise RefusedError(409, "no photograph is done yet")
        target = server.folder / f"{new_id()}.zip"
        await asyncio.to_thread(_zip, target, [(job.target, job.name) for job in jobs])
        return _file(target, "restored.zip", remove=True)


def _add_looks(app: FastAPI, server: Server) -> None:
    @app.get("/api/models")
    async def models() -> list[str]:
        return await server.explorable()

    @app.post("/api/looks", status_code=201)
    async def explore(request: Request) -> dict[str, Any]:
        content = await _content(request)
        return await server.explore(server.uploads.get(content.get("file")), content)

    @app.get("/api/looks/{name}/data")
    async def data(name: str) -> Response:
        return _file(_look(name)[0], f"{_look(name)[1]}.look")

    @app.get("/api/looks/{name}/page")
    async def page(name: str) -> Response:
        document, title = _look(name)
        target = server.folder / f"{new_id()}.html"
        await server.soon.call(tasks.explored_page, document, target)
        return _file(target, f"{title}-neighbours.html", remove=True)

    @app.post("/api/matches")
    async def match(request: Request) -> dict[str, Any]:
        return await server.match(await _content(request))

    def _look(name: str) -> tuple[Path, str]:
        if name not in server.looks:
            raise RefusedError(404, "this look is no longer there; look again")
        return server.looks[name]


def _add_words(app: FastAPI) -> None:
    """Errors are what the command line would say; what the program itself got wrong stands in the terminal only."""

    @app.exception_handler(UserError)
    async def user_error(_: Request, error: UserError) -> Response:
        status = getattr(error, "status", 422)
        unread = {"Connection": "close"} if status in UNREAD else {}
        return JSONResponse({"error": str(error)}, status, unread)

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        words = {404: "there is no such page", 405: "this cannot be done here"}
        return JSONResponse(
            {"error": words.get(error.status_code, "the request was not understood")}, error.status_code
        )

    @app.exception_handler(Exception)  # and uvicorn writes the traceback to the terminal
    async def program_error(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": "something went wrong; the terminal of 'n3net serve' says more"}, 500)


async def _content(request: Request) -> dict[str, Any]:
    """The JSON of a request."""
    try:
        content = json.loads(await request.body())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise RefusedError(400, "expected JSON with keys and values")
    return content


def _list(value: Any, length: int, name: str) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise UserError(f"{name}: expected {length} of them, got {value!r}")
    return value


def _tile(folder: Path, levels: int, level: int, row: int, column: int) -> Response:
    if not (0 <= level < levels and row >= 0 and column >= 0):
        raise RefusedError(404, "there is no such part of the picture")
    pixels = read_tile(folder, level, row, column)
    head = {"X-Width": str(pixels.shape[1]), "X-Height": str(pixels.shape[0])}
    return Response(pixels.tobytes(), media_type=BINARY, headers=head)


def _file(path: Path, name: str, remove: bool = False) -> Response:
    """A file as a download, all of it: parts that a client asks for (Range) are not made."""

    def pieces() -> Iterator[bytes]:
        try:
            with path.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece
        finally:
            if remove:
                path.unlink(missing_ok=True)

    head = attachment(name) | {"Content-Length": str(path.stat().st_size)}
    return StreamingResponse(pieces(), media_type=BINARY, headers=head)


def _zip(target: Path, files: list[tuple[Path, str]]) -> None:
    """Images do not get smaller, so they are only put together; names that are there twice get a number."""
    names: set[str] = set()
    with zipfile.ZipFile(target, "x", zipfile.ZIP_STORED) as archive:
        for path, name in files:
            given, count = PurePath(name), 1
            while name in names:
                count += 1
                name = f"{given.stem}-{count}{given.suffix}"
            names.add(name)
            archive.write(path, name)
