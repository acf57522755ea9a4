"""``torch.compile`` of layers and networks: in one graph, forward and backward, and for inputs of other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from n3net import kernel, select
from n3net.models import CorrespondenceN3Net, N3Net
from n3net.nn import N3Block, N3Block2d


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def image_block(**options: Any) -> N3Block2d:
    return N3Block2d(3, 2, 4, 2, 5, features=6, **options)


def run(net: nn.Module, call: Callable[..., Tensor], inputs: tuple[Any, ...]) -> list[Tensor]:
    """Result, gradients of all parameters, buffers behind a step in training."""
    before = {name: x.clone() for name, x in net.state_dict().items()}
    net.zero_grad()
    out = call(*inputs)
    out.square().mean().backward()
    result = [out.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]
    result += [x.clone() for x in net.buffers()]
    net.load_state_dict(before)
    return result


MASK = torch.arange(12) < torch.tensor([[12], [9]])
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "N3Block": (lambda: N3Block(4, 2, features=8), (torch.rand(2, 12, 4), MASK)),
    "N3Block2d": (image_block, (torch.rand(1, 3, 18, 16),)),
    "N3Block2d-2018": (lambda: image_block(options="reference-2018"), (torch.rand(1, 3, 17, 16),)),
    "N3Block2d-tiled": (lambda: image_block(backend="tiled"), (torch.rand(1, 3, 18, 16),)),
    "N3Net": (
        lambda: N3Net(stages=2, depth=2, features=4, block_channels=2, k=2, patch_size=4, stride=2, window=5),
        (torch.rand(1, 1, 16, 17),),
    ),
    "CorrespondenceN3Net": (lambda: CorrespondenceN3Net(8, 2, 3, block_features=4), (torch.rand(2, 12, 4), MASK)),
}


@pytest.mark.parametrize("name", CASES)
def test_one_graph_forward_and_backward(name: str) -> None:
    make, inputs = CASES[name]
    net = make()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(net, compiled, inputs), run(net, net, inputs), atol=1e-5, rtol=1e-4)


def test_select() -> None:
    d = torch.rand(3, 7, requires_grad=True)
    compiled = torch.compile(lambda d: select(d, 3, 0.5), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(d), select(d, 3, 0.5))
    grads = [torch.autograd.grad(f(d).square().sum(), d)[0] for f in (compiled, lambda d: select(d, 3, 0.5))]
    torch.testing.assert_close(*grads)


def test_a_transform_inside() -> None:
    """Without the kernel: PyTorch's compiler does not take an operator's gradient inside ``torch.func.grad``."""
    block, x = N3Block(4, 2, features=8, backend="tiled"), torch.rand(1, 9, 4)
    grad = torch.func.grad(lambda x: block(x).square().sum())
    torch.testing.assert_close(torch.compile(grad, backend="aot_eager", fullgraph=True)(x), grad(x))


def test_inductor() -> None:
    """The default backend, which generates code; in this process, because to start others takes longer."""
    from torch._inductor import config

    net, inputs = CASES["N3Block"][0](), CASES["N3Block"][1]
    with config.patch(compile_threads=1):
        torch.testing.assert_close(run(net, torch.compile(net, fullgraph=True), inputs), run(net, net, inputs))


def graphs(net: nn.Module, inputs: list[Tensor]) -> list[int]:
    """How many programs there are behind each input, computed without gradients and compared with no compiler."""
    counts: list[int] = []
    total = 0

    def backend(module: Any, example: Any) -> Any:
        nonlocal total
        total += 1
        return module.forward

    compiled = torch.compile(net, backend=backend, fullgraph=True)
    with torch.no_grad():
        for x in inputs:
            torch.testing.assert_close(compiled(x), net(x))
            counts.append(total)
    return counts


@pytest.mark.parametrize("backend", ["auto", "tiled"])
def test_sets_of_any_size_need_two_programs(backend: str) -> None:
    assert graphs(N3Block(4, 2, features=8, backend=backend), [torch.rand(2, n, 4) for n in (12, 15, 20, 31)]) == [
        1,
        2,
        2,
        2,
    ]


@pytest.mark.skipif(kernel.instruction_set() is None, reason="the compiled kernel is not built")
def test_images_of_many_sizes_need_few_programs() -> None:
    sizes = [(18, 16), (24, 30), (32, 28), (40, 46), (28, 50), (48, 48)]
    assert graphs(image_block().eval(), [torch.rand(1, 3, *size) for size in sizes])[-1] <= 3


def test_without_the_kernel_each_size_of_an_image_is_a_program() -> None:
    sizes = [(18, 16), (24, 30), (18, 16)]
    assert graphs(image_block(backend="tiled").eval(), [torch.rand(1, 3, *s) for s in sizes]) == [1, 2, 2]
