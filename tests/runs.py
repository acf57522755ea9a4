"""Tiny runs of training, in this process and in others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from n3net.training import config

TINY = """
task: gaussian
model: {name: n3net, noise_map: true, stages: 2, depth: 3, features: 8, block_channels: 3, k: 2, patch_size: 4,
        stride: 2, window: 5, options: reference-2018}
data: {train: [train], validation: [validation], sigma: [0, 50], crop: 16, crops_per_image: 4}
steps: 12
batch_size: 4
log_every: 1
save_every: 5
validate_every: 6
optimizer: {lr: 1.0e-3, clip: 50}
schedule: {name: one-cycle, warmup: 0.2}
"""


def tiny(folder: Path, *overrides: str) -> config.Config:
    return config.load(str(folder / "tiny.yaml"), overrides)


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}


def start(folder: Path, run: Path, *overrides: str) -> subprocess.Popen[str]:
    """``n3net train`` as a process of its own."""
    command = [sys.executable, "-m", "n3net", "train", str(folder / "tiny.yaml"), *overrides, "--runs", str(run)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_step(process: subprocess.Popen[str], run: Path, step: int) -> None:
    for _ in range(6000):
        if process.poll() is not None:
            pytest.fail(f"ended early: {process.stdout.read() if process.stdout else ''}")
        if (run / "log.jsonl").is_file() and f'"step": {step},' in (run / "log.jsonl").read_text():
            return
        time.sleep(0.01)
    pytest.fail("the run did not get going")
