"""Runs: whole, stopped, killed, continued, split and spoilt."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from n3net.errors import UserError
from n3net.tasks import task_class
from n3net.training import checkpoint
from n3net.training.loop import Trainer, train
from n3net.weights import info, load
from runs import losses, start, tiny, wait_for_step

for module in ("lightning_fabric", "tensorboard", "yaml"):
    pytest.importorskip(module)


def test_whole_run(folder: Path, tmp_path: Path) -> None:
    outcome = train(tiny(folder), tmp_path / "run")
    assert outcome.step == 12
    assert outcome.signal is None
    assert list(losses(tmp_path / "run")) == list(range(1, 13))
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    speeds = [line for line in lines if line["kind"] == "speed"]
    assert len(speeds) == 12
    assert all(line["items_per_second"] > 0 and 0 <= line["waiting"] <= 1 for line in speeds)
    weights = tmp_path / "run" / "weights.safetensors"
    assert info(weights)["training"]["steps"] == 12
    out = load(weights)(torch.rand(1, 1, 24, 24), 25.0)
    assert out.shape == (1, 1, 24, 24)
    assert {p.name for p in (tmp_path / "run").iterdir()} >= {
        "config.yaml",
        "checkpoints",
        "tensorboard",
        "log.jsonl",
    }
    again = train(tiny(folder), tmp_path / "run")  # complete: nothing left to do
    assert again.step == 12


def test_learns(folder: Path, tmp_path: Path) -> None:
    outcome = train(tiny(folder, "steps=100", "data.sigma=50", "start=identity", "optimizer.lr=5e-3"), tmp_path)
    assert outcome.scores["psnr"] > 14.15 + 3  # that of the noisy image, and 3 dB


@pytest.mark.parametrize(("fraction", "moves"), [(0, False), (0.5, True), (1, True)])
def test_norms_are_frozen_in_time(folder: Path, tmp_path: Path, fraction: float, moves: bool) -> None:
    train(tiny(folder, f"freeze_norms={fraction}"), tmp_path)
    means = [b for name, b in load(tmp_path / "weights.safetensors").named_buffers() if "running_mean" in name]
    assert means
    assert any(bool(mean.any()) for mean in means) is moves  # they begin with 0


def test_workers_change_nothing(folder: Path, tmp_path: Path) -> None:
    train(tiny(folder), tmp_path / "one")
    train(tiny(folder, "workers=3"), tmp_path / "three")
    assert losses(tmp_path / "one") == losses(tmp_path / "three")


def test_signal_saves_and_exits(folder: Path, tmp_path: Path) -> None:
    process = start(folder, tmp_path, "steps=100000", "save_every=1h")
    wait_for_step(process, tmp_path, 3)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, output
    assert "the same command goes on" in output
    state, _ = checkpoint.latest(tmp_path / "checkpoints")
    assert state is not None
    assert state["state"]["step"] == max(losses(tmp_path))


def test_stop_where_a_validation_is_due(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(trainer: Trainer, *_: object) -> None:
        if trainer.state.step == 6:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "_report", interrupt)
    outcome = train(tiny(folder), tmp_path)
    assert (outcome.step, outcome.signal) == (6, signal.SIGINT)
    state, _ = checkpoint.latest(tmp_path / "checkpoints")
    assert state is not None
    assert state["state"]["step"] == 6
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [6]


def test_divergence_says_where_and_keeps_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    broken = tiny(folder, "optimizer.name=sgd", "optimizer.lr=1e30", "optimizer.clip=null", "schedule.warmup=0.9")
    train(tiny(folder, "steps=5", "optimizer.name=sgd"), tmp_path)
    with pytest.raises(UserError, match=r"stopped at step \d+: .*first in .*checkpoint of step 5 is kept"):
        train(broken, tmp_path)


def test_budget_ends_annealed_and_counts_over_resumes(folder: Path, tmp_path: Path) -> None:
    train(tiny(folder, "budget=3s", "validate_every=0"), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    rates = [line["lr"] for line in lines if line["kind"] == "train"]
    assert rates[-1] < 0.1 * max(rates)
    steps = train(tiny(folder, "budget=3s", "validate_every=0"), tmp_path).step  # the budget is used up
    assert steps == len(rates)


def test_budget_counts_training_only(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def tick() -> float:  # a clock that goes on whenever it is looked at
        nonlocal now
        now += 1 / 16
        return now

    kind = task_class("gaussian")
    validate = kind.validate

    def slow(*args: object) -> dict[str, float]:
        nonlocal now
        now += 1000
        return validate(*args)

    monkeypatch.setattr("n3net.training.loop.time", SimpleNamespace(perf_counter=tick, monotonic=tick))
    monkeypatch.setattr(kind, "validate", slow)
    runs = [tmp_path / name for name in ("often", "never")]
    steps = [
        train(tiny(folder, "budget=1s", f"validate_every={every}", "save_every=2"), run).step
        for run, every in zip(runs, (3, 0), strict=True)
    ]
    assert steps[0] == steps[1] == 16
    assert info(runs[0] / "best.safetensors")["training"]["hours"] == pytest.approx(1 / 3600, abs=1e-3)


@pytest.mark.parametrize("length", ["steps=6", "budget=1s"])
def test_a_complete_run_says_so_and_stops(
    folder: Path, tmp_path: Path, length: str, capfd: pytest.CaptureFixture[str]
) -> None:
    first = train(tiny(folder, length), tmp_path)
    log, files = (tmp_path / "log.jsonl").read_bytes(), sorted(tmp_path.rglob("*"))
    weights = (tmp_path / "weights.safetensors").read_bytes()
    capfd.readouterr()
    assert train(tiny(folder, length), tmp_path) == first
    assert f"this run is complete after {first.step} steps" in capfd.readouterr().out
    assert (tmp_path / "log.jsonl").read_bytes() == log
    assert [path for path in sorted(tmp_path.rglob("*")) if "tfevents" not in path.name] == [
        path for path in files if "tfevents" not in path.name
    ]
    (tmp_path / "weights.safetensors").unlink()  # as if it had been killed before it was written
    train(tiny(folder, length), tmp_path)
    assert (tmp_path / "weights.safetensors").read_bytes() == weights
    assert (tmp_path / "log.jsonl").read_bytes() == log
    assert train(tiny(folder, f"steps={first.step + 2}"), tmp_path).step == first.step + 2


def test_bf16_and_channels_last(folder: Path, tmp_path: Path) -> None:
    train(tiny(folder, "steps=2", "precision=bf16-mixed", "channels_last=true", "model.name=dncnn-6x2"), tmp_path)
    assert all(np.isfinite(list(losses(tmp_path).values())))


def test_clip_by_value_while_the_rate_is_zero(folder: Path, tmp_path: Path) -> None:
    settings = ("steps=2", "optimizer.clip_by=value", "schedule.name=cosine", "schedule.warmup=0.5")
    assert train(tiny(folder, *settings), tmp_path).step == 2
