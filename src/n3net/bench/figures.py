"""The figures: what is compared with what, and what is to be reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from n3net.bench import naive
from n3net.bench.measure import Timing, peak_memory, timings
from n3net.matching import Matching, match_images
from n3net.models import DnCNN, N3Net, fold_batch_norm
from n3net.nn.convolutions import accelerate

CHANNELS, K = 8, 7
Tick = Callable[[str], None]


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    key: str
    what: str
    value: float
    low: float
    high: float
    to_reach: float
    detail: dict[str, object]

    @property
    def reached(self) -> bool:
        return self.value <= self.to_reach


def _ratio(key: str, what: str, times: dict[str, Timing], to_reach: float) -> Figure:
    """The first time over the second; its spread is that of the two at their extremes."""
    a, b = times.values()
    detail: dict[str, object] = {f"{name} (s)": asdict(t) for name, t in times.items()}
    return Figure(key, what, a.median / b.median, a.low / b.high, a.high / b.low, to_reach, detail)


def forward(repeat: int, tick: Tick) -> Figure:
    x = _fast(torch.rand(1, 1, 512, 512))
    nets = {"N3Net": _fast(fold_batch_norm(N3Net())), "DnCNN-17": _fast(fold_batch_norm(DnCNN()))}
    times = timings({name: _inference(net, x) for name, net in nets.items()}, repeat, tick)
    what = "N3Net / DnCNN-17, forward, gray 512 x 512, batch norm folded"
    return _ratio("n3net_over_dncnn17_forward", what, times, 1.40)


def training(repeat: int, tick: Tick) -> Figure:
    nets = {"N3Net": N3Net(), "DnCNN-17": DnCNN()}
    times = timings({name: _training_step(net) for name, net in nets.items()}, repeat, tick)
    what = "N3Net / DnCNN-17, one training step, 8 x 80 x 80"
    return _ratio("n3net_over_dncnn17_train", what, times, 1.45)


def training_memory(repeat: int, tick: Tick) -> Figure:
    setup = "from n3net.bench.figures import _training_step, DnCNN, N3Net\nstep = _training_step({}())"
    grown: dict[str, list[float]] = {"N3Net": [], "DnCNN": []}
    for _ in range(min(repeat, 3)):
        for name, list_ in grown.items():
            tick("memory")
            list_.append(peak_memory(setup.format(name), "step(); step()"))
    ratios = sorted(ours / theirs for ours, theirs in zip(*grown.values(), strict=True))
    what = "N3Net / DnCNN-17, peak memory of that step"
    value = ratios[len(ratios) // 2]
    return Figure("n3net_over_dncnn17_train_memory", what, value, ratios[0], ratios[-1], 1.6, {"MiB": grown})


def training_over_naive(repeat: int, tick: Tick) -> Figure:
    fast = timings({"n3net": _training_step(N3Net())}, repeat, tick)
    slow = timings({"2018 way": _training_step(naive.network())}, max(1, repeat // 3), tick)
    what = "N3Net, one training step: n3net / the block computed the 2018 way"
    return _ratio("train_over_naive", what, fast | slow, 1 / 3)


def training_winograd(repeat: int, tick: Tick) -> Figure:
    fast = _fast(N3Net())
    accelerate(fast)
    times = timings({"Winograd": _training_step(fast), "PyTorch": _training_step(N3Net())}, repeat, tick)
    what = "N3Net, one training step: 3 x 3 convolutions by Winograd's algorithm / by PyTorch"
    return _ratio("train_winograd", what, times, 1 / 1.5)


def block_over_naive(repeat: int, tick: Tick) -> Figure:
    ours, theirs = _engine(512, ours=True), _engine(512, ours=False)
    fast = timings({"n3net": ours}, max(repeat, 5), tick)
    slow = timings({"2018 way": theirs}, max(1, repeat // 3), tick)
    what = "engine, 512 x 512: n3net / the 2018 way"
    return _ratio("block_over_naive", what, fast | slow, 1 / 40)


def pixel_cost_growth(repeat: int, tick: Tick) -> Figure:
    small = _engine(512)
    calls = {"1 x 2048": _engine(2048), "16 x 512": lambda: [small() for _ in range(16)]}
    what = "engine, time per pixel: 2048 x 2048 / 512 x 512"
    return _ratio("pixel_cost_growth", what, timings(calls, repeat, tick), 1.10)


def block_memory(repeat: int, tick: Tick) -> Figure:
    setup = """
