"""Batches on a real cluster of Ray: two nodes on this machine, one for all tests."""

from __future__ import annotations

import importlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from n3net.jobs import batch
from n3net.jobs.manifest import Item, Manifest
from n3net.jobs.one import Call
from n3net.jobs.planning import Job
from n3net.jobs.ray import Ray
from n3net.models import create
from n3net.weights import save

pytest.importorskip("ray.data")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    weights = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    save(weights / "gray.safetensors", create("n3net", features=8, depth=2, noise_map=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("N3NET_WEIGHTS", str(weights))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
        patch.syspath_prepend(str(HERE))
        size = {"num_cpus": 3, "object_store_memory": 80_000_000}
        nodes = Cluster()
        try:
            try:
                nodes.add_node(**size, include_dashboard=False)
                nodes.add_node(**size)
            except Exception as error:
                pytest.skip(f"no cluster of Ray can be started here: {error}")
            ray.init(nodes.address, log_to_driver=False, logging_level="ERROR")
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


def test_the_same_bytes(cluster: Any, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for i in range(5):
        noise = np.random.default_rng(i).integers(0, 256, (20 + i, 30), dtype=np.uint8)
        Image.fromarray(noise).save(f"in/{i}.png")
    Path("in/5.png").write_text("no picture")
    assert command("denoise", "in", "-o", "plain", "--sigma", "10")[0] == 1
    code, out, err = command("denoise", "in", "-o", "out", "--sigma", "10", "--ray", cluster.address, "--workers", "2")
    assert (code, out.count(" -> ")) == (1, 5)
    assert "1 of 6 files failed:" in err
    written = {path.name: path.read_bytes() for path in sorted(Path("out").glob("*.png"))}
    assert written == {path.name: path.read_bytes() for path in sorted(Path("plain").glob("*.png"))}
    assert "5 of 6 files are done already" in command("denoise", "in", "-o", "out", "--sigma", "10", "--resume")[1]


def test_workers_are_killed_and_a_node_is_lost(cluster: Any, tmp_path: Path) -> None:
    copying: Any = importlib.import_module("copying")
    (tmp_path / "in").mkdir()
    texts = ["sleep 0.1"] * 24 + ["die", "die once", "refuse"]
    jobs = []
    for i, text in enumerate(texts):
        (tmp_path / "in" / f"{i}.txt").write_text(text)
        jobs.append(Job(tmp_path / "in" / f"{i}.txt", tmp_path / "out" / f"{i}.txt"))
    manifest, operation = Manifest(tmp_path / "out" / "m.jsonl"), copying.Copy(log=str(tmp_path / "log"))
    items = [Item(i, job, False, None) for i, job in enumerate(jobs)]
    records = {}
    for record in batch.run(Call(operation, manifest, shared=True), items, Ray(cluster.address, 2), lambda *_: None):
        records[Path(record.source).stem] = record
        if len(records) == 4:
            os.kill(_an_actor(), signal.SIGKILL)
        if len(records) == 8:
            cluster.remove_node(sorted(cluster.worker_nodes, key=str)[0])
    assert sorted(records, key=int) == [str(i) for i in range(27)]
    errors = {name: record.error for name, record in records.items() if record.error}
    assert errors == {"24": "set aside: 2 times its process died (SIGKILL, Killed)", "26": "it refuses"}
    done = {path.stem: path.read_text() for path in (tmp_path / "out").glob("*.txt")}
    assert done == {str(i): text for i, text in enumerate(texts) if str(i) not in errors}
    lines = Counter(line for line in manifest.path.read_text().splitlines() if '"output"' in line)
    assert len(lines) == len(manifest.records()) == 27  # each written down once
    assert not list((tmp_path / "out").glob(".*"))


def _an_actor() -> int:
    """The id of a process that has our actor."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and b"MapWorker(MapBatches(Actor))" in (path / "cmdline").read_bytes():
            return int(path.name)
    raise AssertionError("no actor is running")
