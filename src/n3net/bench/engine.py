"""The engine of the N3 blocks: matching, selection and aggregation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from n3net.bench import naive
from n3net.bench.harness import Round, Sample
from n3net.bench.measure import peak_memory, ratio
from n3net.neighbors import Choice, Images, Matching, match_images

CHANNELS, K = 8, 7


def pixel_cost_growth(size: int = 512) -> Round:
    small = engine(size)
    return ratio(f"one of {4 * size}", engine(4 * size), f"16 of {size}", lambda: [small() for _ in range(16)])


def block_memory(size: int = 1024) -> Round:
    setup = f"""
from n3net.bench.engine import engine
engine(100)()
call = engine({size})
"""
    output = CHANNELS * K * size**2 * 4 / 2**20
    return lambda: Sample(peak_memory(setup, "out = call()") - output)


def block_over_naive(size: int = 512) -> Round:
    return ratio("n3net", engine(size), "2018 way", engine(size, ours=False))


def engine(size: int, ours: bool = True) -> Callable[[], object]:
    """From an embedding and temperatures to neighbour volumes, without gradients."""
    matching = Matching()
    grid = matching.grid(size, size)
    torch.manual_seed(0)
    embedding, values = (
        torch.randn(1, CHANNELS, size, size).contiguous(memory_format=torch.channels_last) for _ in range(2)
    )
    scale = torch.full((1, grid.query_rows, grid.query_cols), 0.02)
    choice = Choice(k=K, scale=scale, strength=torch.ones_like(scale))
    if not ours:
        side = grid.rows * grid.cell
        embedding, values = (F.pad(t, (0, side - size) * 2) for t in (embedding, values))

    def call() -> Tensor:
        with torch.no_grad():
            if ours:
                return match_images(Images(embedding=embedding, values=values, choice=choice, matching=matching))
            return naive.neighbors(embedding, values, scale, K, grid)

    return call
