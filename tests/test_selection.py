"""Eqs. 1-11: each rule, its limits, its gradients, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from n3net import select

torch.manual_seed(0)
EXAMPLE = torch.tensor([0.0, 1.0, 2.0, 5.0], dtype=torch.float64)


def literal(d: Tensor, k: int, t: float, update: str) -> Tensor:
    """Eqs. 3, 4, 8-10 as printed, in float64; fails where a weight rounds to 1."""
    alpha = -d
    rows = []
    for _ in range(k):
        z = alpha / t if update == "tempered" else alpha
        if update == "untempered" and not rows:
            z = alpha = alpha / t
        w = torch.softmax(z, -1)
        rows.append(w)
        alpha = alpha + torch.log(1 - w)
    return torch.stack(rows, -2)


@pytest.mark.parametrize("update", ["tempered", "untempered"])
@pytest.mark.parametrize("t", [0.3, 1.0, 7.0])
def test_continuous_is_the_paper_to_the_letter(update: str, t: float) -> None:
    d = torch.rand(5, 3, 12, dtype=torch.float64) * 2
    torch.testing.assert_close(select(d, 6, t, update=update), literal(d, 6, t, update), rtol=1e-10, atol=1e-12)


def test_the_two_updates_differ() -> None:
    tempered = select(EXAMPLE, 2, 0.1)
    untempered = select(EXAMPLE, 2, 0.1, update="untempered")
    torch.testing.assert_close(tempered[1], torch.tensor([0.0, 1, 0, 0], dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(untempered[1], torch.tensor([0.5, 0.5, 0, 0], dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(tempered[0], untempered[0])


def test_untempered_recursion_is_w_times_one_minus_w() -> None:
    w = select(EXAMPLE, 3, 0.7, update="untempered")
    for j in range(2):
        expected = w[j] * (1 - w[j])
        torch.testing.assert_close(w[j + 1], expected / expected.sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("t", [1e-3, 1e-6, 1e-12])
def test_cold_limit_is_hard_knn_in_order(dtype: torch.dtype, t: float) -> None:
    d = torch.stack([torch.randperm(20) for _ in range(50)]).to(dtype)
    torch.testing.assert_close(select(d, 7, t), select(d, 7, rule="hard"), atol=1e-6, rtol=0)


def test_hot_limit_is_uniform_over_what_the_mask_leaves() -> None:
    mask = torch.tensor([True, True, False, True])
    w = select(EXAMPLE, 3, 1e9, mask=mask)
    torch.testing.assert_close(w, (mask.double() / 3).expand(3, 4), atol=1e-8, rtol=0)


def test_k_1_is_softmax_attention() -> None:
    d = torch.rand(4, 9)
    torch.testing.assert_close(select(d, 1, 0.5).squeeze(-2), torch.softmax(-d / 0.5, -1))


def test_running_sums_are_soft_masks_of_the_nearest() -> None:
    d = torch.rand(6, 9, dtype=torch.float64)
    for rule, t in (("continuous", 0.3), ("hard", 1.0)):
        w = select(d, 4, t, rule=rule)
        total, union = (select(d, 4, t, rule=rule, running=running) for running in ("sum", "union"))
        torch.testing.assert_close(total, torch.stack([w[:, : j + 1].sum(1) for j in range(4)], 1))
        torch.testing.assert_close(union, 1 - torch.stack([(1 - w[:, : j + 1]).prod(1) for j in range(4)], 1))
        torch.testing.assert_close(total.sum(-1), torch.arange(1.0, 5, dtype=torch.float64).expand(6, 4))
        assert ((union >= 0) & (union <= 1) & (union <= total + 1e-12)).all()
        if rule == "hard":
            ranks = d.argsort(-1).argsort(-1)
            for j in range(4):
                assert torch.equal(total[:, j], (ranks <= j).double())
            torch.testing.assert_close(union, total)
    warm = torch.tensor([0.0, 2.0])  # Eqs. 8-10 by hand: (0.88, 0.12), then (0.5, 0.5)
    assert select(warm, 2, 1.0, running="sum")[-1, 0] > 1.3
    with pytest.raises(ValueError, match="running: expected one of 'sum', 'union', got 'mean'"):
        select(warm, 2, running="mean")  # type: ignore[arg-type]


def test_hard_breaks_ties_by_index() -> None:
    w = select(torch.tensor([2.0, 1.0, 1.0, 1.0]), 3, rule="hard")
    assert w.argmax(-1).tolist() == [1, 2, 3]


def test_ties_share_alike() -> None:
    w = select(torch.tensor([1.0, 1.0, 9.0]), 2, 0.01)
    torch.testing.assert_close(w, torch.tensor([[0.5, 0.5, 0.0]] * 2))


def test_a_weight_of_one_to_the_last_bit_leaves_the_next_neighbour_right() -> None:
    d = torch.tensor([0.0, 1000.0, 1001.0], requires_grad=True)
    w = select(d, 2, 1.0, update="untempered")
    assert w[0, 0] == 1
    # In exact arithmetic log(1 - w_1) is -1000 + log(1 + e^-1), so z^2 = (-999.69, -1000, -1001).
    z = torch.tensor([-1000 + math.log1p(math.exp(-1)), -1000.0, -1001.0])
    torch.testing.assert_close(w[1], torch.softmax(z, 0), rtol=1e-4, atol=1e-5)
    w[1, 2].backward()
    assert d.grad is not None
    assert torch.isfinite(d.grad).all()
    assert d.grad.abs().max() > 0.05


@pytest.mark.parametrize("update", ["tempered", "untempered"])
@pytest.mark.parametrize("t", [1e-3, 1e-2, 0.1, 1.0, 10.0, 1e3])
def test_gradcheck(update: str, t: float) -> None:
    # Distances that are of the order of the temperature, and some that are far above: flat and sharp weights.
    d = (torch.rand(2, 3, 7, dtype=torch.float64) * 3 * t).requires_grad_()
    temperature = torch.full((2, 3), t, dtype=torch.float64).requires_grad_()

    def scaled(d: Tensor, temperature: Tensor) -> Tensor:
        return select(d * t, 4, temperature * t, update=update)

    unit = (d.detach() / t).requires_grad_()
    assert torch.autograd.gradcheck(scaled, (unit, torch.ones_like(temperature).requires_grad_()))
    far = (torch.tensor([[0.0, 1.0, 2.0, 5.0]], dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: select(x, 3, t, update=update), (far,), eps=1e-7 * t, atol=1e-4 / t)


def test_gradcheck_with_a_mask() -> None:
    d = torch.rand(2, 7, dtype=torch.float64, requires_grad=True)
    t = torch.rand(2, dtype=torch.float64).add(0.5).requires_grad_()
    mask = torch.arange(7) != torch.tensor([[2], [5]])
    assert torch.autograd.gradcheck(lambda d, t: select(d, 3, t, mask=mask), (d, t))


def test_double_backward() -> None:
    d = torch.rand(2, 5, dtype=torch.float64, requires_grad=True)
    t = torch.rand(2, dtype=torch.float64).add(0.5).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda d, t: select(d, 3, t), (d, t))


def test_function_transforms() -> None:
    """Backward and forward, and of each other."""
    d = torch.rand(6, dtype=torch.float64)

    def scalar(d: Tensor) -> Tensor:
        return select(d, 2, 0.5)[1, 2]

    def gradient(d: Tensor) -> Tensor:
        return torch.func.grad(scalar)(d)

    jacobian = torch.autograd.functional.jacobian(lambda d: select(d, 2, 0.5), d)
    torch.testing.assert_close(torch.func.jacrev(lambda d: select(d, 2, 0.5))(d), jacobian)
    torch.testing.assert_close(gradient(d), jacobian[1, 2])
    torch.testing.assert_close(torch.func.vjp(scalar, d)[1](torch.ones((), dtype=d.dtype))[0], jacobian[1, 2])
    hessian = torch.autograd.functional.hessian(scalar, d)
    for nested in (torch.func.jacrev(torch.func.jacrev(scalar)), torch.func.jacrev(gradient)):
        torch.testing.assert_close(nested(d), hessian)
    torch.testing.assert_close(torch.func.vmap(gradient)(torch.stack([d, d]))[1], jacobian[1, 2])
    torch.testing.assert_close(torch.func.jacfwd(lambda d: select(d, 2, 0.5))(d), jacobian)
    torch.testing.assert_close(torch.func.hessian(scalar)(d), hessian)


@pytest.mark.parametrize("t", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("update", ["tempered", "untempered"])
def test_forward_mode(update: str, t: float) -> None:
    d = (torch.rand(2, 7, dtype=torch.float64) * 3 * t).requires_grad_()
    temperature = torch.full((2,), t, dtype=torch.float64).requires_grad_()
    mask = torch.arange(7) != 2
    rows = torch.func.jacrev(lambda d, t: select(d, 4, t, update=update, mask=mask), (0, 1))(d, temperature)
    cols = torch.func.jacfwd(lambda d, t: select(d, 4, t, update=update, mask=mask), (0, 1))(d, temperature)
    torch.testing.assert_close(cols, rows, rtol=1e-8, atol=1e-9 / t**2)


def test_keeps_no_more_than_k_tensors() -> None:
    d = torch.rand(10, 50, requires_grad=True)
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (sizes.append(x.numel()), x)[1], lambda x: x):
        select(d, 5, 0.5)
    # log w (k tensors) for the selection, w (k tensors) for exp, and what 1/t and the shift of d keep.
    assert sum(size >= 10 * 50 * 5 for size in sizes) <= 2
    assert sum(sizes) <= 10 * 50 * (2 * 5 + 7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    d = torch.rand(8, 30).to(dtype)
    w = select(d, 4, 0.1)
    assert w.dtype == dtype
    torch.testing.assert_close(w, select(d.float(), 4, 0.1).to(dtype))


def test_temperature_per_query() -> None:
    d = torch.rand(2, 3, 8)
    t = torch.rand(2, 3) + 0.1
    both = select(d, 2, t)
    torch.testing.assert_close(both[1, 2], select(d[1, 2], 2, float(t[1, 2])))


def test_stochastic_follows_its_distribution() -> None:
    d = EXAMPLE.float().expand(20000, 4)
    w = select(d, 2, 1.5, rule="stochastic", generator=torch.Generator().manual_seed(1))
    assert set(w.unique().tolist()) == {0.0, 1.0}
    assert (w.sum(-2) <= 1).all()
    p = torch.softmax(-EXAMPLE.float() / 1.5, -1)
    torch.testing.assert_close(w[:, 0].mean(0), p, atol=0.015, rtol=0)
    second = sum(p[i] * torch.where(torch.arange(4) == i, 0, p / (1 - p[i])) for i in range(4))
    torch.testing.assert_close(w[:, 1].mean(0), second, atol=0.015, rtol=0)


def test_stochastic_cold_limit_is_hard() -> None:
    d = torch.rand(20, 10, dtype=torch.float64)
    torch.testing.assert_close(select(d, 4, 1e-9, rule="stochastic"), select(d, 4, rule="hard"))


def test_generators_decide() -> None:
    d = torch.rand(5, 9)
    for rule in ("stochastic", "concrete"):
        a, b = (select(d, 3, rule=rule, generator=torch.Generator().manual_seed(7)) for _ in range(2))
        assert torch.equal(a, b)


def test_concrete_approaches_the_stochastic_rule_and_is_differentiable() -> None:
    d = EXAMPLE.float().expand(20000, 4)
    cold = select(d, 1, 1.5, rule="concrete", annealing=1e-3, generator=torch.Generator().manual_seed(2))
    assert (cold.amax(-1) > 0.99).float().mean() > 0.98
    torch.testing.assert_close(cold[:, 0].mean(0), torch.softmax(-EXAMPLE.float() / 1.5, -1), atol=0.015, rtol=0)
    x = EXAMPLE.clone().requires_grad_()
    lam = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, lam: select(x, 3, rule="concrete", annealing=lam, generator=torch.Generator().manual_seed(3)),
        (x, lam),
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_properties(data: st.DataObject) -> None:
    """Random shapes, masks, ties, huge and tiny distances and temperatures: never NaN, sums of 1, order respected."""
    lead = data.draw(st.lists(st.integers(1, 3), max_size=2))
    m = data.draw(st.integers(1, 12))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    big = 1e30 if dtype == torch.float32 else 1e200
    number = st.one_of(
        st.floats(0, 10, width=32), st.sampled_from([0.0, 1.0, 1e-30, big, 3.0]), st.integers(0, 4).map(float)
    )
    count = math.prod(lead) * m
    d = torch.tensor(data.draw(st.lists(number, min_size=count, max_size=count)), dtype=dtype).view(*lead, m)
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=m, max_size=m)))
    mask[data.draw(st.integers(0, m - 1))] = True
    k = data.draw(st.integers(1, int(mask.sum())))
    t = data.draw(st.sampled_from([1e-12, 1e-4, 0.1, 1.0, 50.0, 1e12]))
    rule = data.draw(st.sampled_from(["continuous", "hard", "stochastic", "concrete"]))
    update = data.draw(st.sampled_from(["tempered", "untempered"]))
    d.requires_grad_()
    w = select(d, k, t, rule=rule, update=update, mask=mask)
    assert w.shape == (*lead, k, m)
    assert torch.isfinite(w).all()
    assert (w >= 0).all()
    torch.testing.assert_close(w.sum(-1), torch.ones(*lead, k, dtype=dtype), atol=1e-5, rtol=0)
    assert (w[..., ~mask] == 0).all()
    if rule == "continuous":
        w.square().sum().backward()
        assert d.grad is not None
        assert torch.isfinite(d.grad).all()
        first, order = w[..., 0, :][..., mask], d.detach()[..., mask]
        nearer = order[..., :, None] < order[..., None, :]
        assert ((first[..., :, None] >= first[..., None, :]) | ~nearer).all()
    gaps = d.detach()[..., mask].sort().values.diff()
    cold = update == "tempered" and t == 1e-12 and bool((gaps > 1e-6).all())  # items at the same distance share
    if rule in ("hard", "stochastic") or (rule == "continuous" and cold):
        assert (w.sum(-2) <= 1 + 1e-5).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k: expected an integer of at least 1, got 0"),
        ({"k": 5}, "5 neighbours were asked for, but a query has only 4 candidates"),
        ({"k": 2, "mask": torch.tensor([True, False, False, False])}, "only 1 candidates that the mask leaves of 4"),
        ({"temperature": 0.0}, "temperature: expected positive numbers, got 0.0"),
        ({"temperature": -2.0}, "temperature: expected positive numbers, got -2.0"),
        ({"temperature": torch.ones(3)}, "one value per query, shape (), got shape (3,)"),
        ({"distances": torch.tensor([0.0, math.nan])}, "distances: expected numbers, got nan in 1 of 2 places"),
        ({"distances": torch.tensor([0.0, -math.inf])}, "distances: expected numbers, got -inf"),
        ({"distances": torch.tensor([1, 2])}, "got torch.int64 of shape (2,)"),
        ({"distances": torch.tensor(1.0)}, "expected a floating point tensor of shape (..., M)"),
        ({"rule": "soft"}, "rule: expected one of 'continuous', 'hard', 'straight-through', 'stochastic', 'concrete'"),
        ({"update": "none"}, "update: expected one of 'tempered', 'untempered', got 'none'"),
        ({"mask": torch.ones(4)}, "mask: expected a boolean tensor"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, "broadcasts to distances (4,), got (3,)"),
        ({"rule": "concrete", "annealing": 0.0}, "annealing: expected positive numbers, got 0.0"),
    ],
)
def test_refuses_with_a_reason(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=r".+") as error:
        select(**{"distances": EXAMPLE, "k": 1, **change})  # type: ignore[arg-type]
    assert message in str(error.value)


def test_infinite_distance_is_a_mask() -> None:
    d = torch.tensor([0.0, math.inf, 1.0])
    w = select(d, 2, 0.5)
    assert (w[:, 1] == 0).all()
    torch.testing.assert_close(w[:, [0, 2]], select(d[[0, 2]], 2, 0.5))
