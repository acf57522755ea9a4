"""Files of weights that are odd, damaged or made to do harm."""

from __future__ import annotations

import json
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import n3net
from n3net import weights
from n3net.errors import UserError
from n3net.models import create


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "weights"
    monkeypatch.setenv("N3NET_WEIGHTS", str(folder))
    torch.manual_seed(0)
    weights.save(folder / "good.safetensors", create("dncnn-6", depth=2, features=4))
    return folder


def edited(folder: Path, name: str, tensors: dict[str, Any] | None = None, **document: Any) -> Path:
    """A copy of the good file with other words about it."""
    content = (folder / "good.safetensors").read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["n3net"] = json.dumps({**json.loads(header["__metadata__"]["n3net"]), **document})
    text = json.dumps({**header, **(tensors or {})}).encode()
    path = folder / f"{name}.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    return path


ODD: list[dict[str, Any]] = [
    {"model": {"name": ["n3net"], "config": {}}},
    {"model": {"name": {"a": 1}, "config": {}}},
    {"model": {"name": "dncnn-6", "config": []}},
    {"model": "dncnn-6"},
    {"model": None},
    {"licence": ["MIT"]},
    {"licence": 5},
    {"training": "none"},
    {"training": {"sigma": "x" * 1000}},
    {"training": {"config": {"data": {"sigma": {"a": []}}}}},
    {"training": {"config": {"data": []}}},
    {"format": [1]},
]


@pytest.mark.parametrize("document", ODD)
def test_one_odd_file_does_not_hide_the_others(folder: Path, document: dict[str, Any], command: Any) -> None:
    path = edited(folder, "odd", **document)
    code, out, err = command("weights", "list")
    assert code == 0, err
    assert "good" in out
    code, out, _ = command("weights", "list", "--json")
    assert "good" in [entry["name"] for entry in json.loads(out)]
    code, out, err = command("weights", "verify", "odd", "good")
    assert "Traceback" not in err
    assert "ok    good" in out
    words = ""
    try:
        n3net.load(path)
    except UserError as error:
        words = str(error)
    assert len(words) < 1000


def test_a_config_that_takes_long_to_build_is_refused_at_once(folder: Path) -> None:
    config = {"stages": 32, "depth": 256, "features": 1024, "k": 7}
    start = time.process_time()
    with pytest.raises(UserError, match="tensors, too few for the model"):
        n3net.load(edited(folder, "slow", model={"name": "n3net", "config": config}))
    empty = {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(9000)}
    with pytest.raises(UserError, match="stages times depth: expected at most 512"):
        n3net.load(edited(folder, "slow", empty, model={"name": "n3net", "config": config}))
    assert time.process_time() - start < 20


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(folder: Path, value: float, command: Any) -> None:
    model: Any = create("dncnn-6", depth=2, features=4)
    with torch.no_grad():
        model.net.layers[0].weight[1, 0, 1, 1] = value
    path = weights.save(folder / "nan.safetensors", model)
    with pytest.raises(UserError, match=r"net.layers.0.weight holds values that are no numbers"):
        n3net.load(path)
    assert command("weights", "verify", "nan")[0] == 1


def test_a_licence_does_not_steer_the_terminal(folder: Path, command: Any) -> None:
    model = create("dncnn-6", depth=2, features=4)
    licence = "MIT\x1b]0;owned\x07\x1b[2J \x9b31m \u202etxt"
    weights.save(folder / "odd.safetensors", model, {"licence": licence, "training": {"note": "\x9b2J"}})
    for arguments in (("list",), ("list", "--json"), ("info", "odd")):
        code, out, _ = command("weights", *arguments)
        assert code == 0
        assert not [c for c in out if not c.isprintable() and c != "\n"]
    assert json.loads(command("weights", "info", "odd")[1])["licence"] == licence, "escaped, not lost"


def kair(path: Path) -> Path:
    torch.manual_seed(0)
    state = {}
    for i, (before, after) in enumerate([(1, 4), (4, 4), (4, 1)]):
        state |= {f"model.{2 * i}.weight": torch.randn(after, before, 3, 3), f"model.{2 * i}.bias": torch.randn(after)}
    torch.save(state, path)
    return path


def test_every_flipped_byte_of_numbers_is_noticed(tmp_path: Path) -> None:
    path = kair(tmp_path / "dncnn.pth")
    weights.import_file(path)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as file:
        members = [m for m in file.infolist() if "/data/" in m.filename and m.file_size]
    rng, spoiled = np.random.default_rng(0), 0
    for member in members:
        name_and_extra = struct.unpack("<HH", content[member.header_offset + 26 : member.header_offset + 30])
        begin = member.header_offset + 30 + sum(name_and_extra)
        broken = bytearray(content)
        broken[begin + int(rng.integers(member.file_size))] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        with pytest.raises(UserError, match="does not match its checksum"):
            weights.import_file(path)
        spoiled += 1
    assert spoiled == 6


def test_numbers_that_are_none_are_not_imported(tmp_path: Path) -> None:
    path = kair(tmp_path / "dncnn.pth")
    state = torch.load(path, weights_only=True)
    state["model.2.bias"][1] = float("nan")
    torch.save(state, path)
    with pytest.raises(UserError, match=r"\.2\.bias holds values that are no numbers"):
        weights.import_file(path)


@pytest.mark.parametrize("name", ["../outside", "a/b", "..", ".hidden", "", "/tmp/n3net-outside", "a\\b"])
def test_names_stay_in_their_folder(folder: Path, tmp_path: Path, name: str, command: Any) -> None:
    path = kair(tmp_path / "dncnn.pth")
    before = sorted(tmp_path.rglob("*"))
    code, _, err = command("weights", "import", str(path), "--name", name)
    assert code == 2
    assert "expected a plain name" in err
    assert sorted(tmp_path.rglob("*")) == before
    assert command("weights", "import", str(path), "--name", "plain.v2")[0] == 0
    assert (folder / "plain.v2.safetensors").is_file()
