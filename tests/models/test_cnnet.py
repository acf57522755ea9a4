"""CNNet and N3Net for correspondences: their size, their norms, sets of unequal size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from n3net import kernel
from n3net.correspondence.inputs import features
from n3net.correspondence.matchfile import Pair
from n3net.errors import UserError
from n3net.models import CNNet, CorrespondenceN3Net, count_parameters, create
from n3net.neighbors import native
from n3net.nn import SetNorm, context_norm
from n3net.selection import select_from_logits
from n3net.weights import load, save
from problems import match_sets

SMALL: dict[str, dict[str, Any]] = {
    "cnnet": {"features": 16, "depth": 4},
    "n3net-sets": {"features": 16, "depth": 4, "block_features": 8},
}
needs_kernel = pytest.mark.skipif(kernel.instruction_set() is None, reason="the compiled kernel is not built")


def sets(*sizes: int, channels: int = 4, pad: int | None = None) -> tuple[Tensor, Tensor]:
    """Random sets, padded with NaN to the largest or to ``pad``, and their mask."""
    generator = torch.Generator().manual_seed(0)
    n = pad or max(sizes)
    x = torch.full((len(sizes), n, channels), torch.nan, dtype=torch.float64)
    for i, size in enumerate(sizes):
        x[i, :size] = torch.rand(size, channels, generator=generator, dtype=torch.float64)
    return x, torch.arange(n) < torch.tensor(sizes)[:, None]


@pytest.mark.parametrize(("name", "count"), [("cnnet", 397_057), ("n3net-sets", 498_885)])
def test_parameters_are_the_papers(name: str, count: int) -> None:
    assert count_parameters(create(name)) == count


def test_the_middle_block_is_narrowed_for_the_neighbours() -> None:
    net: Any = create("n3net-sets")
    widths = [block.linears[1].out_features for block in net.blocks if hasattr(block, "linears")]
    assert widths == [128] * 5 + [32] + [128] * 6
    assert net.blocks[6].k == 3
    assert net.blocks[6].out_channels == 128


def test_weights_begin_as_in_cnnet() -> None:
    torch.manual_seed(0)
    net = create("n3net-sets")
    for name, layer in net.named_modules():
        if isinstance(layer, nn.Linear):
            assert not layer.bias.any(), name
            assert layer.weight.abs().max() <= 2 * 2 / layer.in_features, name
    wide = net.get_submodule("blocks.0.linears.0").weight
    assert wide.std().item() == pytest.approx(0.88 * 2 / 128, rel=0.03)  # cut at two deviations, 0.88 of one is left


def test_a_width_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(UserError, match=r"multiple of k \+ 1 = 6, got 128"):
        create("n3net-sets", k=5)
    with pytest.raises(ValueError, match="at least 2 blocks"):
        CorrespondenceN3Net(16, 1)


@pytest.mark.parametrize("name", SMALL)
def test_input_of_another_shape_is_refused(name: str) -> None:
    net = create(name, ratio=True, **SMALL[name])
    with pytest.raises(ValueError, match=r"expected shape \(B, N, 5\), got \(2, 10, 4\)"):
        net(torch.rand(2, 10, 4))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_padding_changes_nothing(name: str, training: bool) -> None:
    torch.manual_seed(1)
    net, other = (create(name, **SMALL[name]).double().train(training) for _ in range(2))
    other.load_state_dict(net.state_dict())
    for sizes, pad in (((30, 12, 21), 50), ((17,), 40)):
        results = []
        for model, (x, mask) in ((net, sets(*sizes)), (other, sets(*sizes, pad=pad))):
            given = mask if len(sizes) > 1 or pad == mask.shape[1] else None  # one set alone needs no mask
            model.zero_grad()
            out = model(x, given)[mask]
            out.square().sum().backward()
            results.append((out, *(p.grad for p in model.parameters() if p.grad is not None)))
        assert len(results[0]) > 10
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    for a, b in zip(net.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    assert training != all(bool((b == 1).all()) for b in net.buffers())


@pytest.mark.parametrize("name", SMALL)
def test_the_order_of_matches_does_not_matter(name: str) -> None:
    net = create(name, **SMALL[name]).double()
    x, _ = sets(40)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(net(x[:, order]), net(x)[:, order], rtol=1e-9, atol=1e-12)


def test_norms_are_context_norm_and_batch_norm() -> None:
    x, mask = sets(30, 12, 21)
    sizes = mask.sum(1)
    norm, batch = SetNorm(4).double(), nn.BatchNorm1d(4, eps=1e-3, momentum=0.01, affine=False).double()
    for _ in range(3):
        centred = []
        for one, size in zip(x, sizes, strict=True):
            items = one[:size]
            scale = (items.var(0, correction=0) + 1e-3).sqrt()
            centred.append((items - items.mean(0)) / scale)
        expected = batch(torch.cat(centred))
        torch.testing.assert_close(context_norm(x.nan_to_num(), mask)[mask], torch.cat(centred))
        torch.testing.assert_close(norm(x.nan_to_num(), mask)[mask], expected)
    torch.testing.assert_close(norm.running_var, batch.running_var)
    assert batch.running_mean is not None
    assert batch.running_mean.abs().max() < 1e-12  # which is why SetNorm has none
    norm.eval(), batch.eval()
    torch.testing.assert_close(norm(x.nan_to_num(), mask)[mask], batch(torch.cat(centred)))


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_the_norms(masked: bool) -> None:
    x, mask = sets(7, 4)
    x = x.nan_to_num().requires_grad_()
    given = mask if masked else None
    norm = SetNorm(4).double()
    assert torch.autograd.gradcheck(lambda x: norm(x, given), x)
    assert torch.autograd.gradcheck(lambda x: context_norm(x, given), x)
    assert torch.autograd.gradgradcheck(lambda x: norm(x, given), x)


def test_a_set_of_one_item_is_finite() -> None:
    x, mask = sets(1, 5)
    assert SetNorm(4).double()(x.nan_to_num(), mask).isfinite().all()


@pytest.mark.parametrize("ratio", [False, True])
@pytest.mark.parametrize("mutual", [False, True])
def test_input_channels(ratio: bool, mutual: bool) -> None:
    net = CNNet(8, 1, ratio=ratio, mutual=mutual)
    x0, x1 = np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32)
    full = Pair(x0, x1, np.array([0.1, 0.2, 0.3], np.float32), np.array([True, False, True]))
    columns = [[0.0] * 3, [0.0] * 3, [1.0] * 3, [1.0] * 3]
    known, unknown = [*columns], [*columns]
    if ratio:
        known.append([0.1, 0.2, 0.3])
        unknown.append([1.0] * 3)
    if mutual:
        known.append([1.0, 0.0, 1.0])
        unknown.append([0.0] * 3)
    torch.testing.assert_close(features(full, net).T, torch.tensor(known))
    torch.testing.assert_close(features(Pair(x0, x1), net).T, torch.tensor(unknown))


@pytest.mark.parametrize("name", SMALL)
def test_weights_survive_a_file(name: str, tmp_path: Path) -> None:
    net = create(name, ratio=True, mutual=True, **SMALL[name])
    x = torch.rand(2, 20, 6)
    net(x)  # moves the running statistics
    again = load(save(tmp_path / "x.safetensors", net))
    torch.testing.assert_close(again(x), net.eval()(x))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_compiled_selection_is_the_selection(dtype: torch.dtype, scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2, 5, 41, generator=generator, dtype=dtype) * scale
    z[0, :, 3:20] = -torch.inf
    strength = torch.rand(2, 5, generator=generator, dtype=dtype) * 5
    g = torch.randn(2, 5, 3, 41, generator=generator, dtype=dtype)
    results = []
    for compiled in (True, False):
        a, b = z.clone().requires_grad_(), strength.clone().requires_grad_()
        w = native.select(a, b, 3) if compiled else select_from_logits(a, 3, b[..., None])
        results.append((w, *torch.autograd.grad((w * g).sum(), (a, b))))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(native.select(z, strength, 3), results[0][0])  # without gradients, too


@pytest.mark.parametrize(("distance", "include_self"), [("squared", False), ("squared", True), ("euclidean", False)])
def test_neighbours_in_sets_are_those_of_the_judge(distance: Any, include_self: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr("n3net.neighbors.all_pairs.CHUNK", 2000)  # several chunks of queries
    generator = torch.Generator().manual_seed(0)
    e = 2 * torch.randn(2, 60, 5, generator=generator, dtype=torch.float64) + 3
    v = torch.randn(2, 60, 4, generator=generator, dtype=torch.float64)
    s = 3 * torch.rand(2, 60, generator=generator, dtype=torch.float64)
    mask = torch.arange(60) < torch.tensor([[60], [40]])
    results = []
    for backend in ("auto", "tiled", "reference"):
        inputs = [t.clone().requires_grad_() for t in (e, v, s)]
        out = match_sets(
            *inputs, inputs[2], 3, mask=mask, include_self=include_self, distance=distance, backend=backend
        )
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
        results.append((out, *torch.autograd.grad((out * weights).sum(), inputs)))
    for found, expected in zip([*results[0], *results[1]], results[2] * 2, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)
