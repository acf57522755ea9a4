"""Every backend against the literal reference, forward and backward."""

from __future__ import annotations

import threading
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from n3net import kernel
from n3net.neighbors import BACKENDS, Matching, all_pairs
from n3net.neighbors.grid import Grid
from n3net.nn import QueryNorm
from problems import match_images, match_sets

HAS_KERNEL = kernel.instruction_set() is not None
Case = tuple[int, int, int, int, int, int, int, int, int, str, str]
FAST = ["dense", "tiled", pytest.param("native", marks=pytest.mark.skipif(not HAS_KERNEL, reason="no kernel built"))]


def inputs(matching: Matching, b: int, e: int, c: int, h: int, w: int, dtype: torch.dtype) -> list[Tensor]:
    """Embedding, values, scale and strength with logits of the order of ten."""
    grid = matching.grid(h, w)
    g = torch.Generator().manual_seed(h * 1000 + w)
    size = matching.patch_size
    embedding = torch.randn(b, e, h, w, generator=g, dtype=dtype) * (4 / (e * size * size)) ** 0.5
    values = torch.randn(b, c, h, w, generator=g, dtype=dtype)
    scale = torch.rand(b, grid.query_rows, grid.query_cols, generator=g, dtype=dtype) + 0.3
    strength = torch.rand(b, grid.query_rows, grid.query_cols, generator=g, dtype=dtype) + 0.5
    return [embedding, values, scale, strength]


NAMES = ("out", "fused", "embedding", "values", "scale", "strength")  # of what run gives


