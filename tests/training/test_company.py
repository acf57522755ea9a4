"""Runs of several processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from n3net.errors import UserError
from n3net.training import checkpoint
from n3net.training.loop import train
from n3net.weights import info, load
from runs import losses, start, tiny

for module in ("lightning_fabric", "tensorboard", "yaml"):
    pytest.importorskip(module)


def test_a_host_with_an_old_copy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from n3net.training import company

    checkpoint.save(tmp_path / "shared", 10, {"state": {"step": 10, "elapsed": 4.5}})
    checkpoint.save(tmp_path / "old", 5, {"state": {"step": 5, "elapsed": 2.0}})
    answers = iter([[(10, 4.5), None], [("a", (10, 4.5)), ("b", (5, 2.0))]])
    monkeypatch.setattr(company, "gathered", lambda *_: next(answers))
    with pytest.raises(UserError, match=r"process 1 on b finds that of step 5 .* process 0 on a that of step 10"):
        company.same_checkpoint(tmp_path / "old", rank=1, world=2, patience=0)


def test_a_directory_may_be_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from n3net.training import company

    def gathered(value: object, world: int) -> list[object]:
        if value is None:  # the first question; the file appears behind it
            checkpoint.save(tmp_path, 10, {"state": {"step": 10, "elapsed": 4.5}})
            return [(10, 4.5), None]
        return [("a", (10, 4.5)), value]

    monkeypatch.setattr(company, "gathered", gathered)
    content, _ = company.same_checkpoint(tmp_path, rank=1, world=2)
    assert content is not None
    assert content["state"]["step"] == 10


def test_two_processes_equal_one(folder: Path, tmp_path: Path) -> None:
    """To rounding, with shares of one and two items of a batch; SGD, as it does not divide by gradients."""
    same = ("accelerator=cpu", "optimizer.name=sgd", "optimizer.lr=1e-3", "batch_size=3", "steps=6", "ema=0")
    process = start(folder, tmp_path / "two", "devices=2", *same)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert "2 processes (" in output
    train(tiny(folder, *same), tmp_path / "one")
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), rel=1e-4)
    files = [tmp_path / run / "weights.safetensors" for run in ("one", "two")]
    scores = [info(file)["training"]["validation"] for file in files]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)
    one, two = (load(file).state_dict() for file in files)
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-5, msg=name)
