"""The paper's tables, with the weights that are here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from n3net import weights
from n3net.errors import UserError
from n3net.evaluation.paper import TABLES
from n3net.evaluation.reproduce import SCOREBOARDS, candidates, find_table, reproduce, to_json, to_markdown
from n3net.models import create
from n3net.weights.store import SHIPPED

pytestmark = pytest.mark.usefixtures("user")


def test_the_papers_figures() -> None:
    by = {(f.row, f.column): f.psnr for table in TABLES.values() for f in table.figures}
    assert by[("Set12, σ = 25", "N3Net")] == 30.55
    assert by[("BSD68, σ = 50", "N3Net")] == 26.39
    assert by[("Set12, σ = 25", "RED30")] is None
    assert by[("Urban100, σ = 50", "k = 4")] == 26.86
    assert by[("(ours full) 3 x DnCNN (d = 6), N3 block", "Urban100")] == 30.19
    for table in TABLES.values():  # every figure can be told apart from the others
        assert len({(f.row, f.column) for f in table.figures}) == len(table.figures)


@pytest.mark.parametrize("name", TABLES)
def test_without_weights_there_are_only_dashes(name: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n3net.evaluation.reproduce.METHODS", {})  # which need none
    table, measured = reproduce(TABLES[name], data.parent)
    assert not measured
    cells = [
        cell for line in to_markdown(table, measured).splitlines() if line.startswith("|") for cell in line.split("|")
    ]
    ours = [cell.split(" / ")[1].strip() for cell in cells if " / " in cell]
    assert ours
    assert set(ours) == {"–"}


@pytest.mark.parametrize(
    ("table", "column", "expected"),
    [("table3", "N3Net", "gray"), ("table3", "DnCNN", "dncnn-gray"), ("table5", "N3Net", "upscale")],
)
def test_weights_of_the_package_are_in_the_tables(table: str, column: str, expected: str) -> None:
    records = {path.stem: weights.info(path) for path in SHIPPED.glob("*.safetensors")}
    figures = [f for f in TABLES[table].figures if f.column == column]
    assert figures
    for figure in figures:
        assert list(candidates(figure, records, SCOREBOARDS[TABLES[table].task])) == [expected]


def test_only_what_fits_is_measured(user: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n3net.evaluation.reproduce.METHODS", {})

    def save(name: str, sigma: Any, **config: Any) -> None:
        weights.save(user / f"{name}.safetensors", create("n3net", **config), {"training": {"sigma": sigma}})

    save("full", 25)
    save("few", 25, k=2)
    save("colour", 25, channels=3)
    save("narrow", 25, features=32)
    save("any", [0, 55], noise_map=True, options="reference-2018")
    table, measured = reproduce(TABLES["table3"], data.parent)
    found = {(m.figure.row, m.figure.column, m.weights) for m in measured}
    assert found == {
        ("Set12, σ = 25", "N3Net", "full"),
        ("Set12, σ = 25", "N3Net", "any"),
        ("Set12, σ = 50", "N3Net", "any"),
    }
    assert all(m.n == 3 for m in measured)
    assert len(to_json(table, measured)["results"]) == 3
    text = to_markdown(table, measured)
    assert "full, trained, 3 images\n" in text
    assert "any, trained, 3 images; one network for sigma 0 to 55" in text
    table, measured = reproduce(TABLES["table2"], data.parent, datasets=["Set12"])
    assert {(m.figure.row, m.figure.column) for m in measured if m.weights == "few"} == {("Set12, σ = 25", "k = 2")}
    assert all(m.figure.psnr is None for m in measured)  # the paper has no such figure


def test_nn3d_stands_on_a_dncnn() -> None:
    figure = next(f for f in TABLES["table3"].figures if f.column == "NN3D")
    recipe = create("dncnn-6", depth=17).recipe
    record = {"model": {"name": recipe.name, "config": recipe.config}, "training": {"sigma": 25}}
    half = {**record, "training": {"sigma": 10}}
    told = {**record, "model": {"name": recipe.name, "config": {**recipe.config, "noise_map": True}}}
    assert list(candidates(figure, {"base": record})) == []  # the second round has half the noise
    assert list(candidates(figure, {"base": record, "half": half})) == ["nn3d:base,half"]
    assert list(candidates(figure, {"base": told})) == ["nn3d:base"]
    assert list(candidates(replace(figure, level=50), {"base": told})) == []


def test_which_networks_stand_for_a_column() -> None:
    figures = {f.column: f for f in TABLES["table3"].figures if (f.dataset, f.level) == ("Set12", 25)}

    def stands(column: str, name: str, clipped: bool = False, **config: Any) -> bool:
        recipe = create(name, **config).recipe
        training = {"sigma": [5, 29], "clipped": clipped}
        record = {"model": {"name": recipe.name, "config": recipe.config}, "training": training}
        return bool(list(candidates(figures[column], {"x": record})))

    assert stands("NLNet", "nlnet")
    assert stands("NLNet", "nlnet", patch_size=7)
    assert not stands("NLNet", "nlnet", patch_size=5)
    assert not stands("NLNet", "nlnet", channels=3)
    assert not stands("NLNet", "unlnet")
    assert stands("UNLNet", "unlnet", filters=48)
    assert not stands("UNLNet", "unlnet", group=1)  # the UNet of the same paper
    assert stands("FFDNet", "ffdnet", depth=15, features=64, norm=False)
    assert not stands("FFDNet", "ffdnet", depth=3)
    assert not stands("FFDNet", "ffdnet", clipped=True)


def test_an_unknown_table() -> None:
    with pytest.raises(UserError, match="supplement, supplement-sr, table1, table2, table3, table4, table5, table6"):
        find_table("table9", TABLES)
