"""Files of weights: written, found, imported, fetched, and refused."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import pickle
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import save_file

import n3net
from n3net import weights
from n3net.errors import UserError
from n3net.models import create
from n3net.weights import fetch as fetching

OFFICIAL = Path(__file__).parents[3] / "shared" / "official"
needs_files = pytest.mark.skipif(not OFFICIAL.is_dir(), reason="public weights are not beside this project")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "user"))
    return tmp_path / "user"


def small() -> torch.nn.Module:
    torch.manual_seed(0)
    return create("n3net-light", features=4, depth=2, k=2, options="reference-2018")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return weights.save(tmp_path / "small.safetensors", small(), {"training": {"sigma": 25}, "licence": "Apache-2.0"})


def test_a_saved_model_comes_back(file: Path) -> None:
    model, again = small().eval(), n3net.load(file)
    assert not again.training
    assert again.recipe == model.recipe
    assert again.record["licence"] == "Apache-2.0"
    assert again.record["training"] == {"sigma": 25}
    x = torch.rand(1, 1, 40, 40)
    with torch.no_grad():
        torch.testing.assert_close(again(x), model(x), atol=0, rtol=0)
    assert [p.name for p in file.parent.iterdir()] == [file.name]  # nothing beside it


def test_info_reads_only_the_header(file: Path) -> None:
    info = weights.info(file)
    assert info["model"]["name"] == "n3net-light"
    assert info["model"]["config"]["options"]["update"] == "untempered"
    assert info["parameters"] == sum(p.numel() for p in small().parameters())


def test_names_are_found(file: Path, directory: Path) -> None:
    directory.mkdir()
    file.rename(directory / "mine.safetensors")
    assert "mine" in weights.available()
    assert n3net.load("mine").recipe.name == "n3net-light"
    with pytest.raises(UserError, match="did you mean 'mine'"):
        n3net.load("mime")
    with pytest.raises(UserError, match="no such file"):
        n3net.load("mine.safetensor")


def test_only_created_models_are_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not built by"):
        weights.save(tmp_path / "x.safetensors", torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="batch norm folded"):
        weights.save(tmp_path / "x.safetensors", n3net.models.fold_batch_norm(small()))
    assert not list(tmp_path.iterdir())


def edited(file: Path, **changes: Any) -> Path:
    """The file with other metadata."""
    content = file.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    document = json.loads(header["__metadata__"]["n3net"])
    header["__metadata__"]["n3net"] = json.dumps({**document, **changes})
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    return file


def refused(file: Path, words: str) -> None:
    with pytest.raises(UserError) as error:
        n3net.load(file)
    assert words in str(error.value)
    assert str(file) in str(error.value)


def test_a_truncated_file_is_refused(file: Path) -> None:
    content = file.read_bytes()
    for size in (0, 5, 100, len(content) - 1):
        file.write_bytes(content[:size])
        refused(file, "truncated" if size > 8 else "not a safetensors file")


def test_a_damaged_file_is_refused(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    refused(file, "damaged")


def test_a_header_without_end_is_refused(file: Path) -> None:
    file.write_bytes(struct.pack("<Q", 100 * 2**30) + file.read_bytes()[8:])
    refused(file, "107374182400 bytes")


def test_a_tensor_without_end_is_refused(file: Path) -> None:
    header = {"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"1234")
    refused(file, "makes no sense")
    header["x"]["data_offsets"] = [0, 2**42]
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"1234")
    refused(file, "truncated")


@pytest.mark.parametrize(
    "header", ["[]", "1", '{"a": 1}', '{"a": {"dtype": "X", "shape": [], "data_offsets": [0, 0]}}', "{", "[" * 9000]
)
def test_a_senseless_header_is_refused(file: Path, header: str) -> None:
    file.write_bytes(struct.pack("<Q", len(header)) + header.encode())
    refused(file, "makes no sense")


def test_another_architecture_is_refused(file: Path) -> None:
    document = weights.info(file)["model"]
    refused(edited(file, model={**document, "config": {**document["config"], "k": 3}}), "not those of the model")
    refused(edited(file, model={"name": "unknown", "config": {}}), "made for the model 'unknown'")
    refused(edited(file, format=99), "format 99")


def test_a_config_without_end_is_refused(file: Path) -> None:
    document = weights.info(file)["model"]
    edited(file, model={**document, "config": {**document["config"], "depth": 10**9}})
    with pytest.raises(UserError, match="46 tensors, too few for the model"):
        n3net.load(file)


def test_a_safetensors_file_of_others_is_refused(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(3)}, tmp_path / "x.safetensors")
    refused(tmp_path / "x.safetensors", "not one of n3net")


class Exploit:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_file_never_runs(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "evil.pth"
    if zipped:
        torch.save({"net": Exploit(tmp_path / "ran")}, path)
    else:
        path.write_bytes(pickle.dumps({"net": Exploit(tmp_path / "ran")}, protocol=2))
    with pytest.raises(UserError, match="refused"):
        weights.import_file(path)
    refused(path, "safetensors")
    assert not (tmp_path / "ran").exists()
    if not zipped:
        pickle.loads(path.read_bytes())  # it would have
        assert (tmp_path / "ran").exists()


def test_imports_of_something_else_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1)}, tmp_path / "a.pth")
    with pytest.raises(UserError, match="no known architecture"):
        weights.import_file(tmp_path / "a.pth")
    torch.save([1, 2], tmp_path / "b.pth")
    with pytest.raises(UserError, match="dictionary of tensors"):
        weights.import_file(tmp_path / "b.pth")
    content = (tmp_path / "a.pth").read_bytes()
    (tmp_path / "c.pth").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="broken"):
        weights.import_file(tmp_path / "c.pth")


def test_a_tensor_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    torch.save({"model.0.weight": torch.zeros(1).expand(2**40), "model.0.bias": torch.zeros(1)}, tmp_path / "a.pth")
    with pytest.raises(UserError, match="more than the file holds"):
        weights.import_file(tmp_path / "a.pth")


def test_dncnn_without_norm_is_imported(tmp_path: Path) -> None:
    """A made-up file in the form of KAIR's: convolutions with biases; output = input - network."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(4, 1, 3, padding=1),
    )  # fmt: skip
    torch.save({f"model.{name}": value for name, value in net.state_dict().items()}, tmp_path / "x.pth")
    model, metadata = weights.import_file(tmp_path / "x.pth")
    x = torch.rand(1, 1, 20, 20)
    with torch.no_grad():
        torch.testing.assert_close(model(x), x - net(x))
    assert "MIT" in metadata["licence"]