def run(backend: str, tensors: list[Tensor], k: int, matching: Matching, **options: str) -> list[Tensor]:
    """Result, result without gradients, and the gradients."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    out = match_images(*leaves, k, matching, backend=backend, **options)  # type: ignore[arg-type]
    weight = torch.sin(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    (out * weight).sum().backward()
    with torch.no_grad():
        fused = match_images(*leaves, k, matching, backend=backend, **options)  # type: ignore[arg-type]
    return [out.detach(), fused, *(t.grad if t.grad is not None else torch.zeros_like(t) for t in leaves)]


def assert_equal(ours: list[Tensor], judge: list[Tensor], tolerance: float) -> None:
    for name, a, b in zip(NAMES, ours, judge, strict=True):
        error = (a - b).abs().max() / b.abs().max().clamp(min=1e-3)
        assert error < tolerance, f"{name}: relative error {error:.1e}"


CASES = [
    # b, e, c, h, w, patch, stride, window, k, border, distance
    (1, 2, 1, 97, 123, 10, 5, 15, 7, "shift", "squared"),
    (2, 2, 2, 80, 80, 10, 5, 15, 7, "shift", "euclidean"),
    (1, 2, 2, 33, 41, 6, 3, 5, 3, "clip", "squared"),
    (2, 1, 3, 40, 37, 7, 3, 4, 2, "shift", "euclidean"),  # patch no multiple of the stride
    (1, 2, 1, 40, 37, 9, 3, 6, 5, "clip", "euclidean"),  # three cells a patch, even window
    (1, 1, 1, 250, 40, 10, 5, 15, 7, "shift", "squared"),  # more than one band
    (1, 2, 1, 20, 10, 10, 5, 15, 1, "shift", "squared"),  # three patches in all
    (1, 3, 2, 64, 50, 4, 4, 3, 8, "shift", "squared"),  # one cell a patch; k takes all
    (1, 1, 1, 21, 23, 1, 1, 5, 3, "clip", "squared"),  # pixels
    (2, 2, 5, 45, 45, 10, 5, 15, 9, "shift", "squared"),  # window larger than the image
]


@cache
def judged(case: Case) -> tuple[Matching, list[Tensor], list[Tensor]]:
    """Inputs in float32 and what the reference makes of them in float64."""
    b, e, c, h, w, patch, stride, window, k, border, distance = case
    matching = Matching(patch, stride, window, border)
    tensors = inputs(matching, b, e, c, h, w, torch.float32)
    return matching, tensors, run("reference", [t.double() for t in tensors], k, matching, distance=distance)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-5)])
def test_equals_the_reference(backend: str, case: Case, dtype: torch.dtype, tolerance: float) -> None:
    matching, tensors, judge = judged(case)
    ours = run(backend, [t.to(dtype) for t in tensors], case[8], matching, distance=case[10])
    assert_equal(ours, judge, tolerance)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_equals_the_reference_anywhere(data: st.DataObject) -> None:
    patch = data.draw(st.integers(1, 8), "patch")
    stride = data.draw(st.integers(1, patch), "stride")
    window = data.draw(st.integers(2, 9), "window")
    border = data.draw(st.sampled_from(["shift", "clip"]), "border")
    matching = Matching(patch, stride, window, border)
    h, w = (data.draw(st.integers(patch, patch + 7 * stride), name) for name in ("height", "width"))
    fewest = matching.grid(h, w).fewest_candidates()
    if fewest < 1:
        return
    k = data.draw(st.integers(1, min(9, fewest)), "k")
    tensors = inputs(
        matching,
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(1, 4)),
        data.draw(st.integers(1, 4)),
        h,
        w,
        torch.float64,
    )
    distance = data.draw(st.sampled_from(["squared", "euclidean"]))
    judge = run("reference", tensors, k, matching, distance=distance)
    for backend in ["dense", "tiled"] + ["native"] * HAS_KERNEL:
        assert_equal(run(backend, tensors, k, matching, distance=distance), judge, 1e-10)


@pytest.mark.parametrize("backend", FAST)
def test_hard_rule_equals_the_reference(backend: str) -> None:
    matching = Matching(10, 5, 15)
    tensors = inputs(matching, 1, 2, 3, 70, 95, torch.float64)
    assert_equal(
        run(backend, tensors, 7, matching, rule="hard"), run("reference", tensors, 7, matching, rule="hard"), 1e-10
    )


def test_reference_is_the_definition_by_hand() -> None:
    """Three patches of 2 x 2 in a row, stride 2: neighbours and their average worked out with plain loops."""
    image = torch.tensor([[1.0, 2, 3, 5, 8, 13], [1, 2, 3, 5, 8, 13]], dtype=torch.float64)[None, None]
    matching = Matching(2, 2, 3)
    ones = torch.ones(1, 1, 3, dtype=torch.float64)
    out = match_images(image, image, ones / 10, ones / 10, 1, matching, backend="reference")
    patches = [image[0, 0, :, i : i + 2] for i in (0, 2, 4)]
    for q in range(3):
        others = [p for p in range(3) if p != q]
        d = torch.tensor([float((patches[q] - patches[p]).square().sum()) for p in others])
        w = torch.softmax(-d / 10, 0)
        expected = sum(wi * patches[p] for wi, p in zip(w, others, strict=True))
        torch.testing.assert_close(out[0, 0, :, 2 * q : 2 * q + 2], expected, check_dtype=False)


@pytest.mark.parametrize("border", ["shift", "clip"])
def test_windows(border: str) -> None:
    grid = Grid(rows=21, cols=9, cell=5, patch=2, window=15, border=border)
    mask = grid.candidates(torch.device("cpu"))
    counts = mask.sum(-1)
    assert counts.min() == grid.fewest_candidates()
    if border == "shift":
        assert (counts == 15 * 8 - 1).all()  # 20 x 8 patches: a full window along y, all there are along x
    else:
        assert counts[0, 0] == 8 * 8 - 1
        assert counts[10, 4] == 15 * 8 - 1


def test_paper_has_224_candidates() -> None:
    assert Matching().grid(512, 512).fewest_candidates() == 224
    assert Matching().grid(80, 80).fewest_candidates() == 224


def test_padding_is_half_before_and_the_larger_half_after() -> None:
    assert Matching().padding(97, 123) == (1, 1, 1, 2)
    assert Matching().padding(80, 80) == (0, 0, 0, 0)
    assert Matching().padding(7, 10) == (0, 0, 1, 2)


@pytest.mark.parametrize("backend", ["tiled", FAST[2]])
def test_the_batch_does_not_matter(backend: str) -> None:
    matching = Matching()
    tensors = inputs(matching, 3, 4, 4, 90, 75, torch.float32)
    together = match_images(*tensors, 7, matching, backend=backend)
    alone = torch.cat([match_images(*(t[i : i + 1] for t in tensors), 7, matching, backend=backend) for i in range(3)])
    torch.testing.assert_close(together, alone, atol=2e-6, rtol=1e-5)


def test_chunks_of_tiles_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    from n3net.neighbors import tiled

    matching = Matching(6, 3, 5)
    tensors = inputs(matching, 1, 2, 2, 100, 130, torch.float64)
    whole = match_images(*tensors, 3, matching, backend="tiled")
    monkeypatch.setattr(tiled, "CHUNK", 1)
    torch.testing.assert_close(match_images(*tensors, 3, matching, backend="tiled"), whole)


@pytest.mark.skipif(not HAS_KERNEL, reason="no kernel built")
def test_kernel_gives_the_same_bits_on_any_number_of_threads() -> None:
    matching = Matching()
    tensors = inputs(matching, 1, 3, 3, 220, 190, torch.float32)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 3):
            torch.set_num_threads(threads)
            results.append(run("native", tensors, 4, matching))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for name, a, b in zip(NAMES, results[0], other, strict=True):
            assert torch.equal(a, b), name


@pytest.mark.skipif(not HAS_KERNEL, reason="no kernel built")
def test_kernel_may_be_called_from_several_threads() -> None:
    matching = Matching()
    tensors = inputs(matching, 1, 2, 2, 90, 90, torch.float32)
    expected = match_images(*tensors, 3, matching, backend="native")
    results: list[Tensor] = []
    calls = [
        threading.Thread(target=lambda: results.append(match_images(*tensors, 3, matching, backend="native")))
        for _ in range(6)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert len(results) == 6
    assert all(torch.equal(r, expected) for r in results)


@pytest.mark.skipif(not HAS_KERNEL, reason="no kernel built")
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e5, 1e30])
def test_kernel_selects_like_the_reference_at_any_temperature(scale: float) -> None:
    matching = Matching(2, 2, 5)
    embedding, values, s, c = inputs(matching, 1, 1, 1, 24, 24, torch.float64)
    for strength in (torch.ones_like(c), (c * scale).clamp(max=1e30)):
        tensors = [embedding, values, s * scale, strength]
        ours, judge = run("native", tensors, 5, matching), run("reference", tensors, 5, matching)
        assert all(torch.isfinite(a).all() for a in ours)
        compared = 4 if scale < 1e6 else 2  # gradients of a jump have no digits to compare
        for a, b in zip(ours[:compared], judge[:compared], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9 * float(b.abs().max().clamp(min=1)))


@pytest.mark.skipif(not HAS_KERNEL, reason="no kernel built")
def test_kernel_has_no_second_derivative_and_says_so() -> None:
    matching = Matching(2, 2, 3)
    leaves = [t.requires_grad_() for t in inputs(matching, 1, 1, 1, 8, 8, torch.float64)]
    out = match_images(*leaves, 2, matching, backend="native").sum()
    (grad,) = torch.autograd.grad(out, leaves[0], create_graph=True)
    with pytest.raises(RuntimeError, match=r"no second derivative; use backend='tiled' of .*match_sets"):
        grad.sum().backward()


def test_tiled_has_a_second_derivative() -> None:
    matching = Matching(2, 2, 3)
    leaves = [t.requires_grad_() for t in inputs(matching, 1, 1, 1, 6, 6, torch.float64)]
    assert torch.autograd.gradgradcheck(lambda *x: match_images(*x, 2, matching, backend="tiled"), leaves, atol=1e-4)


@pytest.mark.parametrize("distance", ["squared", "euclidean"])
@pytest.mark.parametrize("chunk", [24_000_000, 150])
def test_sets_have_a_second_derivative_when_tiled(distance: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_pairs, "CHUNK", chunk)
    leaves = [t.requires_grad_() for t in set_inputs(1, 5, 2)]

    def neighbors(*tensors: Tensor) -> Tensor:
        return match_sets(*tensors, 2, distance=distance, backend="tiled")  # type: ignore[arg-type]

    assert torch.autograd.gradgradcheck(neighbors, leaves, atol=1e-4)


@pytest.mark.parametrize("backend", ["reference", *FAST])
def test_gradcheck(backend: str) -> None:
    matching = Matching(4, 2, 3)
    leaves = [t.requires_grad_() for t in inputs(matching, 1, 1, 1, 8, 10, torch.float64)]
    assert torch.autograd.gradcheck(lambda *x: match_images(*x, 3, matching, backend=backend), leaves)


@pytest.mark.parametrize("distance", ["squared", "euclidean"])
@pytest.mark.parametrize("backend", ["reference", *FAST])
def test_normalised_by_query(backend: str, distance: str) -> None:
    """All backends, with gradients and without, and patches that are no whole cells."""
    for sizes in ((4, 2, 5), (5, 2, 3)):
        matching, norm = Matching(*sizes), QueryNorm().double()
        tensors = inputs(matching, 2, 2, 1, 17, 14, torch.float64)
        options = {"distance": distance, "gain": norm}
        ours, judge = (run(name, tensors, 3, matching, **options) for name in (backend, "reference"))  # type: ignore[arg-type]
        assert_equal(ours, judge, 1e-9)
        torch.testing.assert_close(ours[0], ours[1])


@pytest.mark.parametrize("backend", ["reference", *FAST])
def test_gradcheck_normalised_by_query(backend: str) -> None:
    matching, norm = Matching(4, 2, 3), QueryNorm().double()
    leaves = [t.requires_grad_() for t in inputs(matching, 1, 1, 1, 8, 10, torch.float64)]

    def neighbors(weight: Tensor, *tensors: Tensor) -> Tensor:
        def gain(d: Tensor, candidates: Tensor) -> Tensor:
            return torch.func.functional_call(norm, {"weight": weight}, (d, candidates))

        return match_images(*tensors, 3, matching, gain=gain, backend=backend)

    assert torch.autograd.gradcheck(neighbors, [norm.weight, *leaves])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "gpu"}, "expected 'auto' or one of 'reference', 'dense', 'tiled', 'native', 'triton', got 'gpu'"),
        ({"backend": "native", "rule": "concrete"}, "backend 'native' cannot run: "),
        ({"k": 0}, "k: expected an integer of at least 1, got 0"),
        ({"k": 300}, "300 neighbours were asked for, but a patch of a 30 x 40 image has only"),
        ({"scale": torch.ones(1, 2, 2)}, "scale: expected one value per patch, shape (1, 5, 7), got (1, 2, 2)"),
        ({"embedding": torch.rand(1, 1, 9, 9)}, "embedding: expected shape (1, E, 30, 40) like the values"),
        ({"pads": (1, 0, 0, 0)}, "no whole number of patches"),
    ],
)
def test_refuses_with_a_reason(change: dict[str, object], message: str) -> None:
    matching = Matching()
    names = ("embedding", "values", "scale", "strength")
    arguments = dict(zip(names, inputs(matching, 1, 1, 1, 30, 40, torch.float32), strict=True))
    with pytest.raises(ValueError, match=r".+") as error:
        match_images(**{**arguments, "k": 2, "matching": matching, **change})  # type: ignore[arg-type]
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patch_size": 0}, "patch_size: expected an integer of at least 1, got 0"),
        ({"stride": 11}, "stride: expected at most patch_size = 10"),
        ({"border": "wrap"}, "border: expected 'shift' or 'clip', got 'wrap'"),
    ],
)
def test_matching_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Matching(**arguments)  # type: ignore[arg-type]


def test_a_missing_kernel_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_MISSING", "the compiled kernel was not built")
    matching = Matching(2, 2, 3)
    tensors = inputs(matching, 1, 1, 1, 8, 8, torch.float32)
    with pytest.raises(ValueError, match="backend 'native' cannot run: the compiled kernel was not built"):
        match_images(*tensors, 2, matching, backend="native")
    torch.testing.assert_close(
        match_images(*tensors, 2, matching), match_images(*tensors, 2, matching, backend="reference")
    )


def set_inputs(b: int, n: int, c: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    g = torch.Generator().manual_seed(n)
    embedding, values = (torch.randn(b, n, c, generator=g, dtype=dtype) for _ in range(2))
    return [embedding, values, *(torch.rand(b, n, generator=g, dtype=dtype) + 0.5 for _ in range(2))]


@pytest.mark.parametrize("distance", ["squared", "euclidean"])
@pytest.mark.parametrize("include_self", [False, True])
def test_sets_equal_the_literal_differences(distance: str, include_self: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    whole = all_pairs.CHUNK
    for backend, chunk in (("reference", whole), ("auto", whole), ("tiled", whole), ("auto", 500), ("tiled", 500)):
        monkeypatch.setattr(all_pairs, "CHUNK", chunk)
        leaves = [t.requires_grad_() for t in set_inputs(2, 23, 3)]
        out = match_sets(*leaves, 4, distance=distance, include_self=include_self, backend=backend)  # type: ignore[arg-type]
        (out * torch.sin(torch.arange(out.numel())).view_as(out)).sum().backward()
        results.append([out, *(t.grad for t in leaves)])
    for other in results[1:]:
        for a, b in zip(other, results[0], strict=True):
            torch.testing.assert_close(a, b, atol=1e-6 if include_self and distance == "euclidean" else 1e-9, rtol=1e-7)


def test_sets_in_chunks_without_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = set_inputs(2, 23, 3)
    whole = match_sets(*tensors, 4)
    monkeypatch.setattr(all_pairs, "CHUNK", 3000)  # two queries at a time, the last one alone
    torch.testing.assert_close(match_sets(*tensors, 4), whole)


@pytest.mark.parametrize("rule", ["concrete", "stochastic"])
def test_sets_in_chunks_with_a_generator(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours are linear in the values, so <gradient, values> is the result; with other noise it is not."""
    monkeypatch.setattr(all_pairs, "CHUNK", 3000)
    embedding, values, scale, strength = set_inputs(2, 23, 3)
    values.requires_grad_()
    generator = torch.Generator().manual_seed(0)
    out = match_sets(embedding, values, scale, strength, 4, rule=rule, generator=generator)  # type: ignore[arg-type]
    state = generator.get_state()
    result = (out * torch.sin(torch.arange(out.numel())).view_as(out)).sum()
    for _ in range(2):
        (grad,) = torch.autograd.grad(result, values, retain_graph=True)
        torch.testing.assert_close((grad * values).sum(), result)
    assert torch.equal(generator.get_state(), state)


