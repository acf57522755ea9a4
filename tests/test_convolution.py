"""Winograd's convolution against PyTorch's."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from n3net import kernel
from n3net.convolution import conv3x3
from n3net.nn.convolutions import Conv3x3, accelerate
from n3net.models import create

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
from n3net.convolution import conv3x3
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
    assert accelerate(ours) == 5
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
