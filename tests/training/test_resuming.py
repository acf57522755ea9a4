"""Runs that go on: as if nothing had happened, with what may change and without what may not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from n3net.errors import UserError
from n3net.training.loop import Trainer, train
from n3net.weights import info, load
from runs import losses, start, tiny, wait_for_step

for module in ("lightning_fabric", "tensorboard", "yaml"):
    pytest.importorskip(module)


def _die_at_23(trainer: Trainer, *_: object) -> None:
    if trainer.state.step == 23:
        sys.exit()


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_killed_run_continues_as_if_nothing_had_happened(
    folder: Path, tmp_path: Path, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = ("steps=60", f"optimizer.name={optimizer}", "model.features=16")
    if optimizer == "adam":
        process = start(folder, tmp_path / "killed", *long)
        wait_for_step(process, tmp_path / "killed", 23)
        process.kill()
        process.wait()
    else:  # in this process, which is quicker
        monkeypatch.setattr(Trainer, "_report", _die_at_23)
        with pytest.raises(SystemExit):
            train(tiny(folder, *long), tmp_path / "killed")
        monkeypatch.undo()
    resumed = train(tiny(folder, *long), tmp_path / "killed")
    undisturbed = train(tiny(folder, *long), tmp_path / "whole")
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    assert resumed.scores == undisturbed.scores
    one, two = (load(tmp_path / run / "weights.safetensors").state_dict() for run in ("killed", "whole"))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    "change", ["model.k=3", "data.sigma=50", "data.crop=17", "start=identity", "optimizer.name=sgd"]
)
def test_what_cannot_change_within_a_run(folder: Path, tmp_path: Path, change: str) -> None:
    train(tiny(folder, "steps=1"), tmp_path)
    with pytest.raises(UserError, match=f"this run has {change.partition('=')[0]} .*cannot become"):
        train(tiny(folder, "steps=2", change), tmp_path)
    assert info(tmp_path / "weights.safetensors")["training"]["data"]["sigma"] == [0, 50]


def test_what_can_change_within_a_run(folder: Path, tmp_path: Path) -> None:
    train(tiny(folder, "steps=1"), tmp_path)
    changes = ("validate_every=0", "data.validation_images=1", "data.validation_sigma=[10]", f"data.root={folder}/")
    assert train(tiny(folder, "steps=2", *changes), tmp_path).step == 2


def test_changed_optimizer_settings_count(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(Trainer, "_clip", lambda self, rate: seen.append(self.optimizer.param_groups) or 1.0)
    train(tiny(folder, "steps=1"), tmp_path)
    train(tiny(folder, "steps=2", "optimizer.weight_decay=0.5", "optimizer.betas=[0.5, 0.9]"), tmp_path)
    decay, rest = seen[-1]
    assert (decay["weight_decay"], rest["weight_decay"], decay["betas"]) == (0.5, 0, (0.5, 0.9))


def test_where_a_run_started_is_kept(folder: Path, tmp_path: Path) -> None:
    """Also when the file it started from has changed since."""
    for name, steps in (("one", 1), ("other", 2)):
        train(tiny(folder, f"steps={steps}"), tmp_path / name)
    weights = tmp_path / "one" / "weights.safetensors"
    train(tiny(folder, "steps=1", f"start={weights}"), tmp_path / "run")
    (tmp_path / "other" / "weights.safetensors").replace(weights)
    train(tiny(folder, "steps=2", f"start={weights}"), tmp_path / "run")
    assert info(tmp_path / "run" / "weights.safetensors")["training"]["before"]["steps"] == 1
