"""Files that are written whole or not at all."""

from __future__ import annotations

import ast
import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from n3net.errors import UserError
from n3net.io.files import placing, refuse_existing, writing

SOURCE = Path(__file__).parents[2] / "src" / "n3net"


def write(
    target: Path, content: bytes = b"new", force: bool = False, meanwhile: Callable[[], object] = lambda: None
) -> None:
    with writing(target, force) as file:
        file.write(content)
        file.flush()
        meanwhile()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_there_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "a.txt"
    with writing(target, False) as file:
        file.write(b"whole")
        assert not target.exists()
    assert target.read_bytes() == b"whole"
    assert names(target.parent) == ["a.txt"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")

    def stop() -> None:
        raise error

    with pytest.raises(error):
        write(target, b"half", True, stop)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a.txt"]


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    with pytest.raises(UserError, match="exists; use --force"):
        write(target)
    other = tmp_path / "b.txt"
    with pytest.raises(UserError, match="exists; use --force"):
        write(other, meanwhile=lambda: other.write_bytes(b"somebody was faster"))
    assert other.read_bytes() == b"somebody was faster"
    write(other, force=True)
    assert other.read_bytes() == b"new"
    assert names(tmp_path) == ["a.txt", "b.txt"]


def test_links_stay_links(tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "sub" / "link.txt"
    link.parent.mkdir()
    link.symlink_to("../real.txt")
    write(link)  # what it points to is not there yet
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    write(link, b"newer", force=True)
    assert link.is_symlink()
    assert real.read_bytes() == b"newer"
    loop = tmp_path / "loop.txt"
    loop.symlink_to("loop.txt")
    with pytest.raises(UserError, match="leads to itself"):
        write(loop, force=True)
    assert loop.is_symlink()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_modes_stay(tmp_path: Path, mode: int) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    target.chmod(mode)
    with writing(target, True) as file:
        file.write(b"new")
        (part,) = (p for p in tmp_path.iterdir() if p != target)
        assert stat.S_IMODE(part.stat().st_mode) & 0o077 == 0, "others could read it while it was written"
    assert stat.S_IMODE(target.stat().st_mode) == mode
    assert target.read_bytes() == b"new"


def test_pipes_devices_and_folders_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "a.png"
    os.mkfifo(pipe)
    for place in (pipe, Path("/dev/null"), tmp_path):
        for refuse in (lambda p: refuse_existing(p, True), lambda p: write(p, force=True)):
            with pytest.raises(UserError, match="cannot be replaced by a file"):
                refuse(place)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_two_programs_do_not_write_one_file(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with writing(target, False) as file:
        with pytest.raises(UserError, match="another program is writing it"):
            write(target, b"second", force=True)
        file.write(b"first")
    assert target.read_bytes() == b"first"
    assert names(tmp_path) == ["a.txt"]


def test_what_a_killed_program_left_is_used_up(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    code = (
        "import os, sys; from pathlib import Path; from n3net.io.files import writing\n"
        "with writing(Path(sys.argv[1]), False) as file:\n"
        "    file.write(b'x' * 100_000); file.flush(); os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    subprocess.run([sys.executable, "-c", code, str(target)], env=environment, timeout=60)
    assert names(tmp_path) == [".a.txt.part"]
    write(target)
    assert names(tmp_path) == ["a.txt"]
    assert target.read_bytes() == b"new"


def test_a_part_that_is_a_link_or_a_second_name_harms_nobody(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_bytes(b"precious")
    (tmp_path / ".a.txt.part").symlink_to(precious)
    write(tmp_path / "a.txt")
    os.link(precious, tmp_path / ".b.txt.part")
    write(tmp_path / "b.txt")
    assert precious.read_bytes() == b"precious"
    assert names(tmp_path) == ["a.txt", "b.txt", "precious.txt"]


def test_names_of_any_length(tmp_path: Path) -> None:
    target = tmp_path / ("é" * 125 + ".txt")
    write(target)
    assert target.read_bytes() == b"new"


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "a.png"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(UserError, match=r"a.png: cannot be written \(File too large\)"):
            write(target, bytes(100_000))
        import numpy as np

        from n3net.io import Picture, write_image

        noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
        for format in ("PNG", "JPEG", "TIFF", "WEBP", "BMP"):
            with pytest.raises(UserError, match="File too large"), writing(target, False) as file:
                write_image(file, Picture(noise), format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == []


def test_errors_of_other_files_keep_their_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, writing(tmp_path / "a.txt", False):
        (tmp_path / "input.txt").read_bytes()
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == str(tmp_path / "input.txt")


def test_a_folder_that_vanishes_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with pytest.raises(UserError, match="cannot be written"):
        write(folder / "a.txt", meanwhile=lambda: shutil.rmtree(folder))


def test_libraries_may_write_by_name(tmp_path: Path) -> None:
    with placing(tmp_path / "a.db", False) as part:
        part.write_bytes(b"by name")
    assert (tmp_path / "a.db").read_bytes() == b"by name"
    assert names(tmp_path) == ["a.db"]


def test_it_is_the_only_one() -> None:
    """Nothing else in the package renames files, or writes them in one go under their names."""
    allowed = {
        *("io/files.py", "io/isolation.py", "bench/measure.py"),  # itself, pipes, and what Linux shows as files
        *("weights/fetch.py", "training/guards.py", "serve/folder.py"),  # a download that goes on, locks
        *("training/progress.py", "jobs/manifest.py"),  # logs, which grow
        "io/remote.py",  # a copy in a temporary folder
        *("serve/app.py", "serve/folder.py", "serve/tasks.py", "serve/uploads.py"),  # in the server's temporary folder
    }
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            values = [a.value for a in (*node.args, *(k.value for k in node.keywords)) if isinstance(a, ast.Constant)]
            opens = name == "open" and any(isinstance(v, str) and v[:1] in ("w", "x", "a") for v in values)
            if name in ("write_text", "write_bytes", "mkstemp", "NamedTemporaryFile") or opens:
                found.add(str(path.relative_to(SOURCE)))
    assert found <= allowed
