"""Winograd's convolution against PyTorch's."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from n3net import kernel
from n3net.kernel import convolution
from n3net.kernel.convolution import conv3x3
from n3net.models import MODELS, ColorUpscaler, create, describe
from n3net.models.preparing import prepare
from n3net.nn.convolutions import Conv3x3, FusedConv3x3, NormReLU, accelerate

pytestmark = pytest.mark.skipif(kernel.instruction_set() is None, reason="the compiled kernel is not built")


def both(shape: tuple[int, ...], out: int, dtype: torch.dtype) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Result and gradients of ours and of PyTorch's."""
    rng = torch.Generator().manual_seed(0)
    images = torch.randn(shape, dtype=dtype, generator=rng).requires_grad_()
    weight = torch.randn(out, shape[1], 3, 3, dtype=dtype, generator=rng).requires_grad_()
    g = torch.randn(shape[0], out, *shape[2:], dtype=dtype, generator=rng)
    results = []
    for result in (conv3x3(images, weight), F.conv2d(images, weight, padding=1)):
        results.append([result.detach(), *torch.autograd.grad(result, (images, weight), g)])
    return results[0], results[1]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-5)])
@pytest.mark.parametrize(
    ("shape", "out"),
    [((2, 32, 8, 12), 32), ((1, 64, 7, 9), 48), ((3, 5, 1, 1), 3), ((1, 17, 2, 31), 40), ((2, 3, 4, 5), 1)],
)
def test_equals_pytorch(shape: tuple[int, ...], out: int, dtype: torch.dtype, tolerance: float) -> None:
    for a, b in zip(*both(shape, out, dtype), strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= tolerance * b.abs().max()


def test_gradcheck() -> None:
    images = torch.randn(1, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(conv3x3, (images, weight))


def test_second_derivatives() -> None:
    images = torch.randn(1, 2, 5, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(conv3x3, (images, weight, bias))


def test_threads_change_nothing() -> None:
    results = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(both((2, 32, 21, 18), 32, torch.float64)[0])
    torch.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_layouts() -> None:
    images, weight = torch.randn(2, 32, 6, 7), torch.randn(32, 32, 3, 3)
    expected = conv3x3(images, weight)
    assert expected.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(conv3x3(images.contiguous(memory_format=torch.channels_last), weight), expected)
    assert torch.equal(conv3x3(images.transpose(2, 3).contiguous().transpose(2, 3), weight), expected)


def test_another_default_device() -> None:
    """In a process of its own: the kernel would write where no memory is."""
    program = """
import torch
torch.set_default_device("meta")
from n3net.kernel.convolution import conv3x3
images, weight = torch.rand(2, 4, 6, 7, device="cpu"), torch.rand(3, 4, 3, 3, device="cpu", requires_grad=True)
conv3x3(images, weight).sum().backward()
assert weight.grad.device.type == "cpu" and bool(weight.grad.isfinite().all())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_accelerate() -> None:
    """A network computes and learns the same, keeps the names of its weights, and is unchanged when it only runs."""
    ours, plain = (create("dncnn", depth=5, features=32, channels=3) for _ in range(2))
    ours.load_state_dict(plain.state_dict())
    assert accelerate(ours) == 9  # five convolutions, four norms
    assert [type(layer) for layer in ours.modules() if isinstance(layer, nn.Conv2d)].count(Conv3x3) == 5
    x = torch.rand(2, 3, 16, 20)
    gradients = []
    for model in (ours, plain):
        model(x).square().mean().backward()
        gradients.append([p.grad for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max()
    ours.load_state_dict(plain.state_dict())
    with torch.no_grad():
        assert torch.equal(ours.eval()(x), plain.eval()(x))


def test_what_does_not_suit_stays() -> None:
    layers = nn.Sequential(
        nn.Conv2d(32, 32, 5, padding=2),
        nn.Conv2d(32, 32, 3),
        nn.Conv2d(32, 32, 3, padding=1, stride=2),
        nn.Conv2d(32, 32, 3, padding=1, groups=2),
        nn.Conv2d(32, 32, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(4, 1, 3, padding=1),
    )
    assert accelerate(layers) == 0
    with pytest.raises(ValueError, match=r"computes in float32 and float64, not torch.bfloat16"):
        conv3x3(torch.zeros(1, 1, 4, 4, dtype=torch.bfloat16), torch.zeros(1, 1, 3, 3, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match=r"not empty, .* got \(0, 4, 4, 4\)"):
        conv3x3(torch.zeros(0, 4, 4, 4), torch.zeros(4, 4, 3, 3))
    with pytest.raises(ValueError, match=r"images are torch.float64 on cpu, weights torch.float32"):
        conv3x3(torch.zeros(1, 4, 4, 4, dtype=torch.float64), torch.zeros(4, 4, 3, 3))
    layer = nn.Conv2d(32, 32, 3, padding=1)
    accelerate(layer)
    assert layer(torch.zeros(0, 32, 5, 6)).shape == (0, 32, 5, 6)
    assert layer(torch.zeros(32, 5, 6)).shape == (32, 5, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.zeros(1, 32, 5, 6)).dtype == torch.bfloat16
    half = nn.Conv2d(32, 32, 3, padding=1, dtype=torch.bfloat16)
    assert accelerate(half) == 1
    assert half(torch.rand(1, 32, 4, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


def layers(channels: list[int], dtype: torch.dtype) -> tuple[list[convolution.Layer], nn.Sequential]:
    """Convolutions with ReLUs between them, ours and PyTorch's."""
    torch.manual_seed(0)
    ours, theirs = [], []
    for i, (c, k) in enumerate(itertools.pairwise(channels)):
        layer = nn.Conv2d(c, k, 3, padding=1, dtype=dtype)
        relu = i < len(channels) - 2
        ours.append(convolution.Layer(convolution.pack(layer.weight.detach()), layer.bias.detach(), c, k, relu))
        theirs += [layer, nn.ReLU()] if relu else [layer]
    return ours, nn.Sequential(*theirs).requires_grad_(False)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-5)])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("shape", "channels", "added"),
    [
        ((1, 1, 50, 37), [1, 64, 64, 64, 1], 1),
        ((2, 3, 9, 130), [3, 8, 16, 3], 2),
        ((1, 8, 41, 3), [8, 20, 24, 8], 8),
        ((3, 13, 1, 1), [13, 96, 12], 0),
        ((1, 64, 70, 66), [64] * 10, 64),
    ],
)
def test_chains_equal_layers(
    shape: tuple[int, ...], channels: list[int], added: int, threads: int, dtype: torch.dtype, tolerance: float
) -> None:
    ours, theirs = layers(channels, dtype)
    x, add = torch.randn(shape, dtype=dtype), torch.randn(shape[0], added, *shape[2:], dtype=dtype)
    expected = theirs(x)
    expected[:, :added] += add
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        result = convolution.convolve(x, ours, add if added else None)
    finally:
        torch.set_num_threads(before)
    assert (result - expected).abs().max() <= tolerance * expected.abs().max()


