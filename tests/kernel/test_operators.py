"""The kernel's operators: what PyTorch's own check of an operator asks of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from n3net import kernel
from n3net.kernel.operators import Operator
from n3net.neighbors import native, native_sets

pytestmark = pytest.mark.skipif(kernel.instruction_set() is None, reason="the compiled kernel is not built")

GRID = [5, 6, 2, 2, 3, 0]  # rows, cols, cell, patch, window, clip: an image of 10 x 12, 4 x 5 queries with 9 slots
K = 2


def arguments(name: str, dtype: torch.dtype) -> tuple[Any, ...]:
    """For an operator, by its name; tensors in the order of its arguments."""
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=dtype)

    embedding, values, volumes = rand(2, 3, 10, 12), rand(2, 4, 10, 12), rand(2, K * 4, 10, 12)
    d, query = rand(2, 4, 5, 9), rand(2, 4, 5)
    z, strength, rows = rand(2, 6, 7), rand(2, 6), rand(2, 6, K, 7)
    index = torch.randint(-1, 8, (2, 5, 6), generator=generator)
    pool = rand(2, 5, 3), rand(2, 8, 3), index, rand(2, 5), rand(2, 5), rand(2, 8, 4)
    places = [0, 0, 0, 0, 0, 0, 0, 0, *values.shape[2:]]
    return {
        "window_distances": (embedding, GRID),
        "window_distances_backward": (d, embedding, GRID),
        "window_aggregate": (d, query, values, GRID, K, False),
        "window_aggregate_backward": (volumes, d, query, values, GRID, K, False),
        "window_neighbors": (embedding, query, query, values, GRID, places, K, True, False, True, False),
        "choose": (*pool, K, True, False),
        "choose_backward": (rand(2, 5, K, 4), *pool, K, True, False),
        "select": (z, strength, K),
        "select_backward": (rows, z, strength, K),
    }[name]


OPERATORS = {
    op.name.removeprefix("n3net::"): op
    for module in (native, native_sets)
    for op in vars(module).values()
    if isinstance(op, Operator)
}
DIFFERENTIABLE = ("window_distances", "window_aggregate", "choose", "select")


def turned(x: Any) -> Any:
    """Images in channels_last, others with their first dimension innermost."""
    if not isinstance(x, Tensor):
        return x
    last = x.dim() == 4 and x.shape[2:] == (10, 12)
    return x.to(memory_format=torch.channels_last) if last else x.movedim(0, -1).contiguous().movedim(-1, 0)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(("dtype", "layout"), [(torch.float32, "contiguous"), (torch.float64, "turned")])
def test_opcheck(name: str, dtype: torch.dtype, layout: str) -> None:
    given = arguments(name, dtype)
    if layout == "turned":
        given = tuple(map(turned, given))
    if name in DIFFERENTIABLE:
        given = tuple(x.requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in given)
    torch.library.opcheck(OPERATORS[name].overload, given)


def test_what_has_no_gradient_says_so() -> None:
    for name, operator in OPERATORS.items():
        given = [
            x.requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x
            for x in arguments(name, torch.float32)
        ]
        out = operator(*given)
        total = sum(x.sum() for x in ([out] if isinstance(out, Tensor) else out))
        if name in DIFFERENTIABLE:
            total.backward()
        else:
            with pytest.raises(RuntimeError, match=r"no gradient|no second derivative"):
                total.backward()