def test_dncnn_with_norm_is_imported(tmp_path: Path) -> None:
    """A made-up file in the form of SaoYan's: no biases; output = input - network."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1, bias=False), torch.nn.ReLU(),
        torch.nn.Conv2d(4, 4, 3, padding=1, bias=False), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.Conv2d(4, 1, 3, padding=1, bias=False),
    )  # fmt: skip
    torch.nn.init.uniform_(net[3].running_mean)
    torch.save({f"module.dncnn.{name}": value for name, value in net.state_dict().items()}, tmp_path / "x.pth")
    model, metadata = weights.import_file(tmp_path / "x.pth")
    x = torch.rand(1, 1, 20, 20)
    with torch.no_grad():
        torch.testing.assert_close(model(x), x - net.eval()(x))
    assert "GPL" in metadata["licence"]


@needs_files
@pytest.mark.parametrize(
    ("name", "model", "licence"),
    [
        ("gaussian_sigma25.t7", "n3net", "no redistribution"),
        ("kair_dncnn_sigma25.pth", "dncnn-17", "MIT"),
        ("saoyan_dncnn_sigma50.pth", "dncnn-17", "GPL-3.0"),
    ],
)
def test_public_files_are_imported(tmp_path: Path, name: str, model: str, licence: str) -> None:
    imported, metadata = weights.import_file(OFFICIAL / name)
    assert imported.recipe.name == model
    assert licence in metadata["licence"]
    path = weights.save(tmp_path / "x.safetensors", imported, metadata)
    again = n3net.load(path)
    assert all(torch.equal(t, again.state_dict()[n]) for n, t in imported.state_dict().items())


class Server(http.server.BaseHTTPRequestHandler):
    """Serves ``content``, at most ``most`` bytes a time, and remembers what was asked for."""

    content: ClassVar[bytes] = b""
    most: ClassVar[int] = 1 << 30
    ranges: ClassVar[list[str | None]] = []
    knows_ranges: ClassVar[bool] = True

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        Server.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.knows_ranges else 0
        rest = self.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.most])

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address that serves a made-up file in the form of the authors', whose checksum is the pinned one."""
    torch.manual_seed(0)
    Server.content, Server.most, Server.ranges, Server.knows_ranges = authors_file(), 1 << 30, [], True
    source = fetching.Source("ckpt.t7", hashlib.sha256(Server.content).hexdigest(), len(Server.content), 25)
    monkeypatch.setitem(fetching.SOURCES, "authors-sigma25", source)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


