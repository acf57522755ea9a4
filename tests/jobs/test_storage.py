"""Object storage: inputs and outputs of a real server for S3 on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image

from n3net.errors import UserError
from n3net.io.files import writing
from n3net.io.remote import as_path, local
from n3net.models import create
from n3net.weights import save

pytest.importorskip("moto.server")
pytest.importorskip("s3fs")
pytest.importorskip("upath")


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A store with an empty bucket ``photos``."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            patch.setenv(name, "us-east-1")
        files = s3fs.S3FileSystem(use_listings_cache=False)
        files.mkdir("photos")
        yield files
    server.stop()


@pytest.fixture
def run(store: Any, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    torch.manual_seed(0)
    save(tmp_path / "weights" / "gray.safetensors", create("n3net", features=8, depth=2, noise_map=True))
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.chdir(tmp_path)
    Path("in/sub").mkdir(parents=True)
    for i in range(4):
        path = Path("in") / ("sub" if i % 2 else "") / f"{i}.png"
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (20 + i, 30), dtype=np.uint8)).save(path)
    if store.exists("photos/x"):
        store.rm("photos/x", recursive=True)
    store.put("in", "photos/x/in", recursive=True)
    return lambda *arguments: command("denoise", *arguments, "--sigma", "10")


def found(store: Any, folder: str) -> dict[str, bytes]:
    return {name.removeprefix(f"{folder}/"): store.cat_file(name) for name in store.find(folder)}


def test_the_same_bytes_as_files(run: Any, store: Any) -> None:
    assert run("in", "-o", "out")[0] == 0
    expected = {p.relative_to("out").as_posix(): p.read_bytes() for p in Path("out").rglob("*.png")}
    assert run("s3://photos/x/in", "-o", "s3://photos/x/out")[0] == 0
    assert found(store, "photos/x/out") == expected
    assert run("s3://photos/x/in", "--workers", "2")[0] == 0
    assert found(store, "photos/x/in-denoised") == expected
    assert run("s3://photos/x/in/*.png", "-o", "here", "--shard", "1/1")[0] == 0
    assert Path("here/0.png").read_bytes() == expected["0.png"]
    assert run("in/0.png", "-o", "s3://photos/x/one.png")[0] == 0
    assert store.cat_file("photos/x/one.png") == expected["0.png"]


def test_what_is_there_is_not_replaced(run: Any, store: Any) -> None:
    store.pipe_file("photos/x/out/0.png", b"mine")
    code, out, _ = run("s3://photos/x/in", "-o", "s3://photos/x/out")
    assert (code, "1 of 4 files are done already; --force" in out) == (0, True)
    code, out, _ = run("s3://photos/x/in", "-o", "s3://photos/x/out", "--skip-existing")
    assert (code, "4 of 4 files are done already" in out) == (0, True)
    assert store.cat_file("photos/x/out/0.png") == b"mine"
    code, _, err = run("s3://photos/x/in", "-o", "s3://photos/x/out", "--resume")
    assert (code, "object storage has no place for it" in err) == (2, True)
    resume = ("s3://photos/x/in", "-o", "s3://photos/x/new", "--resume", "--manifest", "m.jsonl")
    assert run(*resume)[0] == 0
    store.pipe_file("photos/x/in/0.png", store.cat_file("photos/x/in/2.png"))
    cast(Any, as_path("s3://photos")).fs.invalidate_cache()  # what a new process would not have
    code, out, _ = run(*resume)
    assert (code, out.count(" -> "), "3 of 4 files are done already" in out) == (0, 1, True)


def test_whole_or_not_at_all(store: Any) -> None:
    target = as_path("s3://photos/whole.png")

    def fail() -> None:
        with writing(target, force=False) as file:
            file.write(b"half")
            raise RuntimeError

    def be_late() -> None:
        with writing(target, force=False) as file:
            file.write(b"late")
            store.pipe_file("photos/whole.png", b"first")  # another program was faster

    with pytest.raises(RuntimeError):
        fail()
    assert not store.exists("photos/whole.png")
    with pytest.raises(UserError, match="exists"):
        be_late()
    assert store.cat_file("photos/whole.png") == b"first"
    with writing(target, force=True) as file:
        file.write(b"second")
    with local(target) as here:
        assert here.read_bytes() == b"second"


def test_errors(run: Any) -> None:
    assert "no such file" in run("s3://photos/x/none.png")[2]
    assert "no image files match" in run("s3://photos/x/*.tif")[2]
    assert "nothing://" in run("nothing://x/y.png")[2]
