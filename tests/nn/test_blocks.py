"""The blocks as layers: shapes, options, gradients, and the ways in which PyTorch runs a module."""

from __future__ import annotations

import copy
import io
import itertools
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from n3net import select
from n3net.neighbors import Matching, reference
from n3net.neighbors.grid import pad
from n3net.nn import PRESETS, DistanceNorm, N3Block, N3Block1d, N3Block2d, N3Options
from problems import match_images, match_sets


def small(**options: object) -> N3Block2d:
    torch.manual_seed(0)
    arguments = {"channels": 3, "k": 2, "patch_size": 4, "stride": 2, "window": 5, "features": 6} | options
    return N3Block2d(**arguments)  # type: ignore[arg-type]


def set_block(**options: object) -> N3Block:
    torch.manual_seed(0)
    arguments = {"channels": 4, "k": 3, "features": 8} | options
    return N3Block(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", ["paper", "reference-2018", N3Options(normalize="query")], ids=str)
@pytest.mark.parametrize("rule", ["continuous", "hard", "stochastic", "concrete"])
def test_shapes_and_gradients_of_the_image_block(preset: str | N3Options, rule: str) -> None:
    block = small(options=preset, rule=rule)
    x = torch.rand(2, 3, 17, 22, requires_grad=True)
    out = block(x)
    assert out.shape == (2, 9, 17, 22)
    assert block.out_channels == 9
    assert torch.equal(out[:, :3], x)
    out.square().mean().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    if rule in ("continuous", "concrete"):
        for name, parameter in block.named_parameters():
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name
            # A shift of all embeddings changes no distance, and batch norm takes away a first layer's shift.
            if name != "embedding.6.bias":
                assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("rule", ["continuous", "hard", "stochastic", "concrete"])
def test_shapes_and_gradients_of_the_set_block(rule: str) -> None:
    block = set_block(rule=rule)
    x = torch.rand(2, 30, 4, requires_grad=True)
    out = block(x)
    assert out.shape == (2, 30, 16)
    assert torch.equal(out[..., :4], x)
    out.square().mean().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_set_block_is_select_and_a_product() -> None:
    block = set_block().double()
    x = torch.rand(1, 12, 4, dtype=torch.float64)
    e, t = block.embedding(x)[0], block.temperature(x)[0, :, 0].exp()
    d = torch.cdist(e, e)
    w = select(d, 3, t, mask=~torch.eye(12, dtype=torch.bool))  # (12, 3, 12)
    torch.testing.assert_close(block(x)[0, :, 4:], (w @ x[0]).flatten(1), atol=1e-6, rtol=1e-6)


def test_image_block_with_pixels_for_patches_is_a_set_block() -> None:
    """Patches of one pixel and a window over everything: the image is a set of its pixels."""
    x = torch.rand(1, 4, 5, 5, dtype=torch.float64)
    ones = torch.ones(1, 5, 5, dtype=torch.float64)
    image = match_images(x, x, ones, ones, 3, Matching(1, 1, 9))
    pixels = x.flatten(2).transpose(1, 2)
    items = match_sets(pixels, pixels, ones.flatten(1), ones.flatten(1), 3)  # (1, 25, 3, 4)
    torch.testing.assert_close(image.unflatten(1, (3, 4)).flatten(3).permute(0, 3, 1, 2), items)


def test_sets_of_unequal_size() -> None:
    block = set_block()
    x = torch.rand(2, 20, 4)
    mask = torch.arange(20) < torch.tensor([[20], [11]])
    together = block(x, mask)
    torch.testing.assert_close(together[1:, :11], block(x[1:, :11]))
    torch.testing.assert_close(together[:1], block(x[:1]))


def test_presets_are_what_the_paper_and_the_program_say() -> None:
    assert asdict(PRESETS["paper"]) == {
        "distance": "euclidean",
        "normalize": False,
        "temperature": "exp",
        "temperature_scale": 1.0,
        "temperature_at": "center",
        "update": "tempered",
        "neighbors": "values",
        "border": "shift",
    }
    changed = {name for name, v in asdict(PRESETS["reference-2018"]).items() if v != asdict(PRESETS["paper"])[name]}
    assert changed == {"distance", "normalize", "temperature_scale", "temperature_at", "update", "neighbors"}


def test_temperature_at_the_center_pixel_or_the_mean() -> None:
    block = small()
    t = torch.arange(48.0).reshape(1, 1, 6, 8)
    assert block.matching.at_patches(t, "center").tolist() == [[[18, 20, 22], [34, 36, 38]]]
    assert block.matching.at_patches(t, "mean").tolist() == [[[13.5, 15.5, 17.5], [29.5, 31.5, 33.5]]]


@pytest.mark.parametrize(("patch", "stride"), [(10, 5), (4, 2), (7, 3), (3, 3), (4, 4), (1, 1)])
@pytest.mark.parametrize("size", [(41, 38), (10, 23), (57, 33), (80, 85)])
@pytest.mark.parametrize("training", [False, True])
def test_temperature_at_the_center_takes_only_those_pixels(
    patch: int, stride: int, size: tuple[int, int], training: bool
) -> None:
    block = small(patch_size=patch, stride=stride, k=1).train(training)
    x = torch.rand(2, 3, *size)
    expected = block.matching.at_patches(block.temperature(x), "center")  # type: ignore[misc]
    torch.testing.assert_close(block._at_patches(block.temperature, x, None), expected, atol=1e-6, rtol=1e-5)


def test_differences() -> None:
    values, differences = small(), small(options=N3Options(neighbors="differences"))
    x = torch.rand(1, 3, 16, 16)
    torch.testing.assert_close(differences(x)[:, 3:], values(x)[:, 3:] - x.repeat(1, 2, 1, 1))


def test_normalisation_is_a_batch_norm_of_the_negated_distances() -> None:
    """Batch statistics in training, running ones in evaluation: what nn.BatchNorm1d gives, up to a shift."""
    norm, judge = DistanceNorm().double(), nn.BatchNorm1d(1).double()
    with torch.no_grad():
        norm.weight.fill_(0.7)
        judge.weight.fill_(0.7)
    candidates = torch.rand(4, 5, 9) > 0.2
    d = torch.rand(2, 4, 5, 9, dtype=torch.float64) * candidates
    kept = candidates.expand(2, -1, -1, -1)
    for _ in range(3):
        ours, theirs = -d[kept] * norm(d, candidates), judge(-d[kept][:, None])[:, 0]
        torch.testing.assert_close(ours - ours.mean(), theirs - theirs.mean())
    norm.eval(), judge.eval()
    ours, theirs = -d[kept] * norm.constant(), judge(-d[kept][:, None])[:, 0]
    torch.testing.assert_close(ours - ours.mean(), theirs - theirs.mean())


def test_evaluation_uses_the_running_statistics() -> None:
    block = small(options="reference-2018")
    x = torch.rand(2, 3, 20, 20)
    for _ in range(200):
        block(x)
    trained = block(x)
    block.eval()
    torch.testing.assert_close(block(x), trained, atol=1e-3, rtol=1e-2)
    with torch.no_grad():
        torch.testing.assert_close(block(x), block(x.clone()))


def test_a_frozen_norm_uses_the_running_statistics() -> None:
    block = small(options="reference-2018")
    x = torch.rand(2, 3, 20, 20)
    block.normalization.eval()  # type: ignore[union-attr]
    before = block(x)
    block.normalization.running_var.mul_(9)  # type: ignore[union-attr]
    assert not torch.allclose(block(x), before)


QUERY = N3Options(normalize="query", distance="squared", update="untempered")


@pytest.mark.parametrize("size", [(20, 20), (17, 22)])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_normalisation_by_query_is_by_each_querys_own_deviation(
    size: tuple[int, int], grad: bool, training: bool
) -> None:
    """With all distances of a literal reference, and a loop over the queries."""
    block = small(options=QUERY, embedding=None).double().train(training)
    x = torch.rand(2, 3, *size, dtype=torch.float64)
    if training:  # or batch norms of the temperature net see other statistics than below
        block.temperature.eval()  # type: ignore[union-attr]
    with torch.no_grad():
        block.normalization.weight.fill_(0.8)  # type: ignore[union-attr, operator]
        choice = block._choice(x, None)
        scale, strength = choice.scale, choice.strength
    grid, matching = block.matching.grid(*size), block.matching
    padded = pad(x, matching.padding(*size))
    distances, candidates = reference.distances(padded, grid), grid.candidates(x.device)
    for b, i, j in itertools.product(range(2), range(grid.query_rows), range(grid.query_cols)):
        own = distances[b, i, j][candidates[i, j]]
        scale[b, i, j] *= 0.8 / (own.var(correction=0) + 1e-5).sqrt()
    expected = match_images(x, x, scale, strength, 2, matching, backend="reference")
    with torch.set_grad_enabled(grad):
        out = block(x, match_on=x)
    torch.testing.assert_close(out[:, 3:], expected)
    w, temperatures = block.weights(x, match_on=x)
    torch.testing.assert_close(1 / temperatures, scale)
    torch.testing.assert_close(w.sum(-1), torch.ones_like(w[..., 0]))


def test_normalisation_by_query_does_not_see_the_scale_of_the_embedding() -> None:
    block = small(options=QUERY, embedding=None).eval()
    x = torch.rand(1, 3, 20, 20)
    torch.testing.assert_close(block(x, match_on=30 * x), block(x, match_on=100 * x), atol=1e-4, rtol=1e-4)
    assert torch.isfinite(block(x, match_on=torch.ones(1, 3, 20, 20))).all()


def test_a_temperature_without_limit_does_not_turn_gradients_into_rounding() -> None:
    """Gradients of logits of 1e13 were rounding times 1e13; those of the same choice with bounded ones are right."""
    gradients = []
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        block = N3Block2d(4, 3, 4, 2, 5, options="reference-2018", features=8).to(dtype)
        net: Any = block.temperature
        net[-1].bias.data.fill_(-28)
        x = torch.randn(1, 4, 20, 20, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
        block(x).square().sum().backward()
        assert x.grad is not None
        gradients.append(x.grad.double())
    error = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    assert error < 0.01


def test_second_derivatives_of_the_set_block() -> None:
    x = torch.rand(1, 12, 4, dtype=torch.float64, requires_grad=True)
    block = set_block(backend="tiled").double()
    (grad,) = torch.autograd.grad(block(x).square().sum(), x, create_graph=True)
    grad.square().sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(block(x), set_block().double()(x))


def test_matching_on_something_else() -> None:
    block = small(embedding=None, rule="hard")
    assert sum(p.numel() for p in block.parameters()) == 0
    x, noisy = torch.rand(1, 3, 16, 16), torch.rand(1, 1, 16, 16)
    out = block(x, match_on=noisy)
    ones = torch.ones(1, 7, 7)
    expected = match_images(noisy, x, ones, ones, 2, block.matching, rule="hard", backend="reference")
    torch.testing.assert_close(out[:, 3:], expected)
    with pytest.raises(ValueError, match="match_on: this block has no embedding net"):
        block(x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"channels": 0}, "channels: expected an integer of at least 1, got 0"),
        ({"k": 1.5}, "k: expected an integer of at least 1, got 1.5"),
        ({"rule": "soft"}, "rule: expected one of"),
        ({"options": "papers"}, "options: expected an N3Options or one of 'paper', 'reference-2018'"),
        ({"embedding": "mlp"}, "embedding: expected 'cnn', a module or None, got 'mlp'"),
    ],
)
def test_refuses_with_a_reason(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"distance": "cosine"}, "distance: expected one of 'euclidean', 'squared', got 'cosine'"),
        ({"temperature_scale": 0.0}, "temperature_scale: expected a positive number"),
        ({"normalize": "yes"}, "normalize: expected true, false or 'query', got 'yes'"),
        ({"temperature": "inverse"}, "needs update='untempered'"),
    ],
)
def test_options_refuse(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        N3Options(**arguments)  # type: ignore[arg-type]


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"x: expected shape \(B, 3, H, W\), got \(1, 4, 9, 9\)"):
        small()(torch.rand(1, 4, 9, 9))
    with pytest.raises(ValueError, match=r"x: expected shape \(B, N, 4\), got \(1, 9, 3\)"):
        set_block()(torch.rand(1, 9, 3))


