"""Where training starts from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from n3net.errors import UserError
from n3net.models import create
from n3net.training.loop import train
from n3net.training.start import start_at_identity
from n3net.weights import load
from runs import tiny

for module in ("lightning_fabric", "tensorboard", "yaml"):
    pytest.importorskip(module)


@pytest.mark.parametrize("name", ["n3net", "dncnn"])
def test_identity(name: str) -> None:
    model = create(name, noise_map=True, depth=3)
    start_at_identity(model)
    x = torch.rand(1, 1, 40, 40)
    torch.testing.assert_close(model(x, 25.0), x)


def test_starts_from_weights(folder: Path, tmp_path: Path) -> None:
    train(tiny(folder), tmp_path / "one")
    weights = tmp_path / "one" / "weights.safetensors"
    still = ("steps=1", f"start={weights}", "optimizer.lr=1e-30")
    train(tiny(folder, *still), tmp_path / "two")
    one, two = (load(tmp_path / run / "weights.safetensors") for run in ("one", "two"))
    for (name, a), b in zip(one.named_parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, msg=name)
    assert two.record["training"]["before"]["steps"] == 12  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"start: .*k 2.*, the config's model .*k 3"):
        train(tiny(folder, *still, "model.k=3"), tmp_path / "three")
    with pytest.raises(UserError, match="there are no weights 'identiti'"):
        train(tiny(folder, "start=identiti"), tmp_path / "four")
