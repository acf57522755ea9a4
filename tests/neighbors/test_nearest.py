"""Queries and databases: masks, candidates, pruning and its bound, against loops over select."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from n3net import kernel, nearest, select
from n3net.neighbors import all_pairs, pruning

NATIVE = pytest.param("native", marks=pytest.mark.skipif(kernel.instruction_set() is None, reason="no kernel built"))
BACKENDS = ["reference", "tiled", NATIVE]
B, Q, N, M, E, C = 2, 9, 23, 6, 3, 4


def tensors(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Queries, items, values and temperatures."""
    g = torch.Generator().manual_seed(0)
    shapes = (B, Q, E), (B, N, E), (B, N, C), (B, Q)
    q, i, v, t = (torch.rand(s, generator=g, dtype=dtype) for s in shapes)
    return [2 * q, 2 * i, v, t + 0.2]


def numbers() -> Tensor:
    """Candidates, one place of two empty in some rows."""
    g = torch.Generator().manual_seed(1)
    index = torch.stack([torch.randperm(N, generator=g)[:M] for _ in range(B * Q)]).view(B, Q, M)
    return torch.where((torch.rand(B, Q, M, generator=g) < 0.3) & (torch.arange(M) > 2), -1, index)


def by_hand(
    queries: Tensor,
    items: Tensor,
    values: Tensor,
    t: Tensor,
    k: int,
    *,
    distance: str = "euclidean",
    candidates: Tensor | None = None,
    mask: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """One query after the other."""
    out = []
    for b in range(len(queries)):
        for q in range(queries.shape[1]):
            own = range(items.shape[1]) if candidates is None else [c for c in candidates[b, q].tolist() if c >= 0]
            own = [c for c in own if mask is None or mask[b, c]]
            d = (queries[b, q] - items[b, own]).square().sum(-1)
            d = d.sqrt() if distance == "euclidean" else d
            out.append(select(d, k, t[b, q], **options) @ values[b, own])
    return torch.stack(out).unflatten(0, queries.shape[:2])


def run(function: Any, inputs: list[Tensor], *rest: Any, **options: Any) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    if function is nearest:
        queries, items, values, t = leaves
        out = nearest(queries, items, *rest, t, values=values, **options)
    else:
        out = by_hand(*leaves, *rest, **options)
    weight = torch.sin(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), leaves)]


MASK = torch.arange(N) < torch.tensor([[N], [15]])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("distance", ["euclidean", "squared"])
@pytest.mark.parametrize("update", ["tempered", "untempered"])
@pytest.mark.parametrize("given", ["all", "masked", "candidates", "masked candidates"])
def test_equals_a_loop(backend: str, distance: str, update: str, given: str) -> None:
    options: dict[str, Any] = {"distance": distance, "update": update}
    if "masked" in given:
        options["mask"] = MASK
    if "candidates" in given:
        options["candidates"] = numbers() % 15 if "masked" in given else numbers()
    expected = run(by_hand, tensors(), 3, **options)
    for ours, theirs in zip(run(nearest, tensors(), 3, backend=backend, **options), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rule", ["hard", "straight-through"])
def test_rules_that_take_the_nearest(backend: str, rule: str) -> None:
    if backend == "native" and rule == "straight-through":
        with pytest.raises(ValueError, match="backend 'native' cannot run: it knows the rules"):
            run(nearest, tensors(), 3, backend=backend, rule=rule)
        return
    for candidates in (None, numbers()):
        queries, items, values, t = tensors()
        out = nearest(queries, items, 3, t, values=values, rule=rule, candidates=candidates, backend=backend)
        torch.testing.assert_close(
            out, by_hand(queries, items, values, t, 3, rule=rule, candidates=candidates), atol=1e-12, rtol=0
        )


def test_straight_through_has_the_gradient_of_the_continuous_rule() -> None:
    """Given the gradients of the weights."""
    d, t = torch.rand(4, 7, dtype=torch.float64), torch.rand(4, dtype=torch.float64) + 0.1
    grads = []
    for rule in ("straight-through", "continuous"):
        leaves = [x.clone().requires_grad_() for x in (d, t)]
        w = select(leaves[0], 3, leaves[1], rule=rule)
        if rule == "straight-through":
            assert torch.equal(w, select(d, 3, t, rule="hard"))
        grads.append(torch.autograd.grad((w * torch.cos(torch.arange(w.numel())).view_as(w)).sum(), leaves))
    torch.testing.assert_close(*grads)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"candidates": numbers(), "backend": "tiled"}
    whole = run(nearest, tensors(), 3, **options)
    monkeypatch.setattr(all_pairs, "CHUNK", 500)
    torch.testing.assert_close(run(nearest, tensors(), 3, **options), whole)
    with torch.no_grad():
        queries, items, values, t = tensors()
        torch.testing.assert_close(nearest(queries, items, 3, t, values=values, **options), whole[0])  # type: ignore[arg-type]


