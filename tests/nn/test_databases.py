"""Blocks for queries and databases, and for sequences, against the operator applied by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from n3net import nearest, select
from n3net.nn import N3Block, N3Block1d, N3Options

OPTIONS = [N3Options(), N3Options(distance="squared", update="untempered", neighbors="differences")]


def by_hand(block: N3Block, x: Tensor, database: Tensor, **options: Any) -> Tensor:
    o = block.options
    t = block.temperature(x).squeeze(-1).exp()
    found = nearest(
        block.embedding(x),
        block.embedding(database),
        block.k,
        t,
        values=database,
        distance=o.distance,
        update=o.update,
        **options,
    )
    found = found - x[:, :, None] if o.neighbors == "differences" else found
    return torch.cat([x, found.flatten(2)], 2)


@pytest.mark.parametrize("options", OPTIONS, ids=["paper", "others"])
def test_block_with_a_database(options: N3Options) -> None:
    torch.manual_seed(0)
    block = N3Block(3, 2, options=options, features=8).double()
    x, database = torch.rand(2, 5, 3, dtype=torch.float64), torch.rand(2, 11, 3, dtype=torch.float64)
    torch.testing.assert_close(block(x, database=database), by_hand(block, x, database))
    there = torch.arange(11) < torch.tensor([[11], [6]])
    torch.testing.assert_close(
        block(x, database=database, database_mask=there), by_hand(block, x, database, mask=there)
    )
    index = torch.randint(11, (2, 5, 4))
    torch.testing.assert_close(
        block(x, database=database, candidates=index), by_hand(block, x, database, candidates=index)
    )
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    masked = block(x, mask, database=database)
    assert (masked[1, 3:, 3:] == (-x[1, 3:].repeat(1, 2) if options.neighbors == "differences" else 0)).all()
    torch.testing.assert_close(block(x, database=x), by_hand(block, x, x))
    with pytest.raises(ValueError, match="database: expected with database_mask or match_database_on"):
        block(x, database_mask=there)


def test_block_that_keeps_the_nearest() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 40, 3, dtype=torch.float64)
    blocks = [N3Block(3, 2, features=8, keep=keep).double() for keep in (None, 39, 10)]
    for block in blocks[1:]:
        block.load_state_dict(blocks[0].state_dict())
    whole, all_kept, few = (block(x) for block in blocks)
    torch.testing.assert_close(all_kept, whole)
    assert 1e-6 < (few - whole).abs().max() < 0.5
    few.sum().backward()
    assert all(p.grad is not None for p in blocks[2].parameters())


def sequences(lengths: list[int]) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(len(lengths), max(lengths), 2, generator=g, dtype=torch.float64)
    return x, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=["paper", "others"])
def test_sequences_are_windows_by_hand(causal: bool, options: N3Options) -> None:
    torch.manual_seed(0)
    block = N3Block1d(2, 2, 6, causal=causal, options=options, features=4).double()
    x, _ = sequences([14])
    e, t = block.embedding(x)[0], block.temperature(x)[0, :, 0].exp()
    out = block(x)[0]
    for i in range(14):
        own = [j for j in (range(i - 6, i) if causal else range(i - 3, i + 4)) if 0 <= j < 14 and j != i]
        found = torch.zeros(2, 2, dtype=torch.float64)
        if own:
            d = (e[own] - e[i]).square().sum(-1)
            d = d.sqrt() if options.distance == "euclidean" else d
            both = select(d, 2, t[i], update=options.update) if len(own) >= 2 else torch.ones(2, 1, dtype=d.dtype)
            found = both @ x[0, own]
        found = found - x[0, i] if options.neighbors == "differences" else found
        torch.testing.assert_close(out[i], torch.cat([x[0, i], found.flatten()]))


@pytest.mark.parametrize("causal", [True, False])
def test_sequences_of_unequal_length(causal: bool) -> None:
    torch.manual_seed(0)
    block = N3Block1d(2, 3, 6, causal=causal, features=4).double()
    lengths = [17, 9, 4]
    x, mask = sequences(lengths)
    x = x.masked_fill(~mask[..., None], torch.nan)
    out = block(x.nan_to_num(7.0), mask)
    for row, n in enumerate(lengths):
        torch.testing.assert_close(out[row, :n], block(x[row : row + 1, :n])[0])
        assert (out[row, n:, 2:] == 0).all()


def test_a_causal_block_does_not_see_what_comes() -> None:
    block = N3Block1d(2, 2, 6, causal=True, features=4).double()
    x = torch.rand(1, 20, 2, dtype=torch.float64, requires_grad=True)
    for i in (0, 7, 19):
        (grad,) = torch.autograd.grad(block(x)[0, i].sum(), x)
        assert (grad[0, i + 1 :] == 0).all()
        assert grad[0, i].any()


def test_memory_of_a_sequence_is_linear_in_its_length() -> None:
    """The largest tensor that is made grows as the sequence does."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Largest(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.numbers = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            self.numbers = max([self.numbers, *(t.numel() for t in tree_leaves(out) if isinstance(t, Tensor))])
            return out

    block = N3Block1d(2, 2, 8, features=4, backend="tiled")
    sizes = []
    for length in (200, 2000):
        with Largest() as largest, torch.no_grad():
            block(torch.rand(1, length, 2))
        sizes.append(largest.numbers)
    assert sizes[1] <= 10.5 * sizes[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 1}, "window: expected an integer of at least k = 2, got 1"),
        ({"size": 4}, "size: expected an odd number, got 4"),
        ({"options": "reference-2018"}, "N3Block1d does not normalise distances"),
        ({"embedding": "mlp"}, "embedding: expected 'cnn', a module or None, got 'mlp'"),
    ],
)
def test_sequences_refuse_with_a_reason(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        N3Block1d(**{"channels": 2, "k": 2, **change})
