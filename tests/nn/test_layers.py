"""All that PyTorch can do with a layer, for each public layer: a table of layers, and a test for each property.

Where a layer cannot do something, its error says what can.
"""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from n3net import kernel, nearest, select
from n3net.neighbors import Matching
from n3net.nn import N3Block, N3Block1d, N3Block2d, SetNorm, context_norm
from problems import match_images, match_sets

HAS_KERNEL = kernel.instruction_set() is not None


class Call(nn.Module):
    """A function as a layer without parameters."""

    def __init__(self, function: Callable[..., Tensor], *rest: Any, **options: Any) -> None:
        super().__init__()
        self.function, self.rest, self.options = function, rest, options

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.function(*tensors, *self.rest, **self.options)


class Select(Call):
    """``select`` with a temperature per query."""

    def forward(self, *tensors: Tensor) -> Tensor:
        d, t = tensors
        return select(d, 3, t.exp())


class Nearest(nn.Module):
    """``nearest`` of queries, items, values and log temperatures."""

    def __init__(self, candidates: Tensor | None, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("candidates", candidates)

    def forward(self, queries: Tensor, items: Tensor, values: Tensor, t: Tensor) -> Tensor:
        own: Any = self.candidates
        index = None if own is None else own.expand(queries.shape[0], -1, -1)
        return nearest(queries, items, 2, t.exp(), values=values, candidates=index, **self.options)


CANDIDATES = torch.tensor([[0, 2, 4, -1], [5, 1, 0, 3], [1, 2, -1, -1], [3, 4, 5, 0]])[None]


@dataclass(frozen=True)
class Layer:
    """A layer, the shapes of its inputs for a batch of B, and that of its result without B.

    ``compiled``: computed by the kernel; ``image``: for images; ``traced``: ``torch.jit.trace`` is not refused.
    """

    make: Callable[[], nn.Module]
    shapes: Callable[[int], list[tuple[int, ...]]]
    result: tuple[int, ...]
    compiled: bool = False
    image: bool = False
    traced: bool = False

    def net(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        torch.manual_seed(0)
        return self.make().eval().to(dtype)

    def inputs(self, b: int = 2, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
        g = torch.Generator().manual_seed(seed)
        return [torch.rand(s, generator=g, dtype=torch.float64).to(dtype) for s in self.shapes(b)]


def _sets(b: int) -> list[tuple[int, ...]]:
    return [(b, 6, 3), (b, 6, 2), (b, 6), (b, 6)]


def _queries(b: int) -> list[tuple[int, ...]]:
    return [(b, 4, 3), (b, 6, 3), (b, 6, 2), (b, 4)]


def _images(b: int) -> list[tuple[int, ...]]:
    return [(b, 2, 8, 10), (b, 1, 8, 10), (b, 3, 4), (b, 3, 4)]


def _table() -> dict[str, Layer]:
    table = {
        "select": Layer(lambda: Select(select), lambda b: [(b, 5, 7), (b, 5)], (5, 3, 7), traced=True),
        "context_norm": Layer(lambda: Call(context_norm), lambda b: [(b, 6, 3)], (6, 3), traced=True),
        "SetNorm": Layer(lambda: SetNorm(3), lambda b: [(b, 6, 3)], (6, 3), traced=True),
    }
    for backend in ("auto", "tiled"):
        own, quick = {"backend": backend}, backend == "auto" and HAS_KERNEL
        table |= {
            f"match_sets-{backend}": Layer(lambda own=own: Call(match_sets, 2, **own), _sets, (6, 2, 2), quick),
            f"match_images-{backend}": Layer(
                lambda own=own: Call(match_images, 2, Matching(4, 2, 3), **own), _images, (2, 8, 10), quick, True
            ),
            f"N3Block-{backend}": Layer(
                lambda own=own: N3Block(3, 2, features=4, **own), lambda b: [(b, 7, 3)], (7, 9), quick
            ),
            f"nearest-{backend}": Layer(lambda own=own: Nearest(None, **own), _queries, (4, 2, 2), quick),
            f"nearest-candidates-{backend}": Layer(
                lambda own=own: Nearest(CANDIDATES, **own), _queries, (4, 2, 2), quick
            ),
            f"N3Block1d-{backend}": Layer(
                lambda own=own: N3Block1d(3, 2, 4, features=4, **own), lambda b: [(b, 7, 3)], (7, 9), quick
            ),
            f"N3Block2d-{backend}": Layer(
                lambda own=own: N3Block2d(2, 2, 4, 2, 3, features=4, **own),
                lambda b: [(b, 2, 9, 10)],
                (6, 9, 10),
                quick,
                True,
            ),
        }
    return table


LAYERS = _table()
every = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())
MODULES = {name: layer for name, layer in LAYERS.items() if name.startswith(("N3Block", "SetNorm"))}
IMAGES = {name: layer for name, layer in LAYERS.items() if layer.image}
images = pytest.mark.parametrize("layer", IMAGES.values(), ids=IMAGES.keys())
modules = pytest.mark.parametrize("layer", MODULES.values(), ids=MODULES.keys())


def weighted(out: Tensor) -> Tensor:
    """A sum in which every number counts differently."""
    return (out * torch.cos(torch.arange(out.numel(), dtype=out.dtype, device=out.device)).view_as(out)).sum()


def gradients(net: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Those of the inputs and of the parameters."""
    inputs = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in inputs]
    parameters = list(net.parameters()) if isinstance(net, nn.Module) else []
    return list(torch.autograd.grad(weighted(net(*inputs)), [*inputs, *parameters], allow_unused=True))


def assert_equal(ours: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


class Seen(TorchDispatchMode):
    """The names of all operations, and the devices of all tensors they take and give."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.devices: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.names.add(func._schema.name)
        self.devices |= {x.device.type for x in tree_leaves((args, kwargs, out)) if isinstance(x, Tensor)}
        return out


# Shapes and types ---------------------------------------------------------------------------------------------------


@every
def test_shape(layer: Layer) -> None:
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            out = layer.net()(*layer.inputs())
        assert out.shape == (2, *layer.result)
        assert out.requires_grad == (grad and bool(list(layer.net().parameters())))


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(layer: Layer, dtype: torch.dtype) -> None:
    inputs = layer.inputs(dtype=dtype)
    out = layer.net(dtype)(*inputs)
    assert out.dtype == dtype
    exact, eps = layer.net(torch.float32)(*[x.float() for x in inputs]), torch.finfo(dtype).eps
    torch.testing.assert_close(out.float(), exact, atol=eps, rtol=eps)  # computed in float32, rounded at the end
    assert all(g is None or (g.dtype == dtype and g.isfinite().all()) for g in gradients(layer.net(dtype), inputs))


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(layer: Layer, dtype: torch.dtype) -> None:
    net, inputs = layer.net(torch.float32), layer.inputs(dtype=torch.float32)
    with torch.autocast("cpu", dtype=dtype):
        out = net(*inputs)
    # Convolutions and linear layers lose digits; selection and matching do not.
    digits = 0.1 if list(net.parameters()) else 0.0
    torch.testing.assert_close(out.float(), net(*inputs), atol=digits, rtol=digits)
    with torch.autocast("cpu", dtype=dtype):
        assert all(g is None or g.isfinite().all() for g in gradients(net, inputs))


@every
def test_any_strides(layer: Layer) -> None:
    net, inputs = layer.net(), layer.inputs()
    turned = [x.movedim(0, -1).contiguous().movedim(-1, 0) for x in inputs]
    assert not turned[0].is_contiguous()
    with torch.no_grad():
        assert_equal(net(*turned), net(*inputs))
    assert_equal(gradients(net, turned), gradients(net, inputs))


@images
def test_channels_last(layer: Layer) -> None:
    net, inputs = layer.net(), layer.inputs(b=3)
    last = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            assert_equal(net(*last), net(*inputs))
    assert_equal(gradients(net, last), gradients(net, inputs))


@every
def test_empty_batch(layer: Layer) -> None:
    net, inputs = layer.net(), layer.inputs(b=0)
    with torch.no_grad():
        assert net(*inputs).shape == (0, *layer.result)
    assert all(g is None or not g.any() for g in gradients(net, inputs))


# Derivatives --------------------------------------------------------------------------------------------------------


@every
def test_first_derivatives(layer: Layer) -> None:
    inputs = [x.requires_grad_() for x in layer.inputs(b=1)]
    assert torch.autograd.gradcheck(layer.net(), inputs, fast_mode=True)


@every
def test_second_derivatives_or_which_backend_has_them(layer: Layer) -> None:
    net, inputs = layer.net(), [x.requires_grad_() for x in layer.inputs(b=1)]
    if layer.compiled:
        with pytest.raises(RuntimeError, match="no second derivative; use backend='tiled'"):
            torch.autograd.gradgradcheck(net, inputs, fast_mode=True)
    else:
        assert torch.autograd.gradgradcheck(net, inputs, fast_mode=True, atol=1e-4)


@every
@pytest.mark.parametrize("grad", [True, False])
def test_forward_mode_or_which_backend_has_it(layer: Layer, grad: bool) -> None:
    net, inputs = layer.net(), tuple(layer.inputs())
    tangents = tuple(layer.inputs(seed=1))
    with torch.set_grad_enabled(grad):
        if layer.compiled:
            with pytest.raises(RuntimeError, match=r"no derivative in forward mode .* use backend='tiled'"):
                torch.func.jvp(net, inputs, tangents)
            return
        _, ours = torch.func.jvp(net, inputs, tangents)
    of_inputs = gradients(net, list(inputs))[: len(inputs)]
    theirs = sum((g * t).sum() for g, t in zip(of_inputs, tangents, strict=True))
    assert_equal(weighted(ours).detach(), theirs)


@every
def test_checkpoint(layer: Layer) -> None:
    net, inputs = layer.net(), [x.requires_grad_() for x in layer.inputs()]
    expected = gradients(net, inputs)
    for reentrant in (True, False):
        for x in [*inputs, *net.parameters()]:
            x.grad = None
        weighted(checkpoint(net, *inputs, use_reentrant=reentrant)).backward()
        assert_equal([x.grad for x in [*inputs, *net.parameters()]], expected)


# Transforms ---------------------------------------------------------------------------------------------------------


@every
def test_func_grad_and_functional_call(layer: Layer) -> None:
    net, inputs = layer.net(), layer.inputs()
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters: dict[str, Tensor], *inputs: Tensor) -> Tensor:
        return weighted(torch.func.functional_call(net, parameters, inputs))

    positions = tuple(range(1 + len(inputs)))
    of_parameters, *of_inputs = torch.func.grad(loss, argnums=positions)(parameters, *inputs)
    assert_equal([*of_inputs, *of_parameters.values()], gradients(net, inputs))


@every
def test_vmap_is_a_loop(layer: Layer) -> None:
    net, samples = layer.net(), [layer.inputs(seed=seed) for seed in range(3)]
    expected = torch.stack([net(*one) for one in samples])
    stacked = [torch.stack(tensors) for tensors in zip(*samples, strict=True)]
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            assert_equal(torch.vmap(net)(*stacked), expected)
    last = [x.movedim(0, -1) for x in stacked]
    assert_equal(torch.vmap(net, in_dims=-1, out_dims=-1)(*last), expected.movedim(0, -1))
    twice = [torch.stack([x, 1 - x]) for x in stacked]
    assert_equal(torch.vmap(torch.vmap(net))(*twice)[0], expected)
    mapped = (0, *[None] * (len(stacked) - 1))  # the first input alone
    alone = torch.stack([net(one[0], *samples[0][1:]) for one in samples])
    assert_equal(torch.vmap(net, in_dims=mapped)(stacked[0], *samples[0][1:]), alone)


@every
def test_gradients_for_each_sample(layer: Layer) -> None:
    net, samples = layer.net(), [layer.inputs(seed=seed) for seed in range(2)]
    stacked = [torch.stack(tensors) for tensors in zip(*samples, strict=True)]
    positions = tuple(range(len(stacked)))
    ours = torch.vmap(torch.func.grad(lambda *x: weighted(net(*x)), argnums=positions))(*stacked)
    for i, one in enumerate(samples):
        assert_equal([g[i] for g in ours], gradients(net, one)[: len(one)])


@every
def test_jacrev(layer: Layer) -> None:
    net, inputs = layer.net(), layer.inputs(b=1)
    expected = torch.autograd.functional.jacobian(lambda x: net(x, *inputs[1:]), inputs[0])
    assert_equal(torch.func.jacrev(net)(*inputs), expected)


# Tensors without values ---------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_read_from_the_device_nor_carried_there(layer: Layer, training: bool) -> None:
    """Values of meta tensors cannot be read, and a tensor of another device would be seen: as on a GPU, no waiting."""
    net = layer.net().train(training).to("meta")
    inputs = [x.to("meta").requires_grad_() for x in layer.inputs()]
    with Seen() as seen:
        out = net(*inputs)
        out.sum().backward()
        with torch.no_grad():
            net(*inputs)
    assert out.shape == (2, *layer.result)
    assert all(x.grad is not None and x.grad.shape == x.shape for x in inputs)
    assert seen.devices == {"meta"}
    assert not {name for name in seen.names if "local_scalar" in name or "item" in name or "nonzero" in name}


def test_masks_are_not_read_from_the_device() -> None:
    block = N3Block(3, 2).to("meta")
    x, mask = torch.rand(2, 7, 3, device="meta"), torch.ones(2, 7, dtype=torch.bool, device="meta")
    with Seen() as seen:
        assert block(x, mask).is_meta
        assert select(x[..., 0], 3, 0.5, mask=mask).is_meta
    assert seen.devices == {"meta"}


@every
def test_fake_tensors(layer: Layer) -> None:
    net = layer.net()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        inputs = [mode.from_tensor(x).requires_grad_() for x in layer.inputs()]
        out = net(*inputs)
        grads = torch.autograd.grad(out.sum(), inputs)
        with torch.no_grad():
            assert net(*inputs).shape == out.shape
    assert out.shape == (2, *layer.result)
    assert [g.shape for g in grads] == [x.shape for x in inputs]


# Programs -----------------------------------------------------------------------------------------------------------


@every
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_jit_trace_is_right_or_refused(layer: Layer) -> None:
    net, inputs = layer.net(), layer.inputs()
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            if layer.traced:
                traced = torch.jit.trace(net, tuple(inputs))
                other = layer.inputs(b=3, seed=1)
                assert_equal(traced(*other), net(*other))
            else:
                with pytest.raises(RuntimeError, match=r"use torch\.export\.export"):
                    torch.jit.trace(net, tuple(inputs))


@every
def test_export_needs_nothing_of_n3net(layer: Layer) -> None:
    net, inputs = layer.net(), layer.inputs()
    program = torch.export.export(net, tuple(inputs))
    assert not any("n3net" in str(node.target) for node in program.graph.nodes)
    other = layer.inputs(seed=1)
    assert_equal(program.module()(*other), net(*other), 1e-7)


@modules
def test_copies_files_and_states(layer: Layer) -> None:
    net, inputs = layer.net(), layer.inputs()
    expected = net(*inputs)
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    fresh = layer.make().eval().double()
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), fresh):
        assert torch.equal(twin(*inputs), expected)
        assert repr(twin) == repr(net)


@pytest.mark.skipif(not HAS_KERNEL, reason="no kernel built")
def test_modes_and_profilers_see_the_operators() -> None:
    expected = {
        "N3Block-auto": {"n3net::select", "n3net::select_backward"},
        "N3Block2d-auto": {
            "n3net::window_distances",
            "n3net::window_distances_backward",
            "n3net::window_aggregate",
            "n3net::window_aggregate_backward",
            "n3net::window_neighbors",
        },
    }
    for name, operators in expected.items():
        net, inputs = LAYERS[name].net(), LAYERS[name].inputs()
        with Seen() as seen, torch.profiler.profile() as profile:
            net(*inputs).sum().backward()
            with torch.no_grad():
                net(*inputs)
        assert {n for n in seen.names if n.startswith("n3net")} == operators
        assert operators <= {event.key for event in profile.key_averages()}


def test_training_does_not_wait_for_the_compiler_to_be_imported() -> None:
    program = """
import sys, torch
from n3net.nn import N3Block, N3Block2d
N3Block(3, 2)(torch.rand(1, 6, 3)).sum().backward()
N3Block2d(2, 2, 4, 2, 3)(torch.rand(1, 2, 9, 9)).sum().backward()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
