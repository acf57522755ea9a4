"""Configs that are no configs: refused in a few words, and at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from n3net.errors import UserError
from n3net.training.config import load

LAUGHS = "a0: &a0 [lol, lol, lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
CONFIGS = {
    "laughs": LAUGHS + "task: *a11\n",
    "laughs as a key": LAUGHS + "model: {name: n3net, k: *a11}\n",
    "itself": "task: gaussian\nmodel: &m {name: n3net, k: *m}\n",
    "a list": "- 1\n- 2\n",
    "a word": "x" * 100_000,
    "deep": "task: " + "[" * 20_000 + "]" * 20_000 + "\n",
    "digits": "base: gaussian-25\nsteps: " + "9" * 5000 + "\n",
    "a date that is none": "base: gaussian-25\nseed: 2026-99-99\n",
    "bytes": "base: gaussian-25\nseed: !!binary '='\n",
    "a tag": "base: !!python/object/apply:os.system ['true']\n",
    "no keys": "base: gaussian-25\n? [a, b]\n: 1\n",
    "a key that is a number": "base: gaussian-25\n1: 2\n",
    "base is a list": "base: [1, 2]\n",
    "base of itself": "base: config.yaml\n",
    "large": "# " + "x" * 2_000_000 + "\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIGS[name])
    start = time.process_time()
    with pytest.raises(UserError) as caught:
        load(str(path))
    assert len(str(caught.value)) < 1000
    assert time.process_time() - start < 20


def test_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.yaml")
    with pytest.raises(UserError, match="no such file"):
        load(str(tmp_path / "config.yaml"))


@pytest.mark.parametrize(
    "override",
    [
        *("epochs=.inf", "epochs=.nan", "epochs=1e300", "steps=" + "1" + "0" * 30, "explode=.nan", "explode=.inf"),
        *("explode=0", "optimizer.lr=.inf", "optimizer.lr=.nan", "seed=-1", "batch_size=" + "9" * 30),
        *("optimizer.betas=[.nan, 0.9]", "schedule.final=.nan", "ema=.nan", "epochs=1_000_000_000_000_000"),
        *("steps=" + "9" * 5000, "model=" + "[" * 5000, "seed=2026-99-99", "seed=*x", "seed=&x 1"),
        *("model={a: &a [1], b: [*a, *a]}", "data.sigma=" + "{a: " * 3000),
    ],
)
def test_values(override: str) -> None:
    if override == "seed=&x 1":  # a name that nobody uses is no harm
        assert load("gaussian-25", [override]).seed == 1
        return
    with pytest.raises(UserError) as caught:
        load("gaussian-25", [override])
    assert len(str(caught.value)) < 1000