def authors_file() -> bytes:
    """Random weights under the names of the program of 2018."""
    import io

    theirs: dict[str, torch.Tensor] = {}
    for name, value in create("n3net", options="reference-2018", first_norm=False).net.state_dict().items():
        kind, index, part, *rest = name.split(".")
        if kind == "stages":
            layer = int(rest[0])
            target = {0: "conv1", 14: "conv2"}.get(layer, f"layer1.{layer - 2}")
            theirs[f"blocks.{index}.{target}.{rest[1]}"] = value
        elif part == "normalization":
            theirs[f"nls.{index}.n3aggregation.aggregation.nnn.bn.{rest[0]}"] = value.reshape(1)
        else:
            net = {"embedding": "embedcnn", "temperature": "tempcnn"}[part]
            theirs[f"nls.{index}.{net}.{'.'.join(rest)}"] = value
    buffer = io.BytesIO()
    torch.save({"net": theirs, "epoch": 51}, buffer)
    return buffer.getvalue()


def test_fetch(server: str, directory: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = fetching.fetch("authors-sigma25", lambda done, size: seen.append((done, size)), base=server)
    assert path.parent == directory
    assert seen[-1] == (len(Server.content), len(Server.content))
    assert [p.name for p in directory.iterdir()] == ["authors-sigma25.safetensors"]
    model = n3net.load("authors-sigma25")
    assert model.record["training"]["sigma"] == 25
    assert "no redistribution" in model.record["licence"]


def test_an_interrupted_fetch_continues(server: str, directory: Path) -> None:
    Server.most = 1_000_000
    with pytest.raises(UserError, match="the same command continues"):
        fetching.fetch("authors-sigma25", base=server)
    there = (directory / "authors-sigma25.t7.part").stat().st_size
    assert 0 < there <= 1_000_000
    Server.most = 1 << 30
    fetching.fetch("authors-sigma25", base=server)
    assert Server.ranges == [None, f"bytes={there}-"]


def test_a_server_without_ranges_starts_again(server: str, directory: Path) -> None:
    directory.mkdir()
    (directory / "authors-sigma25.t7.part").write_bytes(b"1234")
    Server.knows_ranges = False
    fetching.fetch("authors-sigma25", base=server)
    assert [p.name for p in directory.iterdir()] == ["authors-sigma25.safetensors"]
    assert n3net.load("authors-sigma25").record["training"]["sigma"] == 25


def test_a_wrong_file_is_refused(server: str, directory: Path) -> None:
    Server.content = bytes(len(Server.content))
    with pytest.raises(UserError, match="SHA-256"):
        fetching.fetch("authors-sigma25", base=server)
    assert not list(directory.iterdir())


def test_a_longer_file_is_refused(server: str, directory: Path) -> None:
    Server.content += b"more"
    with pytest.raises(UserError, match="longer"):
        fetching.fetch("authors-sigma25", base=server)
    assert not list(directory.iterdir())


def test_no_server(directory: Path) -> None:
    with pytest.raises(UserError, match="refused"):
        fetching.fetch("authors-sigma25", base="http://127.0.0.1:9")
    with pytest.raises(UserError, match="there are authors-sigma25"):
        fetching.fetch("authors")


def test_pinned_sources() -> None:
    assert "5d5883a374aab343ca4091d8a072e83629d53516" in fetching.REPOSITORY
    assert all(len(source.sha256) == 64 for source in fetching.SOURCES.values())