def test_sets_in_chunks_under_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = set_inputs(2, 23, 3)
    masks = torch.arange(23) < torch.tensor([[[23], [17]], [[9], [20]]])  # (2, 2, 23)

    def loss(embedding: Tensor, mask: Tensor | None = None) -> Tensor:
        return match_sets(embedding, *tensors[1:], 4, mask=mask).square().sum()

    expected = torch.func.grad(loss)(tensors[0])
    mapped = torch.stack([loss(tensors[0], mask) for mask in masks])
    monkeypatch.setattr(all_pairs, "CHUNK", 3000)
    torch.testing.assert_close(torch.func.grad(loss)(tensors[0]), expected)
    torch.testing.assert_close(torch.vmap(loss, in_dims=(None, 0))(tensors[0], masks), mapped)


def test_sets_of_unequal_size() -> None:
    tensors = set_inputs(2, 20, 3)
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[1, 13:] = False
    tensors[0][1, 13:] = float("nan")
    tensors[1][1, 13:] = float("nan")
    padded = match_sets(*tensors, 4, mask=mask)
    short = match_sets(*(t[1:, :13] for t in tensors), 4)
    torch.testing.assert_close(padded[1:, :13], short)
    assert (padded[1, 13:] == 0).all()
    torch.testing.assert_close(padded[:1], match_sets(*(t[:1] for t in tensors), 4))


def test_sets_refuse_with_a_reason() -> None:
    tensors = set_inputs(1, 5, 2)
    with pytest.raises(ValueError, match=r"smallest set \(5 items\) has only 4 candidates"):
        match_sets(*tensors, 5)
    with pytest.raises(ValueError, match="mask: expected a boolean tensor"):
        match_sets(*tensors, 2, mask=torch.ones(1, 5))
    with pytest.raises(
        ValueError, match="backend: expected 'auto' or one of 'reference', 'tiled', 'native', 'triton', got 'dense'"
    ):
        match_sets(*tensors, 2, backend="dense")


def test_all_backends_are_tested() -> None:
    assert set(BACKENDS) == {"reference", "dense", "tiled", "native", "triton"}
