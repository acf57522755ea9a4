"""The benchmark measures what it says: the 2018 way computes the same, and ratios are ratios."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

from n3net.bench import naive
from n3net.bench.figures import _ratio
from n3net.bench.measure import Timing, machine, peak_memory, timings
from n3net.matching import Matching, match_images


def test_the_2018_way_computes_the_same() -> None:
    matching = Matching()
    grid = matching.grid(90, 100)
    embedding, values = torch.randn(1, 2, 90, 100) * 0.1, torch.randn(1, 3, 90, 100)
    scale = torch.full((1, grid.query_rows, grid.query_cols), 0.8)
    ours = match_images(embedding, values, scale, torch.ones_like(scale), 4, matching)
    torch.testing.assert_close(naive.neighbors(embedding, values, scale, 4, grid), ours, atol=1e-5, rtol=1e-4)


def test_timings_take_turns_and_leave_out_the_first() -> None:
    calls: list[str] = []
    result = timings({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3, lambda _: None)
    assert calls == ["a", "b"] * 4
    assert all(t.low <= t.median <= t.high for t in result.values())


def test_ratio_and_its_spread() -> None:
    figure = _ratio("key", "what", {"a": Timing(4.0, 3.0, 5.0), "b": Timing(2.0, 1.0, 4.0)}, 1.5)
    assert (figure.value, figure.low, figure.high) == (2.0, 0.75, 5.0)
    assert not figure.reached


def test_peak_memory_sees_an_allocation() -> None:
    assert 190 < peak_memory("", "x = torch.ones(50 * 2**20)") < 260


def test_machine_is_recorded() -> None:
    assert machine()["torch"] == torch.__version__


def test_command_writes_json_and_refuses_unknown_figures(tmp_path: Path) -> None:
    def n3net(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "n3net", "bench", *arguments], capture_output=True, text=True, check=False
        )

    wrong = n3net("--only", "speed")
    assert wrong.returncode == 2
    assert "there is no figure speed; there are forward, training" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    file = tmp_path / "bench.json"
    right = n3net("--only", "block_memory", "--repeat", "1", "--json", str(file))
    assert right.returncode == 0, right.stderr
    report = json.loads(file.read_text())
    assert report["block_memory_mib"] == report["figures"][0]["value"] > 0
