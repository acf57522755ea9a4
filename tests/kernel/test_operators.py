"""The kernel's operators: what PyTorch's own check of an operator asks of them, and its transforms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from n3net import kernel
from n3net.kernel import batch_norm, convolution
from n3net.kernel.operators import Operator
from n3net.models import create
from n3net.neighbors import native, native_sets
from n3net.nn.convolutions import accelerate

pytestmark = pytest.mark.skipif(kernel.instruction_set() is None, reason="the compiled kernel is not built")

GRID = [5, 6, 2, 2, 3, 0]  # rows, cols, cell, patch, window, clip: an image of 10 x 12, 4 x 5 queries with 9 slots
K = 2


def arguments(name: str, dtype: torch.dtype) -> tuple[Any, ...]:
    """For an operator, by its name; tensors in the order of its arguments."""
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=dtype)

    embedding, values, volumes = rand(2, 3, 10, 12), rand(2, 4, 10, 12), rand(2, K * 4, 10, 12)
    d, query = rand(2, 4, 5, 9), rand(2, 4, 5)
    z, strength, rows = rand(2, 6, 7), rand(2, 6), rand(2, 6, K, 7)
    index = torch.randint(-1, 8, (2, 5, 6), generator=generator)
    pool = rand(2, 5, 3), rand(2, 8, 3), index, rand(2, 5), rand(2, 5), rand(2, 8, 4)
    places = [0, 0, 0, 0, 0, 0, 0, 0, *values.shape[2:]]
    images, weight, filtered = rand(2, 8, 10, 12), rand(16, 8, 3, 3), rand(2, 16, 10, 12)
    layers = [convolution.pack(weight)], [rand(16)], [8, 16], [True]
    norm = rand(8), rand(8), rand(8), rand(8) + 1, 1e-5, True, True  # weight, bias, mean, variance
    return {
        "window_distances": (embedding, GRID),
        "window_distances_backward": (d, embedding, GRID),
        "window_aggregate": (d, query, values, GRID, K, False),
        "window_aggregate_backward": (volumes, d, query, values, GRID, K, False),
        "window_neighbors": (embedding, query, query, values, GRID, places, K, True, False, True, False),
        "choose": (*pool, K, True, False),
        "choose_backward": (rand(2, 5, K, 4), *pool, K, True, False),
        "select": (z, strength, K),
        "select_backward": (rows, z, strength, K),
        "conv3x3": (images, weight, rand(16), False),
        "conv3x3_weights": (images, filtered),
        "conv3x3_chain": (images, *layers, rand(2, 4, 10, 12)),
        "conv3x3_squares": (images, *layers, [2, 2, 5, 1, 1], rand(1, 16, 3, 3), rand(1)),
        "norm_statistics": (images,),
        "norm_relu": (images, *norm),
        "norm_relu_backward": (rand(2, 8, 10, 12), images, *norm),
    }[name]


OPERATORS = {
    op.name.removeprefix("n3net::"): op
    for module in (native, native_sets, convolution, batch_norm)
    for op in vars(module).values()
    if isinstance(op, Operator)
}
DIFFERENTIABLE = (
    *("window_distances", "window_aggregate", "choose", "select"),
    *("conv3x3", "conv3x3_weights", "norm_relu"),
)


def turned(x: Any) -> Any:
    """Images in channels_last, others with their first dimension innermost."""
    if not isinstance(x, Tensor):
        return x
    last = x.dim() == 4 and x.shape[2:] == (10, 12)
    return x.to(memory_format=torch.channels_last) if last else x.movedim(0, -1).contiguous().movedim(-1, 0)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(("dtype", "layout"), [(torch.float32, "contiguous"), (torch.float64, "turned")])
def test_opcheck(name: str, dtype: torch.dtype, layout: str) -> None:
    given = arguments(name, dtype)
    if layout == "turned":
        given = tuple(map(turned, given))
    if name in DIFFERENTIABLE:
        given = tuple(x.requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in given)
    torch.library.opcheck(OPERATORS[name].overload, given)


def test_what_has_no_gradient_says_so() -> None:
    for name, operator in OPERATORS.items():
        given = [
            x.requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x
            for x in arguments(name, torch.float32)
        ]
        out = operator(*given)
        total = sum(x.sum() for x in ([out] if isinstance(out, Tensor) else out))
        if name in DIFFERENTIABLE:
            total.backward()
        else:
            with pytest.raises(RuntimeError, match=r"no gradient|no second derivative"):
                total.backward()


@pytest.mark.parametrize("name", OPERATORS)
def test_meta_tensors_have_shapes(name: str) -> None:
    def meta(x: Any) -> Any:
        return x.to("meta") if isinstance(x, Tensor) else [meta(i) for i in x] if isinstance(x, list) else x

    given, operator = arguments(name, torch.float32), OPERATORS[name]
    ours, expected = operator.overload(*map(meta, given)), operator(*given)
    pairs = [(ours, expected)] if isinstance(ours, Tensor) else zip(ours, expected, strict=True)
    for a, b in pairs:
        assert (a.device.type, a.shape, a.stride()) == ("meta", b.shape, b.stride())


def test_profilers_name_them() -> None:
    given = arguments("conv3x3", torch.float32)
    given[0].requires_grad_()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        OPERATORS["conv3x3"](*given)
        OPERATORS["norm_statistics"](given[0].detach())
    assert {"n3net::conv3x3", "n3net::norm_statistics"} <= {event.key for event in profile.key_averages()}


NET = ("conv3x3", "norm_relu")  # which follow on each other in a network


def of_images(name: str) -> Any:
    """(images, weights...) -> a number for each image's worth of output, and what the function is called with."""
    images, *rest = arguments(name, torch.float64)
    weights = [x for x in rest[:2] if isinstance(x, Tensor)]
    others = rest[len(weights) :]
    return lambda x, *w: OPERATORS[name](x, *w, *others).square().sum(), images, weights


