"""The compiled CPU code for queries with candidates of their own, as PyTorch operators with gradients."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from n3net import kernel
from n3net.kernel.operators import operator
from n3net.neighbors.candidates import usable
from n3net.neighbors.problem import Sets


class _Pool(ctypes.Structure):
    """Mirrors ``Pool`` in kernel.cpp."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "batch",
            "queries",
            "items",
            "slots",
            "embedding",
            "channels",
            "k",
            "euclidean",
            "hard",
            "threads",
        )
    ]


def _pool(queries: Tensor, index: Tensor, values: Tensor, k: int, euclidean: bool, hard: bool) -> _Pool:
    sizes = *queries.shape[:2], values.shape[1], index.shape[2], queries.shape[2], values.shape[2]
    return _Pool(*sizes, k, euclidean, hard, torch.get_num_threads())


@operator("n3net::choose")
def _choose(
    queries: Tensor,
    items: Tensor,
    index: Tensor,
    scale: Tensor,
    strength: Tensor,
    values: Tensor,
    k: int,
    euclidean: bool,
    hard: bool,
) -> Tensor:
    tensors = [t.contiguous() for t in (queries, items, index, scale, strength, values)]
    out = values.new_empty(*queries.shape[:2], k, values.shape[2])
    if out.numel():
        kernel.run("choose", _pool(queries, index, values, k, euclidean, hard), *tensors, out)
    return out


@_choose.register_fake
def _(queries: Tensor, *others: Any) -> Tensor:
    values, k = others[4:6]
    return values.new_empty(*queries.shape[:2], k, values.shape[2])


@operator("n3net::choose_backward")
def _choose_backward(
    g: Tensor,
    queries: Tensor,
    items: Tensor,
    index: Tensor,
    scale: Tensor,
    strength: Tensor,
    values: Tensor,
    k: int,
    euclidean: bool,
    hard: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    tensors = [t.contiguous() for t in (g, queries, items, index, scale, strength, values)]
    grads = [
        torch.zeros_like(t, memory_format=torch.contiguous_format) for t in (queries, items, scale, strength, values)
    ]
    if g.numel():
        kernel.run("choose_backward", _pool(queries, index, values, k, euclidean, hard), *tensors, *grads)
    return grads[0], grads[1], grads[2], grads[3], grads[4]


@_choose_backward.register_fake
def _(g: Tensor, queries: Tensor, items: Tensor, index: Tensor, *others: Any) -> tuple[Tensor, ...]:
    inputs = queries, items, *others[:3]  # scale, strength, values
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in inputs)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.rest = inputs[6:]


def _gradient(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    queries, items, scale, strength, values = _choose_backward(g, *ctx.saved_tensors, *ctx.rest)
    return queries, items, None, scale, strength, values, None, None, None


def _no_second_gradient(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "n3net: the compiled kernel has no second derivative; use backend='tiled' of N3Block, N3Block1d or nearest "
        "where you need one (create_graph=True, gradient penalties, Hessians)"
    )


_choose.register_autograd(_gradient, setup_context=_setup)
_choose_backward.register_autograd(_no_second_gradient)


def neighbors(problem: Sets) -> Tensor:
    """All neighbours of all queries among their candidates, (B, Q, k, C), 0 where there are none."""
    p, choice = problem, problem.choice
    assert p.candidates is not None
    index = p.candidates.long().masked_fill(~usable(p), -1)
    tensors = p.queries, p.items, index, choice.scale, choice.strength, p.values
    result: Tensor = _choose(*tensors, choice.k, choice.distance == "euclidean", choice.rule == "hard")
    return result
