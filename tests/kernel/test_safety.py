"""The kernel in hostile hands: any shapes and strides, what does not fit, threads and forks, sanitizers that watch."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from n3net import kernel
from n3net.kernel import door
from n3net.kernel.convolution import conv3x3
from n3net.neighbors import Matching, native
from problems import match_images

pytestmark = pytest.mark.skipif(kernel.instruction_set() is None, reason="the compiled kernel is not built")
HERE = Path(__file__).parent
DTYPES = st.sampled_from([torch.float32, torch.float64])


def strided(data: st.DataObject, x: Tensor) -> Tensor:
    """The same numbers in another layout; images that repeat a channel or a row may have no place of their own."""
    layout = data.draw(st.sampled_from(["plain", "last", "turned", "sliced", "apart", "repeated"]))
    if layout == "last":
        return x.contiguous(memory_format=torch.channels_last)
    if layout == "turned":
        return x.transpose(2, 3).contiguous().transpose(2, 3)
    if layout == "sliced":
        return F.pad(x, (2, 3, 1, 1), value=torch.nan)[..., 1:-1, 2:-3]
    if layout == "apart":
        return torch.stack([x, torch.full_like(x, torch.nan)], -1)[..., 0]
    if layout == "repeated":
        return x[:, :1, :1].expand_as(x)
    return x


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_shape_and_layout(data: st.DataObject) -> None:
    """Against the reference in float64, forward and backward, with images of any strides."""
    dtype = data.draw(DTYPES)
    patch = data.draw(st.integers(1, 12), "patch")
    stride = data.draw(st.integers(1, patch), "stride")
    window = data.draw(st.integers(2, 20), "window")
    matching = Matching(patch, stride, window, data.draw(st.sampled_from(["shift", "clip"]), "border"))
    most = 5 if patch % stride else 9  # patches along a side; others are copied out of the image
    h, w = (data.draw(st.integers(1, patch + most * stride), name) for name in ("height", "width"))
    grid = matching.grid(h, w)
    if grid.fewest_candidates() < 1:
        return
    k = data.draw(st.integers(1, min(20, grid.fewest_candidates())), "k")
    b, e, c = (data.draw(st.integers(1, n), name) for n, name in ((2, "batch"), (9, "embedding"), (9, "channels")))
    g = torch.Generator().manual_seed(data.draw(st.integers(0, 99), "seed"))
    embedding, values = (torch.randn(b, n, h, w, generator=g, dtype=dtype) for n in (e, c))
    per_patch = (b, grid.query_rows, grid.query_cols)
    scale, strength = (torch.rand(per_patch, generator=g, dtype=dtype) + 0.1 for _ in range(2))
    tensors = [strided(data, embedding) / patch, strided(data, values), scale / e, strength.mT.contiguous().mT]
    options: dict[str, Any] = {
        "distance": data.draw(st.sampled_from(["squared", "euclidean"])),
        "rule": data.draw(st.sampled_from(["continuous", "hard"])),
        "differences": data.draw(st.booleans()),
        "beside": data.draw(st.booleans()),
    }
    if options["rule"] == "hard":  # without ties, which rounding breaks
        tensors[0] = torch.randn(b, e, h, w, generator=g, dtype=dtype)
    judge = run("reference", [t.double() for t in tensors], k, matching, **options)
    ours = run("native", tensors, k, matching, **options)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    for name, x, y in zip(("out", "fused", "embedding", "values", "scale", "strength"), ours, judge, strict=True):
        error = (x - y).abs().max() / y.abs().max().clamp(min=1)
        assert error < tolerance, f"{name}: {error:.1e}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("border", ["shift", "clip"])
@pytest.mark.parametrize("cells", [1, 2, 3])
def test_shapes_at_the_edges_of_registers(cells: int, border: str, dtype: torch.dtype) -> None:
    """Windows around the lengths of registers, for which rows of slots end with a part of one."""
    g = torch.Generator().manual_seed(0)
    for window in (3, 4, 6, 7, 8, 9, 14, 15, 16, 17):
        matching = Matching(2 * cells, 2, window, border)
        grid = matching.grid(20, 24)
        images = [torch.randn(1, 1, 20, 24, generator=g, dtype=dtype) for _ in range(2)]
        per_patch = torch.ones(1, grid.query_rows, grid.query_cols, dtype=dtype)
        tensors = [*images, per_patch / 10, per_patch]
        judge = run("reference", [t.double() for t in tensors], 3, matching)
        for a, b in zip(run("native", tensors, 3, matching), judge, strict=True):
            torch.testing.assert_close(a.double(), b, atol=1e-4 * float(b.abs().max()), rtol=0)


def run(backend: str, tensors: list[Tensor], k: int, matching: Matching, **options: Any) -> list[Tensor]:
    """Result, result without gradients, and the gradients."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    out = match_images(*leaves, k, matching, backend=backend, **options)  # type: ignore[arg-type]
    weight = torch.sin(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    grads = torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
    with torch.no_grad():
        fused = match_images(*tensors, k, matching, backend=backend, **options)  # type: ignore[arg-type]
    return [
        out.detach(),
        fused,
        *(torch.zeros_like(t) if g is None else g for t, g in zip(tensors, grads, strict=True)),
    ]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_convolutions_of_any_shape_and_layout(data: st.DataObject) -> None:
    dtype = data.draw(DTYPES)
    b, c, k, h, w = (data.draw(st.integers(1, n)) for n in (2, 40, 40, 11, 11))
    g = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    x = strided(data, torch.randn(b, c, h, w, generator=g, dtype=dtype)).detach().requires_grad_()
    weight = torch.randn(k, c, 3, 3, generator=g, dtype=dtype).requires_grad_()
    bias = torch.randn(k, generator=g, dtype=dtype).requires_grad_() if data.draw(st.booleans()) else None
    leaves = [t for t in (x, weight, bias) if t is not None]
    g_out = torch.randn(b, k, h, w, generator=g, dtype=dtype)
    ours, judge = (
        (out.detach(), *torch.autograd.grad(out, leaves, g_out))
        for out in (conv3x3(x, weight, bias), F.conv2d(x, weight, bias, padding=1))
    )
    for a, z in zip(ours, judge, strict=True):
        torch.testing.assert_close(
            a, z, rtol=0, atol=(1e-12 if dtype == torch.float64 else 1e-4) * float(z.abs().max())
        )


@pytest.mark.parametrize(("b", "c"), [(0, 2), (2, 0)])
def test_nothing_gives_nothing(b: int, c: int) -> None:
    matching = Matching(4, 2, 3)
    tensors = [torch.rand(b, 2, 12, 12), torch.rand(b, c, 12, 12), torch.ones(b, 5, 5), torch.ones(b, 5, 5)]
    out = run("native", tensors, 3, matching)
    assert out[0].shape == out[1].shape == (b, 3 * c, 12, 12)
    z, strength = torch.rand(b, 5).requires_grad_(), torch.ones(b)
    w = native.select(z, strength, 2)
    assert w.shape == (b, 2, 5)
    w.sum().backward()


def test_an_embedding_without_channels_finds_all_alike() -> None:
    tensors = [torch.rand(1, 0, 6, 6), torch.rand(1, 1, 6, 6), torch.ones(1, 3, 3), torch.ones(1, 3, 3)]
    out = run("native", tensors, 2, Matching(2, 2, 3))
    tensors[0] = torch.zeros(1, 1, 6, 6)
    torch.testing.assert_close(out[:2], run("reference", tensors, 2, Matching(2, 2, 3))[:2])


# What does not fit: sizes 2, 3 x 3 queries, window 3, two channels of embedding and values, k = 2.

GRID = [4, 4, 2, 2, 3, 0]  # rows, cols, cell, patch, window, clip
EMBEDDING = torch.rand(2, 2, 8, 8)
SLOTS, QUERIES = torch.rand(2, 3, 3, 9), torch.rand(2, 3, 3)


def call(name: str, *arguments: Any, **sizes: int) -> None:
    """A call of the kernel as ``native`` makes it, with some sizes that are not as they should be."""
    plain = {"batch": 2, "embedding": 2, "channels": 2, "k": 2, "threads": 1}
    names = ("rows", "cols", "cell", "patch", "window", "clip")
    problem = native._Problem(**{**dict(zip(names, GRID, strict=True)), **plain, **sizes})
    images = [native._image(a) if isinstance(a, Tensor) and a.shape[-1] == 8 else a for a in arguments]
    kernel.run(name, problem, *images)


def overlapping(shape: tuple[int, ...]) -> Tensor:
    return torch.zeros(1).expand(shape)


def short(shape: tuple[int, ...]) -> Tensor:
    """A tensor whose memory was taken away."""
    x = torch.rand(shape)
    x.untyped_storage().resize_(16)
    return x


def misaligned(shape: tuple[int, ...]) -> Tensor:
    count = int(torch.tensor(shape).prod())
    memory = bytearray(4 * count + 8)
    start = 1 + -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % 4
    return torch.frombuffer(memory, dtype=torch.float32, count=count, offset=start).view(shape)


@pytest.mark.parametrize(
    ("arguments", "sizes", "message"),
    [
        ((EMBEDDING, SLOTS[:1]), {}, "argument 2 of distances .*expected 162 numbers in a row, got shape .1, 3, 3, 9."),
        ((EMBEDDING, SLOTS.mT), {}, "expected 162 numbers in a row, got shape .*with strides"),
        ((EMBEDDING, SLOTS.double()), {}, "expected a tensor of torch.float32 .*got torch.float64 on cpu"),
        ((EMBEDDING, SLOTS.to("meta")), {}, "expected a tensor of torch.float32 in the memory of the CPU, got .*meta"),
        ((EMBEDDING, SLOTS.to_sparse()), {}, "got torch.float32 on cpu, torch.sparse"),
        ((EMBEDDING, torch._neg_view(SLOTS)), {}, "negated"),
        ((EMBEDDING, short((2, 3, 3, 9))), {}, "expected memory for shape .2, 3, 3, 9., got 16 bytes"),
        ((EMBEDDING, misaligned((2, 3, 3, 9))), {}, "begins at a multiple of 4 bytes"),
        ((EMBEDDING, None), {}, "expected a tensor, got NoneType"),
        ((EMBEDDING,), {}, "takes 2 arguments, got 1"),
        ((EMBEDDING[:1], SLOTS), {}, "expected shape .2, 2, H, W., got .1, 2, 8, 8."),
        ((EMBEDDING, SLOTS), {"embedding": 3}, "expected shape .2, 3, H, W., got .2, 2, 8, 8."),
        ((EMBEDDING[:, :, :, :7].contiguous(), SLOTS), {}, "no attribute|description|tensor"),
        ((EMBEDDING.half(), SLOTS), {}, "float32 and float64, not torch.float16"),
        ((EMBEDDING, torch.rand(2, 1, 1, 9)), {"rows": 2, "cols": 2}, r"on a grid of \(4, 4\) pixels, got \(8, 8\)"),
    ],
)
def test_the_door_refuses(arguments: tuple[Any, ...], sizes: dict[str, int], message: str) -> None:
    with pytest.raises((ValueError, AttributeError), match=message):
        call("distances", *arguments, **sizes)


def test_the_door_refuses_to_write_where_numbers_share_a_place() -> None:
    with pytest.raises(ValueError, match="expected a place of its own for each number, got strides"):
        call("aggregate", SLOTS, QUERIES, EMBEDDING, overlapping((2, 4, 8, 8)))


def test_the_door_knows_every_function() -> None:
    source = (Path(kernel.__file__).parent / "kernel.cpp").read_text()
    exported = {
        line.split("n3_")[1].split("_##")[0]
        for line in source.splitlines()
        if 'extern "C" int n3_' in line and "##" in line
    }
    assert exported == set(door.ARGUMENTS)
    with pytest.raises(ValueError, match=r"'nothing' is not declared in kernel/door\.py"):
        call("nothing", EMBEDDING)


@pytest.mark.parametrize(
    "sizes",
    [
        {"batch": -1},
        {"rows": 0},
        {"rows": 1, "cols": 1},  # smaller than a patch
        {"patch": 0},
        {"patch": -2},
        {"cell": 0},
        {"window": 0},
        {"window": -3},
        {"window": 2**40},
        {"k": -1},
        {"k": 10},  # more than slots
        {"threads": 0},
        {"channels": 2**60},
        {"rows": 2**62},
    ],
    ids=str,
)
def test_cpp_refuses_sizes(sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the door would let them pass: an error, and nothing is written."""
    out = torch.full((2, 4, 8, 8), 7.0)
    arguments = [native._image(EMBEDDING), SLOTS, QUERIES, native._image(EMBEDDING), native._image(out)]
    pointers = [
        ctypes.byref(a) if isinstance(a, ctypes.Structure) else ctypes.c_void_p(a.data_ptr()) for a in arguments
    ]
    monkeypatch.setattr(kernel, "pointers", lambda *_: pointers)
    with pytest.raises(ValueError, match="of the kernel cannot compute with batch"):
        call("neighbors", *arguments, **sizes)
    assert (out == 7).all()


@pytest.mark.parametrize("sizes", [(1, 0, 1), (1, 4, 5), (-1, 4, 1), (2**60, 2**20, 2**20), (1, 4, -1)])
def test_cpp_refuses_rows(sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "pointers", lambda *_: [ctypes.c_void_p(0)] * 3)
    with pytest.raises(ValueError, match="select of the kernel cannot compute with rows"):
        kernel.run("select", native._Rows(*sizes, 1), SLOTS)


def test_layers_of_a_chain_must_fit_each_other() -> None:
    from n3net.kernel.convolution import Layer, convolve, pack

    first, second = (Layer(pack(torch.rand(k, c, 3, 3)), None, c, k) for k, c in ((4, 3), (5, 6)))
    with pytest.raises(ValueError, match="conv_chain of the kernel cannot compute with layers 2"):
        convolve(torch.rand(1, 3, 8, 8), [first, second])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.rand(1, 2, 8, 8)}, r"expected shape \(1, 3, 8, 8\) with strides .*got \(1, 2, 8, 8\)"),
        ({"images": torch.rand(1, 3, 8, 8).double()}, "expected a tensor of torch.float64 .*got torch.float32"),
        ({"bias": torch.rand(3)}, r"expected 4 numbers in a row, got shape \(3,\)"),
        ({"packed": torch.rand(50)}, r"numbers in a row, got shape \(50,\)"),
        ({"add": torch.rand(1, 4, 7, 8)}, r"expected shape \(1, 4, 8, 8\).*got \(1, 4, 7, 8\)"),
        ({"add": torch.rand(1, 5, 8, 8)}, "conv_chain of the kernel cannot compute with"),
    ],
)
def test_a_chain_of_convolutions_must_fit_its_tensors(change: dict[str, Tensor], message: str) -> None:
    from n3net.kernel.convolution import Layer, convolve, pack

    given = {"images": torch.rand(1, 3, 8, 8), "packed": pack(torch.rand(4, 3, 3, 3)), "bias": torch.rand(4), **change}
    layer = Layer(given["packed"], given["bias"], 3, 4)
    with pytest.raises(ValueError, match=message):
        convolve(given["images"], [layer], given.get("add"))


# Threads and forks.


def example(side: int = 70) -> tuple[list[Tensor], Matching]:
    """Small tensors, which PyTorch does not share among threads, of more than one of the kernel's tiles."""
    g = torch.Generator().manual_seed(0)
    per_patch = (1, side - 1, side - 1)
    images = [torch.rand(1, 1, side, side, generator=g) for _ in range(2)]
    return [*images, *(torch.rand(per_patch, generator=g) for _ in range(2))], Matching(2, 1, 5)


@pytest.fixture
def two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_two_threads_at_once() -> None:
    """With gradients and without, each the same numbers as alone."""
    tensors, matching = example()
    expected = run("native", tensors, 3, matching)
    results: list[list[Tensor]] = []

    def work() -> None:
        for _ in range(3):
            results.append(run("native", tensors, 3, matching))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 6
    for result in results:
        for a, b in zip(result, expected, strict=True):
            assert torch.equal(a, b)


FORK = """
import os, signal, sys, torch
sys.path[:0] = [{here!r}, os.path.dirname({here!r})]
from test_safety import example, match_images
torch.set_num_threads(2)
tensors, matching = example()
def work():
    with torch.no_grad():
        return match_images(*tensors, 3, matching, backend="native")
torch.rand(2000, 2000).exp()  # PyTorch's threads are there
expected = work()
sys.stdout.flush()
child = os.fork()
if child == 0:
    signal.alarm(60)
    ok = torch.equal(work(), expected)
    grandchild = os.fork()
    if grandchild == 0:
        signal.alarm(60)
        os._exit(not torch.equal(work(), expected))
    ok &= os.waitpid(grandchild, 0)[1] == 0
    os._exit(not ok)
status = os.waitpid(child, 0)[1]
assert status == 0, f"the child ended with {{status}}"
assert torch.equal(work(), expected)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_may_use_it() -> None:
    """libgomp's threads stay with the parent: a child that waited for them would wait for ever."""
    subprocess.run([sys.executable, "-c", FORK.format(here=str(HERE))], check=True, timeout=200)


# Sanitizers.


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """Some tests once more, with a kernel that notices what it reads or writes elsewhere; all: make sanitize."""
    if "N3NET_KERNEL" in os.environ:
        pytest.skip("this is already another kernel")
    spec = importlib.util.spec_from_file_location("sanitize", HERE / "sanitize.py")
    assert spec is not None
    assert spec.loader is not None
    sanitize = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sanitize)
    reason = sanitize.why_not()
    if reason:
        pytest.skip(reason)
    quick = [
        "tests/kernel/test_safety.py",
        "tests/neighbors/test_limits.py",
        "-k",
        "(native and not large_image) or shape or nothing or without",
    ]
    command = [sys.executable, str(HERE / "sanitize.py"), str(tmp_path), "64", "0", *quick]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    assert " passed" in run.stdout
