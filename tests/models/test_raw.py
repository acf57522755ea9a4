"""Networks for raw data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from n3net.models import MODELS, count_parameters, create, describe
from n3net.models.raw import RawDenoiser

RAW_MODELS = [name for name in MODELS if describe(name)["task"] == "raw data"]


@pytest.mark.parametrize("name", RAW_MODELS)
def test_every_raw_model_runs_and_learns(name: str) -> None:
    model = create(name, depth=3, features=8)
    x = torch.rand(2, 1, 41, 50)
    out = model(x, torch.tensor([1e-3, 1e-2]), torch.tensor([1e-6, 1e-4]))
    assert out.shape == x.shape
    out.square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_the_program_of_2018() -> None:
    with torch.device("meta"):
        model: Any = create("n3net-dnd")
    assert not model.stabilize
    stages = list(model.net.stages)
    assert [stage.reach for stage in stages] == [9, 9, 9]
    assert stages[0].layers[0].in_channels == 3
    assert stages[1].layers[0].in_channels == 4 * 32
    assert stages[0].layers[-1].out_channels == 32
    assert stages[2].layers[-1].out_channels == 1
    assert model.net.blocks[0].k == 3
    assert count_parameters(model) > 3_000_000


@pytest.mark.parametrize("stabilize", [False, True])
def test_the_net_is_told_two_constant_maps(stabilize: bool) -> None:
    seen: list[torch.Tensor] = []

    class Spy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x)
            return x[:, :1]

    model = RawDenoiser(Spy(), stabilize)
    x = torch.rand(2, 1, 5, 6)
    a, b = torch.tensor([1e-2, 1e-3]), torch.tensor([1e-4, 1e-5])
    assert torch.allclose(model(x, a, b), x, atol=1e-5)  # what the net hands on comes back
    told = seen[0]
    assert told.shape == (2, 3, 5, 6)
    assert bool((told[:, 1:].amax((2, 3)) == told[:, 1:].amin((2, 3))).all())
    if not stabilize:
        assert torch.equal(told[:, 1, 0, 0], a)
        assert torch.equal(told[:, 2, 0, 0], b)


def test_a_model_is_told_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"\(B, 1, H, W\)"):
        create("raw-dncnn", depth=2, features=4)(torch.rand(1, 3, 8, 8), 1e-3, 1e-5)