def test_chains_are_cut_where_they_would_leave_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = layers([4, 16, 16, 16, 16, 16, 4], torch.float64)
    x = torch.randn(1, 4, 30, 31, dtype=torch.float64)
    for cache in (0, 10**5, 10**9):
        monkeypatch.setattr(convolution, "CACHE", cache)
        torch.testing.assert_close(convolution.convolve(x, ours), theirs(x), rtol=1e-12, atol=1e-12)


def test_channels_of_a_wider_image() -> None:
    """Images whose pixels lie apart are read, and added, as they are."""
    ours, theirs = layers([8, 16, 8], torch.float64)
    wide = torch.randn(1, 40, 13, 14, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    x, add = wide[:, 8:16], wide[:, 30:38]
    torch.testing.assert_close(convolution.convolve(x, ours, add), theirs(x) + add)


@pytest.mark.parametrize("size", [(80, 80), (43, 96)])
def test_squares(size: tuple[int, int]) -> None:
    """The middle of 3 x 3 squares behind one more convolution."""
    ours, theirs = layers([8, 16, 16], torch.float64)
    last = nn.Conv2d(16, 1, 3, padding=1, dtype=torch.float64).requires_grad_(False)
    ours[-1] = dataclasses.replace(ours[-1], relu=True)
    x = torch.randn(2, 8, *size, dtype=torch.float64)
    rows, cols = (size[0] - 4) // 5, (size[1] - 3) // 5
    result = convolution.at_squares(x, ours, convolution.Squares(rows, cols, 5, 1, 0), last.weight, last.bias)
    expected = last(theirs(x).relu())[:, 0, 2::5, 1::5][:, :rows, :cols]
    torch.testing.assert_close(result, expected)


def test_not_a_number_stays_one() -> None:
    ours, _ = layers([8, 8, 8], torch.float32)
    x = torch.zeros(1, 8, 40, 40)
    x[0, 0, 20, 20] = torch.nan
    bad = convolution.convolve(x, ours)[0, 0].isnan()
    assert bad[19:22, 19:22].all()
    assert not bad[:8].any()
    assert not bad[32:].any()


# What has no convolutions of 3 x 3, chooses groups, where a rounding may decide, or is like another and large.
OTHERS = ("nlnet", "unlnet", "nn3d", "memnet-10", "mdsr", "edsr")


@pytest.mark.parametrize(
    "name", [name for name in MODELS if describe(name)["task"] != "matches" and name not in OTHERS]
)
def test_prepared_models(name: str) -> None:
    """With the kernel's convolutions and with PyTorch's, every network computes the same."""
    torch.manual_seed(0)
    model = create(name).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    fast, plain = (prepare(model, fast=fast) for fast in (True, False))
    assert any(isinstance(m, FusedConv3x3) for m in fast.modules())
    assert not any(isinstance(m, FusedConv3x3) for m in plain.modules())
    x = torch.rand(1, getattr(model, "channels", 1), 81, 83)
    levels = {"raw data": (0.01, 0.001), "denoising": (25.0,), "super-resolution": ()}
    more = (2,) if isinstance(model, ColorUpscaler) else levels[describe(name)["task"]]
    results = []
    for net in (fast, plain):
        torch.manual_seed(1)  # for the networks that draw
        with torch.inference_mode():
            results.append(net(x, *more))
    a, b = results
    assert a.shape == b.shape
    assert (a - b).abs().max() <= 1e-4 * max(1, float(b.abs().max()))


def test_prepared_models_elsewhere() -> None:
    """Gradients, other types, autocast: PyTorch's convolutions take over."""
    model = prepare(create("dncnn", depth=4, features=16))
    x = torch.rand(1, 1, 12, 13, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None
    with torch.no_grad():
        plain = model(x)
        twice = copy.deepcopy(model).double()(x.double())
        torch.testing.assert_close(twice, plain.double(), rtol=1e-4, atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            assert (model(x) - plain).abs().max() < 0.1
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), plain)


def norm_and_relu(channels: int, dtype: torch.dtype) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Identity(), nn.BatchNorm2d(channels, dtype=dtype), nn.ReLU())
    with torch.no_grad():
        plain[1].weight.normal_()
        plain[1].bias.normal_()
    ours = copy.deepcopy(plain)
    assert accelerate(ours) == 1
    assert isinstance(ours[1], NormReLU)
    return ours, plain


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("shape", [(4, 64, 20, 20), (1, 8, 3, 5), (2, 24, 1, 1), (3, 48, 33, 7)])
def test_norms_equal_pytorch(shape: tuple[int, ...], dtype: torch.dtype, tolerance: float, training: bool) -> None:
    models = norm_and_relu(shape[1], dtype)
    x = (torch.randn(shape, dtype=dtype) * 3 + 100).requires_grad_()  # far from 0: sums of squares would lose digits
    g = torch.randn(shape, dtype=dtype)
    results = []
    for model in models:
        for _ in range(2):
            out = model.train(training)(x)
        norm = model[1]
        grads = torch.autograd.grad(out, (x, norm.weight, norm.bias), g)
        results.append([out.detach(), *grads, norm.running_mean, norm.running_var, norm.num_batches_tracked])
    for a, b in zip(*results, strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= 100 * tolerance * b.abs().max().clamp(min=1)


def test_norm_gradcheck() -> None:
    ours, _ = norm_and_relu(8, torch.float64)
    x = torch.randn(2, 8, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ours, (x,))
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.gradgradcheck(ours, (x,))