def test_a_set_against_itself() -> None:
    _, items, values, _ = tensors()
    own = torch.arange(N).expand(B, N, N)
    expected = nearest(items, items, 3, 0.5, values=values, itself=False)
    others = torch.stack([torch.cat([own[0, 0][:i], own[0, 0][i + 1 :]]) for i in range(N)]).expand(B, -1, -1)
    torch.testing.assert_close(nearest(items, items, 3, 0.5, values=values, candidates=others), expected)
    torch.testing.assert_close(nearest(items, items, 3, 0.5, values=values, candidates=own, itself=False), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_masks_and_empty_rows(backend: str) -> None:
    queries, items, values, t = tensors()
    candidates = numbers()
    candidates[0, 2] = -1
    query_mask = torch.arange(Q) < torch.tensor([[Q], [5]])
    queries[1, 5:], items[1, 15:], values[1, 15:] = torch.nan, torch.nan, torch.nan
    leaves = [x.requires_grad_() for x in (queries, items, values, t)]
    options: dict[str, Any] = {"mask": MASK, "query_mask": query_mask, "backend": backend}
    for own in (None, candidates):
        out = nearest(queries, items, 3, t, values=values, candidates=own, **options)
        assert out.isfinite().all()
        assert (out[1, 5:] == 0).all()
        assert (out[0, 2] == 0).all() == (own is not None)
        assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), leaves))
    broken = queries.detach().clone()
    broken[0, 0] = torch.inf
    out = nearest(broken, items, 3, t, values=values, candidates=candidates, **options)
    assert out[0, 0].isnan().all()
    assert out[0, 1:].isfinite().all()


@pytest.mark.parametrize("rule", ["continuous", "hard"])
@pytest.mark.parametrize("temperature", [0.02, 0.3, 2.0])
def test_pruning_keeps_its_bound(temperature: float, rule: str) -> None:
    """Total variation of the weights, whose own bound is 1, is what the neighbours of one-hot values show."""
    g = torch.Generator().manual_seed(0)
    queries, items = (torch.randn(1, n, 2, generator=g, dtype=torch.float64) for n in (40, 300))
    values = torch.eye(300, dtype=torch.float64)[None]
    whole = nearest(queries, items, 4, temperature, values=values, rule=rule)  # (1, Q, k, N): the weights
    before = torch.ones(1, 40, 4, dtype=torch.float64)
    for keep in (4, 30, 150, 299, 300):
        out, bound = nearest(queries, items, 4, temperature, values=values, keep=keep, bound=True, rule=rule)
        variation = (out - whole).abs().sum(-1) / 2
        assert (variation <= bound + 1e-9).all()  # beyond rounding
        assert (bound[..., 0] <= before[..., 0] + 1e-9).all()
        before = bound
    torch.testing.assert_close(out, whole)
    assert (bound < 1e-9).all()
    if temperature == 0.02 and rule == "continuous":
        _, bound = nearest(queries, items, 4, temperature, keep=30, bound=True)
        assert bound.median() < 1e-3  # not only right, but of use


def test_nearest_items_are_those_of_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    from n3net.neighbors import Choice, Sets

    monkeypatch.setattr(pruning, "CHUNK", 60)
    queries, items, values, t = tensors()
    choice = Choice(k=2, scale=1 / t, strength=1 / t)
    for mask, keep in ((None, 5), (MASK, 5), (MASK, 20), (None, N)):
        problem = Sets(queries=queries, items=items, values=values, choice=choice, mask=mask)
        found = pruning.nearest_items(problem, keep)
        d = torch.cdist(queries, items)
        d = d if mask is None else d.masked_fill(~mask[:, None], torch.inf)
        order = d.argsort(-1)[..., :keep]
        expected = torch.where(d.gather(-1, order).isinf(), -1, order)
        assert torch.equal(found.sort(-1).values, expected.sort(-1).values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": torch.zeros(B, Q, M)}, "candidates: expected numbers of items, int64 of shape (2, 9, M)"),
        ({"candidates": torch.full((B, Q, M), N)}, "candidates: expected numbers below 23, the number of items"),
        ({"candidates": torch.zeros(B, Q, 2).long()}, "3 neighbours were asked for, but a query has only 2 candidates"),
        ({"temperature": 0}, "temperature: expected positive numbers, got 0.0"),
        ({"temperature": torch.ones(5)}, "temperature: expected a number or one value per query, shape (2, 9)"),
        ({"itself": False}, "itself: 9 queries and 23 items are no set that is matched with itself"),
        ({"queries": torch.rand(B, Q, 7)}, "queries: expected shape (2, Q, 3) like the items, got (2, 9, 7)"),
        ({"values": torch.rand(B, 5, 7)}, "values: expected shape (2, 23, C) like the items, got (2, 5, 7)"),
        ({"k": 24}, "24 neighbours were asked for, but a query of the smallest set (23 items) has only 23 candidates"),
        ({"query_mask": torch.ones(B, 3)}, "query_mask: expected a boolean tensor of shape (2, 9), true where there"),
        ({"keep": 2}, "keep: expected an integer of at least k = 3, got 2"),
        ({"bound": True}, "bound: without keep, all items are weighed"),
        ({"keep": 5, "candidates": torch.zeros(B, Q, M).long()}, "keep: candidates were given"),
        ({"distance": "cosine"}, "distance: expected one of 'euclidean', 'squared', got 'cosine'"),
    ],
)
def test_refuses_with_a_reason(change: dict[str, Any], message: str) -> None:
    queries, items, _, _ = tensors()
    with pytest.raises(ValueError, match=r".+") as error:
        nearest(**{"queries": queries, "items": items, "k": 3, **change})
    assert message in str(error.value)
