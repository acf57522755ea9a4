"""What the paper claims, from kept figures and from new ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from n3net.errors import UserError
from n3net.evaluation import budget, claims
from n3net.evaluation.paper import TABLES
from n3net.evaluation.series import Figures, Series, stored
from n3net.models import create
from n3net.training import config as configs
from n3net.weights import save


def test_each_claim_is_a_line_with_its_tests_below() -> None:
    text = claims.report(Figures())
    assert all(f"not measured {claim.text}" in text for claim in claims.CLAIMS)
    assert text.count(": not measured") == sum(len(claim.tests) for claim in claims.CLAIMS)
    kept = claims.report(stored())
    assert "held         the first block chooses harder than the second" in kept
    assert "n3net eval gaussian --model gray --data Set12 --sigma 25" in kept


def test_weights_that_have_changed_are_named() -> None:
    old = Series("gaussian", "gray", "Set12", 25, [1.0] * 12, "n3net ...", "0" * 64)
    assert "weights that have changed since: gray;" in claims.report(Figures([old]))


@pytest.mark.parametrize("variant", budget.VARIANTS)
def test_every_variant_can_be_built_from_its_command(variant: str) -> None:
    command = budget.command_of("short", variant)
    overrides = command.removeprefix("n3net train short ").partition(" --runs")[0].split()
    config = configs.load("short", overrides)
    assert config.steps == 2500
    with torch.device("meta"):
        create(**config.model)


def test_variants_are_the_rows_of_the_tables() -> None:
    places = {v.place for v in budget.VARIANTS.values()}
    assert {f.row for f in TABLES["table1"].figures} < places
    assert {f.column for f in TABLES["table2"].figures} - places == {"k = 7"}


def made_up(variant: str, values: list[float]) -> Series:
    return Series(*budget.key_of("short", variant, "Set12"), values, "n3net ...")


def test_orders_of_a_table() -> None:
    figures = Figures(
        [made_up("n3net", [30.0, 31.0]), made_up("dncnn-17", [29.8, 30.7]), made_up("concrete", [30.1, 31.0])]
    )
    text = budget.table("table1", "short", figures=figures)
    assert "held: n3net over dncnn-17, paper +0.22 dB, ours +0.25 (+0.20 – +0.30)" in text
    assert "undecided: n3net over concrete" in text
    assert "dncnn-18 over" not in text
    assert "Not measured yet: n3net train short model.name=dncnn-18 --runs runs/short/dncnn-18" in text
    with pytest.raises(UserError, match="there is no 'long'; there is short"):
        budget.table("table1", "long")
    with pytest.raises(UserError, match="is for table1 and table2"):
        budget.table("table3", "short")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / "Set12").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(2):
        Image.fromarray(rng.integers(0, 255, (40, 50), np.uint8)).save(tmp_path / "data" / "Set12" / f"{i}.png")
    return tmp_path / "data"


def test_runs_of_a_folder_are_measured(data: Path, tmp_path: Path, command: Any) -> None:
    model = create("dncnn-17", features=4).eval()
    for name in ("dncnn-17", "dncnn-17-seed1", "mine"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        save(tmp_path / "runs" / name / "weights.safetensors", model, {"training": {"sigma": 25}, "licence": "none"})
    out = tmp_path / "figures.json"
    options = ["--weights", str(tmp_path / "runs"), "--data", str(data), "--json", str(out)]
    code, text, error = command("reproduce", "table1", "--budget", "short", *options)
    assert code == 0, error
    found = [s for s in json.loads(out.read_text())["series"] if s["model"] == "short/dncnn-17"]
    assert [s["seed"] for s in found] == [0, 1]
    assert len(found[0]["values"]) == 2
    assert "| 2 |" in text
    save(tmp_path / "runs" / "dncnn-17" / "weights.safetensors", model, {"training": {"sigma": 25, "steps": 9}})
    with pytest.raises(UserError, match="trained for 9 steps, and the budget 'short' is 2500"):
        budget.measure("short", tmp_path / "runs", [data / "Set12"])


def test_claims_are_measured_again_with_data(data: Path) -> None:
    new = claims.measure(data, limit=1)
    assert {s.model for s in new} == {"gray", "dncnn-gray"}
    assert {s.level for s in new} == {25, 50, 70}
    assert all(len(s.values) == 1 and s.digest for s in new)
