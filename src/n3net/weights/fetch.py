"""The authors' weights from their public repository, for a user who asks for them."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from n3net.errors import UserError
from n3net.weights.format import save
from n3net.weights.importers import import_file
from n3net.weights.store import SUFFIX, user_directory

REPOSITORY = "https://raw.githubusercontent.com/visinf/n3net/5d5883a374aab343ca4091d8a072e83629d53516"

TERMS = """\
These weights are the work of the authors of the paper, Technische Universität Darmstadt (github.com/visinf/n3net).
Their licence allows use for research and teaching, not for commercial purposes, and does not allow to pass them on,
neither as they are nor in another format. They stay on this computer."""


@dataclass(frozen=True)
class Source:
    """A file of the authors: where it is, and what it must be."""

    path: str
    sha256: str
    size: int
    sigma: int


SOURCES = {
    f"authors-sigma{sigma}": Source(
        f"results_gaussian_denoising/pretrained_sigma{sigma}/checkpoint/051_ckpt.t7", sha256, 2_856_732, sigma
    )
    for sigma, sha256 in {
        25: "ca3ceea2f9f11cf685a14c0444aeeb3f0841b68deb665133b22c5e9eacf37ff4",
        50: "ffa39e15ba8a71992103cf2a223b1ef084cfca5c2e2b7724b277c88d2ec04a02",
        70: "640a2eee3d5c8675fbf89b78f91578f0a8cce5572132c740663a788ecb485d9c",
    }.items()
}


def fetch(name: str, progress: Callable[[int, int], None] = lambda done, size: None, base: str | None = None) -> Path:
    """Get one of ``SOURCES``, check it, import it into the user's directory.

    Args:
        name: of the source, and of the weights afterwards.
        progress: called with the bytes that are there and those there will be.
        base: address of the repository, by default the authors' at a fixed commit, or ``$N3NET_WEIGHTS_URL``.
    """
    if name not in SOURCES:
        raise UserError(f"there is nothing to fetch by the name {name!r}; there are {', '.join(SOURCES)}")
    source = SOURCES[name]
    directory = user_directory()
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / f"{name}.t7.part"
    base = base or os.environ.get("N3NET_WEIGHTS_URL") or REPOSITORY
    download(f"{base}/{source.path}", part, source.size, progress)
    found = hashlib.sha256(part.read_bytes()).hexdigest()
    if found != source.sha256:
        part.unlink()
        raise UserError(
            f"{base}/{source.path}: not the file that was expected, it was deleted (SHA-256 {found}, expected "
            f"{source.sha256})"
        )
    model, metadata = import_file(part)
    metadata["training"] = {**metadata["training"], "sigma": source.sigma, "file": source.path, "sha256": found}
    path = save(directory / f"{name}{SUFFIX}", model, metadata)
    part.unlink()
    return path


def download(url: str, path: Path, size: int, progress: Callable[[int, int], None]) -> None:
    """Get a file of known size; what an interrupted attempt left at ``path`` is continued."""
    there = path.stat().st_size if path.exists() else 0
    if there > size:
        path.unlink()
        there = 0
    if there == size:
        return progress(size, size)
    request = urllib.request.Request(url, headers={"Range": f"bytes={there}-"} if there else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            resumed = response.status == 206
            there = there if resumed else 0
            with path.open("ab" if resumed else "wb") as file:
                progress(there, size)
                while block := response.read(1 << 16):
                    there += len(block)
                    if there > size:
                        break
                    file.write(block)
                    progress(there, size)
    except (urllib.error.URLError, OSError, EOFError) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"{url}: {reason}; what was received is kept, the same command continues there") from error
    if there > size:
        path.unlink()
        raise UserError(f"{url}: longer than the {size} bytes that were expected; it was deleted")
    if there < size:
        raise UserError(
            f"{url}: ended after {there} of {size} bytes; what was received is kept, the same command continues there"
        )
