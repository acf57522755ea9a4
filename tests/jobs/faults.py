"""A batch on a cluster of Ray that loses workers, a node and its driver, again and again.

    python tests/jobs/faults.py [FILES] [SEED]

Three nodes on this machine. Actors are killed at random, one node is removed, the driver is killed twice and started
again with --resume's rules. At the end every file has to be there, whole, and written down once; prints counts.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])

from n3net.jobs.manifest import Manifest, sort_out  # noqa: E402
from n3net.jobs.planning import Job  # noqa: E402

DRIVER = """
import pickle, sys
address, path = sys.argv[1:]
jobs, operation, manifest = pickle.load(open(path, "rb"))
from n3net.jobs import batch
from n3net.jobs.manifest import sort_out
from n3net.jobs.one import Call
from n3net.jobs.ray import Ray
left = sort_out(jobs, operation, manifest).waiting
list(batch.run(Call(operation, manifest, shared=True), left, Ray(address, 3), lambda *_: None))
"""


def actors() -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and b"MapWorker(MapBatches(Actor))" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def main(files: int, seed: int) -> bool:
    import copying
    from ray.cluster_utils import Cluster

    rng, folder = random.Random(seed), Path(tempfile.mkdtemp(prefix="n3net-faults-"))
    (folder / "in").mkdir()
    jobs = []
    for i in range(files):
        text = "die" if i == files // 2 else f"sleep {rng.uniform(0.05, 0.3):.2f}"
        (folder / "in" / f"{i}.txt").write_text(text)
        jobs.append(Job(folder / "in" / f"{i}.txt", folder / "out" / f"{i}.txt"))
    operation: Any = copying.Copy(log=str(folder / "log"))
    manifest = Manifest(folder / "out" / "n3net-manifest.jsonl")
    manifest.begin(operation)
    (folder / "batch").write_bytes(pickle.dumps((jobs, operation, manifest)))
    size = {"num_cpus": 4, "object_store_memory": 80_000_000}
    cluster = Cluster()
    counts: Counter[str] = Counter()
    driver: subprocess.Popen[bytes] | None = None
    try:
        nodes = [cluster.add_node(**size, **extra) for extra in ({"include_dashboard": False}, {}, {})]
        until = time.monotonic() + 270
        begin = time.monotonic()
        while time.monotonic() < until:
            if driver is None or driver.poll() is not None:
                if driver is not None and driver.returncode == 0:
                    break
                counts["drivers started"] += 1
                command = [sys.executable, "-c", DRIVER, cluster.address, str(folder / "batch")]
                driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            done = len(manifest.records())
            if counts["actors killed"] < 6 * done / files and actors():
                os.kill(rng.choice(actors()), signal.SIGKILL)
                counts["actors killed"] += 1
            if counts["nodes removed"] < 1 and done > files // 3:
                cluster.remove_node(nodes.pop())
                counts["nodes removed"] += 1
            if counts["drivers killed"] < 2 and done > files * (counts["drivers killed"] + 1) // 3:
                driver.kill()
                driver.wait()
                counts["drivers killed"] += 1
            time.sleep(0.2)
        counts["seconds"] = round(time.monotonic() - begin)
    finally:
        if driver is not None and driver.poll() is None:
            driver.kill()
        cluster.shutdown()
    begun = Counter((folder / "log").read_text().split())
    lines = [line for line in manifest.path.read_text().splitlines() if '"output"' in line]
    written = {path.name: path.read_text() for path in (folder / "out").glob("*.txt")}
    whole = {job.source.name: job.source.read_text() for job in jobs if job.source is not None}
    left = sort_out(jobs, operation, manifest)
    counts.update(
        {
            "files": files,
            "done": left.done,
            "set aside": len(left.failed),
            "not whole": sum(whole[name] != text for name, text in written.items()),
            "lines in the manifest": len(lines),
            "begun more than once": sum(number > 1 for number in begun.values()),
            "left behind": len(list((folder / "out").glob(".*"))),
        }
    )
    print(", ".join(f"{name} {count}" for name, count in counts.items()), flush=True)
    good = left.done == files - 1 == len(written) and len(left.failed) == 1 and len(lines) == files
    return good and not counts["not whole"] and not counts["left behind"]


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    sys.exit(0 if main(*(numbers + [300, 0][len(numbers) :])) else 1)
