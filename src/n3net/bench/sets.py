"""Queries and databases: candidates, pruning, and sets against themselves."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from n3net.bench.harness import Round, Sample
from n3net.bench.measure import peak_memory, ratio
from n3net.errors import UserError
from n3net.neighbors.nearest import nearest
from n3net.neighbors.problem import Choice, Sets
from n3net.neighbors.pruning import nearest_items
from n3net.selection import select

QUERIES, CANDIDATES, ITEMS, CHANNELS, K = 10_000, 64, 100_000, 32, 7


def candidates(ours: bool = True, size: int = 1) -> Callable[[], Tensor]:
    """Neighbours among candidates anywhere in the database, without gradients; ``size`` divides all numbers."""
    torch.manual_seed(0)
    queries, items, values = (torch.randn(1, n // size, CHANNELS) for n in (QUERIES, ITEMS, ITEMS))
    index = torch.randint(ITEMS // size, (1, QUERIES // size, CANDIDATES))

    def call() -> Tensor:
        with torch.no_grad():
            if ours:
                return nearest(queries, items, K, values=values, candidates=index)
            d = (queries[:, :, None] - items[0, index]).square().sum(-1).sqrt()  # (1, Q, M)
            return select(d, K) @ values[0, index]

    return call


def candidates_over_gathering() -> Round:
    return ratio("nearest", candidates(), "gather and select", candidates(ours=False))


def candidates_memory() -> Round:
    setup = "from n3net.bench.sets import candidates\ncandidates(size=100)()\ncall = candidates()"
    output = QUERIES * K * CHANNELS * 4 / 2**20
    return lambda: Sample(peak_memory(setup, "out = call()") - output)


def itself(size: int) -> Callable[[], Tensor]:
    """A set against itself, without gradients."""
    torch.manual_seed(0)
    items = torch.randn(1, size, CHANNELS)

    def call() -> Tensor:
        with torch.no_grad():
            return nearest(items, items, 3, itself=False)

    return call


def itself_memory(size: int = 20_000) -> Round:
    setup = f"from n3net.bench.sets import itself\nitself(100)()\ncall = itself({size})"
    return lambda: Sample(peak_memory(setup, "out = call()") - size * 3 * CHANNELS * 4 / 2**20)


def pruned(queries: int = 2_000) -> Callable[[], Tensor]:
    """Some queries of a database that is weighed by its nearest 128 items only."""
    torch.manual_seed(0)
    items = torch.randn(1, ITEMS, CHANNELS)

    def call() -> Tensor:
        with torch.no_grad():
            return nearest(items[:, :queries], items, K, keep=128)

    return call


def pruned_over_faiss(queries: int = 2_000) -> Round:
    """The search for the nearest 128 items against that of the library FAISS, its index for exact search."""
    try:
        import faiss
    except ImportError as error:
        raise UserError("needs the library FAISS: pip install faiss-cpu") from error
    torch.manual_seed(0)
    faiss.omp_set_num_threads(torch.get_num_threads())
    items = torch.randn(1, ITEMS, CHANNELS)
    scale = torch.ones(1, queries)
    choice = Choice(k=K, scale=scale, strength=scale)
    problem = Sets(queries=items[:, :queries], items=items, values=items, choice=choice)

    def by_faiss() -> None:
        index = faiss.IndexFlatL2(CHANNELS)
        index.add(items[0].numpy())
        index.search(items[0, :queries].numpy(), 128)

    return ratio("n3net", lambda: nearest_items(problem, 128), "FAISS", by_faiss)


def pruned_memory() -> Round:
    setup = "from n3net.bench.sets import pruned\ncall = pruned(10)\ncall()\ncall = pruned()"
    return lambda: Sample(peak_memory(setup, "out = call()"))
