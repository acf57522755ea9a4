"""State dicts of the files of 2018; the authors' own networks are compared in tests/models/test_parity.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from n3net.nn import PRESETS, N3Block2d, from_2018

INSIDE = "n3aggregation.aggregation.nnn."


def theirs(block: N3Block2d) -> dict[str, Tensor]:
    """Our state under the names of 2018, with what a batch norm of distances holds besides."""
    names = {"embedding": "embedcnn", "temperature": "tempcnn", "normalization": f"{INSIDE}bn"}
    out = {}
    for key, value in block.state_dict().items():
        net, _, rest = key.partition(".")
        out[f"{names[net]}.{rest}"] = value.reshape(1) if net == "normalization" else value
    extra = {"bias": torch.rand(1), "running_mean": torch.rand(1), "num_batches_tracked": torch.tensor(7)}
    return out | {f"{INSIDE}bn.{name}": value for name, value in extra.items()}


def block() -> N3Block2d:
    torch.manual_seed(0)
    net = N3Block2d(2, 2, 4, 2, 3, features=4, options="reference-2018")
    net(torch.rand(2, 2, 12, 12))  # moves the statistics
    return net.eval()


def test_names() -> None:
    net, fresh, x = (
        block(),
        N3Block2d(2, 2, 4, 2, 3, features=4, options="reference-2018").eval(),
        torch.rand(1, 2, 9, 10),
    )
    state = theirs(net)
    fresh.load_state_dict(from_2018(state))
    assert torch.equal(fresh(x), net(x))
    whole = {f"nls.1.{key}": value for key, value in state.items()} | {"nls.0.embedcnn.0.weight": torch.rand(3)}
    assert from_2018(whole, "nls.1.").keys() == net.state_dict().keys()


def test_one_temperature_for_all() -> None:
    net = block()
    state = {key: value for key, value in theirs(net).items() if not key.startswith("tempcnn")}
    state[f"{INSIDE}log_temp"] = torch.tensor([0.3])
    net.load_state_dict(from_2018(state))
    _, temperatures = net.weights(torch.rand(1, 2, 10, 12))
    expected = PRESETS["reference-2018"].temperature_scale * torch.tensor(0.3).exp() / net.normalization.constant()  # type: ignore[union-attr, operator]
    torch.testing.assert_close(temperatures, expected.detach().expand_as(temperatures))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"conv.weight": torch.zeros(1)},
            r"expected tensors named embedcnn\. \.\.\. of a block of 2018, got conv.weight",
        ),
        (
            {"embedcnn.0.weight": torch.zeros(1), "head.bias": torch.zeros(1)},
            "head.bias is nothing that a block of 2018",
        ),
    ],
)
def test_refuses_with_a_reason(state: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_2018(state)