from n3net.bench.figures import _engine
_engine(100)()
call = _engine(1024)
"""
    tick("memory")
    output = CHANNELS * K * 1024**2 * 4 / 2**20
    grown = [peak_memory(setup, "out = call()") - output for _ in range(min(repeat, 3))]
    what = "engine, memory beyond in- and output, 1024 x 1024, inference (MiB)"
    return Figure("block_memory_mib", what, sorted(grown)[len(grown) // 2], min(grown), max(grown), 200, {})


def match_time(repeat: int, tick: Tick) -> Figure:
    call = _scoring(2000)
    time = timings({"scoring": call}, max(repeat, 5), tick)["scoring"]
    what = "N3Net for correspondences, 2,000 matches scored (s)"
    return Figure("match_seconds", what, time.median, time.low, time.high, 0.5, {})


def match_memory(repeat: int, tick: Tick) -> Figure:
    tick("memory")
    call = "from n3net.bench.figures import _scoring; _scoring(20_000)()"
    peaks = [peak_memory("", call, whole=True) for _ in range(min(repeat, 3))]
    what = "N3Net for correspondences, 20,000 matches scored, whole process (MiB)"
    return Figure("match_memory_mib", what, sorted(peaks)[len(peaks) // 2], min(peaks), max(peaks), 2048, {})


FIGURES = (
    forward,
    training,
    training_memory,
    training_over_naive,
    training_winograd,
    block_over_naive,
    pixel_cost_growth,
    block_memory,
    match_time,
    match_memory,
)


def _fast(part: Any) -> Any:
    """In the layout in which convolutions run faster on a CPU, as `n3net denoise` has it."""
    return part.to(memory_format=torch.channels_last)


def _inference(net: nn.Module, x: Tensor) -> Callable[[], object]:
    def call() -> Tensor:
        with torch.no_grad():
            out: Tensor = net(x)
            return out

    return call


def _training_step(net: nn.Module) -> Callable[[], object]:
    x = torch.rand(8, 1, 80, 80)
    optimizer = torch.optim.Adam(net.parameters(), 1e-4)

    def step() -> None:
        optimizer.zero_grad()
        (net(x) - x).square().mean().backward()
        optimizer.step()

    return step


def _engine(size: int, ours: bool = True) -> Callable[[], object]:
    """Matching, selection and aggregation, from an embedding and temperatures to neighbour volumes."""
    matching = Matching()
    grid = matching.grid(size, size)
    torch.manual_seed(0)
    embedding, values = (_fast(torch.randn(1, CHANNELS, size, size)) for _ in range(2))
    scale = torch.full((1, grid.query_rows, grid.query_cols), 0.02)
    strength = torch.ones_like(scale)
    if not ours:
        side = grid.rows * grid.cell
        embedding, values = (torch.nn.functional.pad(t, (0, side - size) * 2) for t in (embedding, values))

    def call() -> Tensor:
        with torch.no_grad():
            if ours:
                return match_images(embedding, values, scale, strength, K, matching)
            return naive.neighbors(embedding, values, scale, K, grid)

    return call


def _scoring(matches: int) -> Callable[[], object]:
    """What `n3net match` does between nearest neighbours and the pose, with the paper's network."""
    from n3net.correspondence.filtering import score
    from n3net.correspondence.matchfile import Pair
    from n3net.models.cnnet import CorrespondenceN3Net

    torch.manual_seed(0)
    net = CorrespondenceN3Net().eval()
    pair = Pair(torch.rand(matches, 2).numpy(), torch.rand(matches, 2).numpy())
    return lambda: score(pair, net)