# Ways of running a module -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["paper", "reference-2018"])
def test_float64_channels_last_deepcopy_and_state(preset: str) -> None:
    block = small(options=preset).eval()
    x = torch.rand(1, 3, 21, 19)
    expected = block(x)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            last = block(x.contiguous(memory_format=torch.channels_last))
        torch.testing.assert_close(last, expected)
        assert last.is_contiguous(memory_format=torch.channels_last)
    twin = copy.deepcopy(block)
    torch.testing.assert_close(twin(x), expected)
    torch.testing.assert_close(twin.double()(x.double()).float(), expected, atol=1e-5, rtol=1e-4)
    fresh = small(options=preset).eval()
    buffer = io.BytesIO()
    torch.save(block.state_dict(), buffer)
    buffer.seek(0)
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    torch.testing.assert_close(fresh(x), expected)


class OnlyImage(nn.Module):
    """A block as a stranger would export it: one input, one output."""

    def __init__(self, block: N3Block2d) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.block(x)
        return out


def test_export_and_onnx_with_dynamic_height_and_width() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    block = OnlyImage(small(options="reference-2018", k=2, window=3).eval())
    height, width = torch.export.Dim("height", min=12, max=8192), torch.export.Dim("width", min=12, max=8192)
    program = torch.export.export(
        block,
        (torch.rand(1, 3, 40, 46),),
        dynamic_shapes={"x": {2: height, 3: width}},
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    assert not any("n3net" in str(node.target) for node in program.graph.nodes)
    buffer = io.BytesIO()
    torch.onnx.export(program, dynamo=True, verbose=False).save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue())
    module = program.module()
    for size in ((40, 46), (57, 33), (12, 90), (48, 48)):
        x = torch.rand(1, 3, *size)
        with torch.no_grad():
            expected = block(x)
        torch.testing.assert_close(module(x), expected, atol=1e-5, rtol=1e-4)
        (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(out, expected.numpy(), atol=1e-5, rtol=1e-4)


def test_set_block_exports() -> None:
    block = set_block().eval()
    items = torch.export.Dim("items", min=8, max=10000)
    program = torch.export.export(block, (torch.rand(1, 30, 4),), dynamic_shapes={"x": {1: items}})
    x = torch.rand(1, 77, 4)
    torch.testing.assert_close(program.module()(x), block(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["N3Block", "N3Block1d"])
def test_onnx_of_sets_and_sequences(kind: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    block = N3Block(4, 3, features=8) if kind == "N3Block" else N3Block1d(4, 3, 6, features=8, causal=True)
    block.eval()
    size = torch.export.Dim("size", min=8, max=10000)
    program = torch.export.export(block, (torch.rand(2, 30, 4),), dynamic_shapes={"x": {1: size}})
    buffer = io.BytesIO()
    torch.onnx.export(program, dynamo=True, verbose=False).save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue())
    for n in (30, 11, 77):
        x = torch.rand(2, n, 4)
        (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(out, block(x).detach().numpy(), atol=1e-5, rtol=1e-4)


def test_large_sets_need_little_memory() -> None:
    """8,000 items, 32 channels, k = 3: under 1 GiB beyond the inputs."""
    from n3net.bench.measure import peak_memory

    setup = """
from n3net.nn import N3Block
torch.set_grad_enabled(False)
block, x = N3Block(32, k=3).eval(), torch.rand(1, 8000, 32)
block(x[:, :100])
"""
    grown = peak_memory(setup, "block(x)")
    assert 10 < grown < 1024, f"{grown:.0f} MiB"
