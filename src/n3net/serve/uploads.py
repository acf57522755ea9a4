"""Files that clients sent, under ids of the server's."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from n3net.serve import tasks
from n3net.serve.folder import new_id
from n3net.serve.limits import MB, Limits, RefusedError
from n3net.serve.settings import suffix_of
from n3net.serve.workers import Lane


@dataclass
class Upload:
    """A file that is there.

    Args:
        id: by which clients speak of it.
        name: that the client's file has; nothing is opened by it.
        folder: of its own.
        source: the file in it.
        bytes: of the file.
        about: what it shows, see :func:`n3net.serve.tasks.add`.
    """

    id: str
    name: str
    folder: Path
    source: Path
    bytes: int = 0
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def levels(self) -> Path:
        return self.folder / "levels"

    @property
    def megapixels(self) -> float:
        return float(self.about["width"] * self.about["height"] / 1e6)

    def state(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "bytes": self.bytes, **self.about}


class Uploads:
    """All files that are there, in the order in which they came."""

    def __init__(self, folder: Path, limits: Limits, lane: Lane, changed: Callable[[], None]) -> None:
        self.folder, self.limits, self.lane, self.changed = folder, limits, lane, changed
        self.files: dict[str, Upload] = {}
        self.arriving = 0

    def get(self, name: Any) -> Upload:
        upload = self.files.get(name) if isinstance(name, str) else None
        if upload is None:
            raise RefusedError(404, "this photograph is no longer there; add it again")
        return upload

    async def add(self, name: str, body: AsyncIterator[bytes]) -> Upload:
        """Receive a file, decode it, keep it; or nothing of it stays."""
        suffix = suffix_of(name)
        if self.arriving >= self.limits.uploads:
            raise RefusedError(503, f"{self.limits.uploads} files are arriving already; try again in a moment")
        self._check_room()
        identity = new_id()
        folder = self.folder / identity
        upload = Upload(identity, name, folder, folder / f"image{suffix}")
        self.arriving += 1
        try:
            folder.mkdir()
            with upload.source.open("xb") as file:
                async for part in body:
                    upload.bytes += len(part)
                    self._check_room(upload.bytes)
                    file.write(part)
            if not upload.bytes:
                raise RefusedError(400, f"{name}: the file is empty")
            upload.about = await self.lane.call(tasks.add, upload.source, upload.levels, self.limits.megapixels)
            self._check_room(megapixels=upload.megapixels)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            self.arriving -= 1
        self.files[identity] = upload
        self.changed()
        return upload

    def remove(self, upload: Upload) -> None:
        del self.files[upload.id]
        shutil.rmtree(upload.folder, ignore_errors=True)
        self.changed()

    def _check_room(self, more: int = 0, megapixels: float = 0.0) -> None:
        limits = self.limits
        if len(self.files) >= limits.files:
            raise RefusedError(409, f"{limits.files} photographs are there, which is the limit; remove some first")
        if sum(upload.bytes for upload in self.files.values()) + more > limits.all_bytes:
            raise RefusedError(409, f"all photographs together are limited to {limits.all_bytes / MB:g} MB")
        if sum(upload.megapixels for upload in self.files.values()) + megapixels > limits.all_megapixels:
            raise RefusedError(409, f"all photographs together are limited to {limits.all_megapixels:g} megapixels")
