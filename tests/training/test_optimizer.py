"""Optimizers, and the average of the weights."""

from __future__ import annotations

import pytest
import torch

from n3net.models import create
from n3net.training import config
from n3net.training.optimizer import Average, Muon, build_optimizer, orthogonal


def test_what_decays() -> None:
    model = create("dncnn", depth=3, features=4)
    decay, rest = build_optimizer(model, config.OptimizerConfig(weight_decay=0.1)).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert all(names[id(p)].endswith("weight") for p in decay["params"])
    assert all(names[id(p)].endswith("bias") for p in rest["params"])
    assert (decay["weight_decay"], rest["weight_decay"]) == (0.1, 0)


@pytest.mark.parametrize("shape", [(16, 16), (16, 144), (64, 16)])
def test_orthogonal(shape: tuple[int, int]) -> None:
    """As u vᵀ of the singular value decomposition, with singular values near 1."""
    matrices = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 1e3]).view(2, 1, 1)
    for matrix, result in zip(matrices, orthogonal(matrices), strict=True):
        u, _, v = torch.linalg.svd(matrix, full_matrices=False)
        inner = u.T @ result @ v.T
        assert (inner - inner.diagonal().diag()).abs().max() < 1e-4
        assert 0.3 < inner.diagonal().min() <= inner.diagonal().max() < 1.3
    assert orthogonal(torch.zeros(1, *shape)).abs().max() == 0


def test_muon() -> None:
    """The first step of a matrix is orthogonal and as large as the rate says; what is no matrix is left to Adam."""
    ours, adams = (create("dncnn", depth=4, features=16) for _ in range(2))
    adams.load_state_dict(ours.state_dict())
    before = {name: p.detach().clone() for name, p in ours.named_parameters()}
    for model, name in ((ours, "muon"), (adams, "adam")):
        optimizer = build_optimizer(model, config.OptimizerConfig(name=name, lr=0.01))  # type: ignore[arg-type]
        model(torch.linspace(-1, 1, 400).view(1, 1, 20, 20)).square().sum().backward()
        gradient = {name: p.grad.flatten(1).clone() for name, p in model.named_parameters() if p.dim() == 4}
        optimizer.step()
    orthogonalised = 0
    for (name, p), theirs in zip(ours.named_parameters(), adams.parameters(), strict=True):
        if p.shape == (16, 16, 3, 3):
            step = (p - before[name]).detach()
            assert step.square().mean().sqrt() == pytest.approx(0.01, rel=0.3)
            torch.testing.assert_close(step.flatten(1), -0.01 * 12 * orthogonal(gradient[name][None])[0])
            orthogonalised += 1
        else:
            torch.testing.assert_close(p, theirs)
    assert orthogonalised == 2


def test_muon_with_closure() -> None:
    results = []
    for by_closure in (False, True):
        layer = torch.nn.Linear(16, 16)
        torch.nn.init.eye_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        optimizer = Muon([{"params": list(layer.parameters())}], 0.01, (0.9, 0.999))

        def loss(layer: torch.nn.Linear = layer) -> float:
            layer.zero_grad()
            out = layer(torch.linspace(-1, 1, 160).view(10, 16)).square().mean()
            out.backward()
            return float(out.detach())

        for _ in range(3):
            if by_closure:
                value = optimizer.step(loss)
            else:
                value = loss()
                optimizer.step()
        results.append((value, layer.weight, layer.bias))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
    assert torch.equal(results[0][2], results[1][2])


def test_average() -> None:
    model = torch.nn.Linear(1, 1)
    average = Average(model, 0.5)
    with torch.no_grad():
        before = model.weight.clone()
        model.weight += 1
    average.update(model, 1000)
    torch.testing.assert_close(average.model.weight, before + 0.5)


def test_frozen_norms() -> None:
    """In training, a network whose norms are frozen computes what the averaged one does."""
    model = create("n3net-light", options="reference-2018", features=16, depth=3)
    average = Average(model, 0.5)
    x = torch.rand(2, 1, 40, 40)
    for step in (1000, 1001):
        model.train()(x)
        average.update(model, step)
    expected = average.model(x)
    average.freeze_norms(model.train())
    kept = {name: value.clone() for name, value in model.named_buffers()}
    y = model(x)
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    for name, value in model.named_buffers():
        torch.testing.assert_close(value, kept[name])
    model.train()
    assert (model(x) - expected).abs().max() > 1e-3  # the statistics of the batch are others
