"""The benchmark: how it repeats, reports and fails, on made-up figures, and what the real ones measure."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from n3net.bench import commands, correspondence, engine, figures, harness, inference, naive, simulation, training
from n3net.bench.harness import Figure, FigureError, Result, Sample, measure_apart, rounds, samples_of, summary
from n3net.bench.made_up import picture
from n3net.bench.measure import command_peak, machine, peak_memory, ratio
from n3net.neighbors import Matching
from n3net.nn import N3Block2d
from problems import match_images

Command = Callable[..., tuple[int, str, str]]


def giving(values: Iterator[float] | list[float], **options: Any) -> Figure:
    """A figure whose rounds give these values."""
    left = iter(values)
    return Figure("made_up", "a made-up figure", 1.0, lambda: lambda: Sample(next(left)), **options)


def values_of(figure: Figure, seconds: float = 1e9) -> list[float]:
    return [sample.value for sample in rounds(figure, seconds)]


# How often


def test_rounds_end_when_the_middle_half_lies_close() -> None:
    assert values_of(giving([1.0] * 9)) == [1.0] * 5
    far = [1.0, 2.0, 1.0, 2.0, 1.0]  # quartiles 1 and 2
    assert values_of(giving([*far, 1.0, 1.0, 1.0, 1.0, 7.0])) == [*far, 1.0, 1.0, 1.0, 1.0]
    assert values_of(giving([1.0, 1.09, 0.91, 1.09, 0.91])) == [1.0, 1.09, 0.91, 1.09, 0.91]
    assert len(values_of(giving([1.0, 1.11, 0.89, 1.11, 0.89, *[1.0] * 9]))) > 5
    assert values_of(giving([3.0, 5.0], least=1)) == [3.0]


def test_rounds_end_when_the_time_is_over_or_there_were_too_many() -> None:
    clock = iter(range(100))
    taken = list(rounds(giving([1.0, 9.0] * 50), 7.0, lambda: float(next(clock))))
    assert len(taken) == 11  # the clock is asked when there are enough rounds, 5 of them
    assert len(values_of(giving([1.0, 9.0] * 500))) == harness.MOST


def test_spread_may_be_relative_to_something_else() -> None:
    values = [0.10, 0.16, 0.04, 0.16, 0.04]  # a fraction beyond 1
    assert len(values_of(giving([*values, 0.1], scale=1.0))) == 5
    assert not harness.settled(giving([]), values)


def test_summary() -> None:
    samples = [Sample(v, {"a (s)": 2 * v}) for v in (3.0, 1.0, 2.0, 4.0, 30.0)]
    result = summary(giving([]), samples, 2)
    assert (result.low, result.value, result.high) == (2.0, 3.0, 4.0)
    assert result.parts == {"a (s)": 6.0}
    assert (result.rounds, result.threads, result.settled, result.reached) == (5, 2, False, False)


def test_ratio_times_in_turn_after_warming_up() -> None:
    calls: list[str] = []
    one_round = ratio("a", lambda: calls.append("a"), "b", lambda: calls.append("b"))
    assert calls == ["a", "b"]
    sample = one_round()
    assert calls == ["a", "b"] * 2
    assert sample.value == sample.parts["a (s)"] / sample.parts["b (s)"]


# In processes of their own


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_samples_of_a_process() -> None:
    code = "import os\nfor i in range(3): print('{\"value\": %d}' % (i + int(os.environ['OMP_NUM_THREADS'])))"
    assert [sample.value for sample in samples_of(python(code), threads=2)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('{\"value\": 1}'); raise ValueError('no room')", "ValueError: no room"),
        ("import sys; sys.exit('training needs yaml')", "training needs yaml"),
        ("import os; os._exit(3)", "ended with code 3"),
        pytest.param(
            "import os; os.kill(os.getpid(), 9)",
            "ended by SIGKILL, out of memory",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="no signals"),
        ),
    ],
)
def test_a_process_that_fails_says_why(code: str, words: str) -> None:
    with pytest.raises(FigureError, match=words):
        list(samples_of(python(code)))


def test_a_figure_in_a_process_of_its_own() -> None:
    """A real one."""
    figure = next(f for f in figures.FIGURES if f.key == "match_seconds")
    told: list[int] = []
    result = measure_apart(figure, 1, 0.0, lambda so_far: told.append(so_far.rounds))
    assert told == [1, 2, 3, 4, 5]
    assert result.value > 0
    assert result.threads == 1


# The report


def fakes() -> tuple[Figure, ...]:
    return (
        giving([], slow=True),
        Figure("zebra", "a ratio", 0.5, lambda: pytest.fail("not in this process")),
        Figure("apple", "memory (MiB)", 100, lambda: pytest.fail("not in this process"), threads=1),
    )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """``n3net bench`` with fake figures, whose values are the lengths of their keys; zebra never settles."""

    def measure(figure: Figure, threads: int, seconds: float, tell: Callable[[Result], None]) -> Result:
        if seconds == 13:
            raise FigureError("training needs yaml")
        spread = 3.0 if figure.key == "zebra" else 0.0
        samples = [Sample(len(figure.key) + sign * spread, {"a (s)": 1.0}) for sign in (-1, -1, 0, 1, 1)]
        result = summary(figure, samples, figure.threads or threads)
        tell(result)
        return result

    monkeypatch.setattr(figures, "FIGURES", fakes())
    monkeypatch.setattr(harness, "measure_apart", measure)
    return command


def test_json_has_the_figures_in_order(bench: Command, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    code, _, err = bench("bench", "--slow", "--threads", "3", "--json", str(file))
    assert code == 0, err
    assert err.splitlines() == ["1/3 made_up: 7.00", "2/3 zebra: 5.00", "3/3 apple: 5.0"]
    report = json.loads(file.read_text())
    assert list(report) == ["machine", "made_up", "zebra", "apple", "figures", "failed"]
    assert (report["made_up"], report["zebra"], report["apple"]) == (7, 5, 5)
    assert [f["key"] for f in report["figures"]] == ["made_up", "zebra", "apple"]
    assert [f["threads"] for f in report["figures"]] == [3, 3, 1]
    assert [f["reached"] for f in report["figures"]] == [False, False, True]
    assert [f["settled"] for f in report["figures"]] == [True, False, True]
    assert report["machine"]["torch"] == torch.__version__


def test_table_shows_what_was_not_reached_settled_or_measured(bench: Command) -> None:
    code, out, _ = bench("bench")
    assert code == 0
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines() if line}
    assert lines["made_up"] == "– takes many minutes: --slow 1.00 a made-up figure"
    assert lines["zebra"] == f"5.00 2.00 - 8.00, not settled 0.50 no {torch.get_num_threads()} a ratio"
    assert lines["apple"] == "5.0 5.0 - 5.0 100.0 yes 1 memory (MiB)"


def test_only(bench: Command, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    code, out, _ = bench("bench", "--only", "apple", "--only", "made_up", "--json", str(file))
    assert code == 0
    assert "a ratio" not in out
    assert [key for key in json.loads(file.read_text()) if key in ("made_up", "zebra", "apple")] == ["made_up", "apple"]
    code, _, err = bench("bench", "--only", "speed")
    assert code == 2
    assert err == "n3net: --only: there is no figure speed; there are made_up, zebra, apple\n"


def test_a_figure_that_fails_does_not_stop_the_others(bench: Command, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    code, out, err = bench("bench", "--seconds", "13", "--json", str(file))
    assert code == 1
    assert err.splitlines() == ["1/2 zebra: training needs yaml", "2/2 apple: training needs yaml"]
    assert out.count("failed, see above") == 2
    report = json.loads(file.read_text())
    assert report["failed"] == {"zebra": "training needs yaml", "apple": "training needs yaml"}
    assert "zebra" not in report


def test_keys_of_the_figures() -> None:
    assert [figure.key for figure in figures.FIGURES][:12] == [
        "n3net_over_dncnn17_folded",
        "n3net_over_dncnn17_plain",
        "dncnn17_over_folded",
        "n3net_over_dncnn17_forward",
        "ffdnet_over_torch",
        "train_over_torch",
        "train_over_torch_one_thread",
        "train_over_naive",
        "photo_overhead",
        "large_image_mib",
        "pixel_cost_growth",
        "block_memory_mib",
    ]
    slow = [figure.key for figure in figures.FIGURES if figure.slow]
    assert slow[:2] == ["photo_overhead", "large_image_mib"]
    assert all(key.startswith(("page_", "batch_")) for key in slow[2:])


# What is measured


def test_the_2018_way_computes_the_same() -> None:
    matching = Matching()
    grid = matching.grid(90, 100)
    embedding, values = torch.randn(1, 2, 90, 100) * 0.1, torch.randn(1, 3, 90, 100)
    scale = torch.full((1, grid.query_rows, grid.query_cols), 0.8)
    ours = match_images(embedding, values, scale, torch.ones_like(scale), 4, matching)
    torch.testing.assert_close(naive.neighbors(embedding, values, scale, 4, grid), ours, atol=1e-5, rtol=1e-4)


def test_a_block_the_2018_way_trains_the_same() -> None:
    torch.manual_seed(0)
    block = N3Block2d(4, k=3, window=3, features=8, options="reference-2018").double()
    with torch.no_grad():
        block.temperature[-1].bias.fill_(3.0)  # high: near weights of 1, the 2018 way is not exact
    x = torch.rand(2, 4, 30, 35, dtype=torch.float64)
    results = []
    for net in (block, naive.Block(block)):
        out = net(x)
        results.append([out, *torch.autograd.grad(out.square().sum(), list(block.parameters()))])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize(
    "begin",
    [
        lambda: inference.n3net_over_folded(80),
        lambda: inference.n3net_over_plain(80),
        lambda: inference.dncnn_over_folded(40),
        lambda: inference.n3net_over_dncnn(80),
        lambda: inference.ffdnet_over_torch(40),
        lambda: engine.pixel_cost_growth(40),
        lambda: engine.block_over_naive(80),
        lambda: correspondence.seconds(100),
    ],
)
def test_rounds_give_numbers(begin: Callable[[], harness.Round]) -> None:
    assert begin()().value > 0


@pytest.mark.parametrize("task", [training.GaussianDenoising, training._Of2018])
def test_training_steps_of_the_config(task: Any) -> None:
    for module in ("lightning_fabric", "yaml", "tensorboard"):
        pytest.importorskip(module)
    step = training.config_step(80, "batch_size=1", "winograd=false", task=task)
    trainer = inspect.getclosurevars(step).nonlocals["trainer"]
    before = [p.detach().clone() for p in trainer.net.parameters()]
    step()
    assert trainer.state.step == 1
    assert not all(torch.equal(p, b) for p, b in zip(trainer.net.parameters(), before, strict=True))


def test_photo_overhead_is_what_the_command_takes_beyond_the_network() -> None:
    sample = commands.photo_overhead(60, 80, 40)()
    assert sample.value == pytest.approx(sample.parts["n3net denoise (s)"] / sample.parts["network (s)"] - 1)
    assert sample.value > 0  # starting Python alone takes longer than the network


def test_peak_of_a_command() -> None:
    assert 10 < command_peak(["--version"]) < 2000
    with pytest.raises(RuntimeError, match="no-such-file"):
        command_peak(["denoise", "no-such-file.png"])


def test_peak_memory_sees_an_allocation() -> None:
    assert 190 < peak_memory("", "x = torch.ones(50 * 2**20)") < 260


def test_pictures_are_the_same_in_every_run() -> None:
    image = picture(300, 40, 3)
    assert (image == picture(300, 40, 3)).all()
    assert picture(300, 40, 1).shape == (300, 40)
    assert 20 < image[:, :, 0].astype(float).std() < 80


def test_machine_is_recorded() -> None:
    assert machine()["torch"] == torch.__version__


class TestSimulation:
    """Against times that can be worked out by hand."""

    BATCH = simulation.Batch(10, driver=0, read=0, written=0, start=5, read_rate=1, write_rate=1, spread=0)

    def test_workers_limit(self) -> None:
        found = simulation.simulate(self.BATCH, files=100, workers=10)
        assert found.seconds == 105
        assert found.limit == "workers"
        assert found.busy["workers"] == pytest.approx(100 / 105)

    def test_the_driver_limits(self) -> None:
        found = simulation.simulate(dataclasses.replace(self.BATCH, driver=2), files=100, workers=50)
        assert found.seconds == 5 + 2 * 100 + 10
        assert found.limit == "driver"

    def test_storage_limits(self) -> None:
        batch = dataclasses.replace(self.BATCH, read=3, written=4)
        found = simulation.simulate(batch, files=100, workers=50)
        assert found.seconds == 5 + 3 + 10 + 4 * 100
        assert found.limit == "write"
