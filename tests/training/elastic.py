"""Training that survives its nodes: two hosts in network namespaces, which lose processes, nodes and their link.

    python tests/training/elastic.py [SEED]

Needs root, and iproute2. Each case is compared, loss by loss, with a run that nothing happened to. What is printed is
what was found; the exit code is 0 if all of it is as it should be.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

STEPS = 60
CONFIG = f"""
task: gaussian
model: {{name: n3net, noise_map: true, stages: 2, depth: 3, features: 8, block_channels: 3, k: 2, patch_size: 4,
        stride: 2, window: 5, options: reference-2018}}
data: {{train: [train], validation: [check], sigma: [0, 50], crop: 16, crops_per_image: 4, root: ROOT}}
steps: {STEPS}
batch_size: 4
log_every: 1
save_every: 7
validate_every: 0
optimizer: {{lr: 1.0e-3, clip: 50}}
accelerator: cpu
timeout: 15s
"""
HOSTS = {"n3a": ("n3va", "10.99.0.1"), "n3b": ("n3vb", "10.99.0.2")}


def sh(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def hosts() -> Iterator[None]:
    """Two hosts with a cable between them."""
    try:
        sh("ip", "link", "add", "n3va", "type", "veth", "peer", "name", "n3vb")
        for name, (link, address) in HOSTS.items():
            sh("ip", "netns", "add", name)
            names = Path("/etc/netns") / name / "hosts"  # which "ip netns exec" shows as /etc/hosts
            names.parent.mkdir(parents=True)
            names.write_text("".join(f"{ip} {host}\n" for host, (_, ip) in HOSTS.items()) + "127.0.0.1 localhost\n")
            sh("ip", "link", "set", link, "netns", name)
            for command in (f"addr add {address}/24 dev {link}", f"link set {link} up", "link set lo up"):
                sh("ip", "-n", name, *command.split())
        yield
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


class Node:
    """torchrun on a host; it is started again when it ends badly, as a scheduler would."""

    def __init__(self, name: str, folder: Path, run: Path, nodes: str) -> None:
        link, address = HOSTS[name]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes, "--nproc-per-node", "1"]
        torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{HOSTS['n3a'][1]}:29400", "--rdzv-id", run.name]
        torchrun += ["--max-restarts", "20", "--local-addr", address, "--rdzv-conf", "join_timeout=300"]
        train = ["-m", "n3net", "train", str(folder / "config.yaml"), "--runs", str(run)]
        inside = f"hostname {name}; exec {' '.join([*torchrun, *train])}"
        self.command = ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", inside]
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": link}
        self.log = (run.parent / f"{run.name}-{name}.log").open("ab")
        self.name, self.run = name, run
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, env=self.environment, stdout=self.log, stderr=self.log, start_new_session=True
        )

    def workers(self) -> list[int]:
        return [pid for pid in processes(str(self.run)) if environment(pid).get("GLOO_SOCKET_IFNAME") == self.link]

    @property
    def link(self) -> str:
        return HOSTS[self.name][0]

    def kill(self) -> None:
        """The whole host, without a word."""
        for pid in self.workers():
            os.kill(pid, signal.SIGKILL)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def environment(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(entry.partition("=")[::2] for entry in text.split("\0"))  # type: ignore[misc]


def processes(run: str) -> list[int]:
    """Those that train in a folder: of torchrun, with a rank."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                command = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if run in command and "train" in command and "RANK" in environment(int(path.name)):
                found.append(int(path.name))
    return found


def losses(run: Path) -> dict[int, float]:
    try:
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines() if line.endswith("}")]
    except (OSError, ValueError):
        return {}
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}


def wait_for(run: Path, step: int, seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while max(losses(run), default=0) < step:
        if time.monotonic() > until:
            raise TimeoutError(f"{run.name}: step {step} was not reached; see {run.parent}")
        time.sleep(0.02)


def finish(run: Path, nodes: list[Node], seconds: float = 280) -> None:
    """Until the weights are there; a node whose torchrun gave up is started again."""
    until = time.monotonic() + seconds
    while not (run / "weights.safetensors").exists():
        for node in nodes:
            if node.process.poll() not in (None, 0) and not (run / "weights.safetensors").exists():
                node.start()
        if time.monotonic() > until:
            raise TimeoutError(f"{run.name}: did not end; see {run.parent}")
        time.sleep(0.2)
    for node in nodes:
        try:
            node.process.wait(60)
        except subprocess.TimeoutExpired:
            node.kill()


def main(seed: int) -> bool:
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="n3net-elastic-"))
    for i, place in enumerate(("train", "train", "check")):
        (folder / place).mkdir(exist_ok=True)
        small = np.random.default_rng(i).integers(0, 256, (6, 7, 3), dtype=np.uint8)
        Image.fromarray(small).resize((28, 24), Image.Resampling.BICUBIC).save(folder / place / f"{i}.png")
    (folder / "config.yaml").write_text(CONFIG.replace("ROOT", str(folder)))
    good = True
    with hosts():
        base: dict[int, float] = {}
        for case in ("undisturbed", "process killed", "node lost and back", "link cut", "node lost for good"):
            run, begin, step = folder / case.replace(" ", "-"), time.monotonic(), rng.randrange(10, STEPS - 10)
            nodes = [Node(name, folder, run, "1:2" if case.endswith("good") else "2") for name in HOSTS]
            try:
                if case != "undisturbed":
                    wait_for(run, step)
                if case == "process killed":
                    os.kill(rng.choice(rng.choice(nodes).workers()), signal.SIGKILL)
                elif case == "node lost and back":
                    nodes[1].kill()
                    time.sleep(3)
                    nodes[1].start()
                elif case == "link cut":
                    sh("ip", "-n", "n3b", "link", "set", "n3vb", "down")
                    time.sleep(25)
                    sh("ip", "-n", "n3b", "link", "set", "n3vb", "up")
                elif case == "node lost for good":
                    nodes.pop().kill()
                finish(run, nodes)
            finally:
                for node in nodes:
                    if node.process.poll() is None:
                        node.kill()
            found = losses(run)
            base = base or found
            worst = max(abs(found.get(i, np.inf) - loss) / abs(loss) for i, loss in base.items())
            same = found == base if not case.endswith("good") else worst < 1e-3 and found.keys() == base.keys()
            good = good and same and len(found) == STEPS
            at = "" if case == "undisturbed" else f" at step {step}"
            print(
                f"{case}{at}: {len(found)} losses, largest relative difference {worst:.1e}, "
                f"{'as it should be' if same else 'NOT as it should be'}, {time.monotonic() - begin:.0f} s",
                flush=True,
            )
    if good:
        shutil.rmtree(folder)
    return good


if __name__ == "__main__":
    sys.exit(0 if main(int(sys.argv[1]) if len(sys.argv) > 1 else 0) else 1)