@pytest.mark.parametrize("name", NET)
def test_func_grad(name: str) -> None:
    loss, images, weights = of_images(name)
    ours = torch.func.grad(loss, argnums=(0, 1, 2))(images, *weights)
    leaves = [x.clone().requires_grad_() for x in (images, *weights)]
    expected = torch.autograd.grad(loss(*leaves), leaves)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("name", NET)
def test_gradients_of_each_sample(name: str) -> None:
    loss, images, weights = of_images(name)
    samples = torch.stack([images[:1], images[1:], images[:1] * 2])
    grad = torch.func.grad(loss, argnums=(1, 2))
    ours = torch.vmap(grad, in_dims=(0, None, None))(samples, *weights)
    expected = [torch.stack(parts) for parts in zip(*(grad(x, *weights) for x in samples), strict=True)]
    torch.testing.assert_close(list(ours), expected)


def test_vmap_over_layers() -> None:
    images, packed, biases, *rest = arguments("conv3x3_chain", torch.float32)
    chain = OPERATORS["conv3x3_chain"]
    stacked = torch.stack([packed[0], packed[0] * 2]), torch.stack([biases[0], biases[0] - 1])
    ours = torch.vmap(lambda p, b: chain(images, [p], [b], *rest))(*stacked)
    expected = torch.stack([chain(images, [p], [b], *rest) for p, b in zip(*stacked, strict=True)])
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("name", ["conv3x3", "norm_statistics", "select"])
def test_vmap_of_nothing(name: str) -> None:
    first, *rest = arguments(name, torch.float32)

    def shapes(count: int) -> list[torch.Size]:
        out = torch.vmap(lambda x: OPERATORS[name](x, *rest))(first.expand(count, *first.shape))
        return [x.shape[1:] for x in ([out] if isinstance(out, Tensor) else out) if len(x) == count]

    assert shapes(0) == shapes(1) != []


@pytest.mark.parametrize("name", OPERATORS)
def test_autocast_changes_nothing(name: str) -> None:
    given, operator = arguments(name, torch.float32), OPERATORS[name]
    expected = operator(*given)
    half = [x.bfloat16() if isinstance(x, Tensor) and x.is_floating_point() else x for x in given]
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(operator(*given), expected, rtol=0, atol=0)
        with pytest.raises(ValueError, match="float32 and float64, not "):
            operator(*half)


def test_compiled_training_in_one_graph() -> None:
    net = create("dncnn-6x2").double().train()
    assert accelerate(net) > 2
    x = torch.rand(1, 1, 8, 9, dtype=torch.float64)

    def grads(run: Any) -> list[Tensor]:
        return list(torch.autograd.grad(run(x).square().sum(), list(net.parameters())))

    torch.testing.assert_close(grads(torch.compile(net, backend="aot_eager", fullgraph=True)), grads(net))
    torch.compiler.reset()
