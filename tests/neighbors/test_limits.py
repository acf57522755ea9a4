"""Numbers that are none, or too large: every backend keeps what ``neighbors/limits.py`` says, forward and backward."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from n3net import kernel, select
from n3net.neighbors import Matching, limits
from n3net.nn import N3Block, N3Block2d
from problems import match_images, match_sets

HAS_KERNEL = kernel.instruction_set() is not None
NATIVE = pytest.param("native", marks=pytest.mark.skipif(not HAS_KERNEL, reason="no kernel built"))
BACKENDS = ["reference", "dense", "tiled", NATIVE]
NOT_NUMBERS = [math.nan, math.inf, -math.inf]
HUGE = [1e13, -1e15, 1e20, -1e25, 3e38, -3e38]
TINY = [1e-45, -1e-45, 1e-38, 1e-30]


def example(matching: Matching, b: int, e: int, c: int, h: int, w: int, seed: int, dtype: torch.dtype) -> list[Tensor]:
    """Embedding, values, scale and strength; distances are whole numbers, the last channel of the values is 1."""
    g = torch.Generator().manual_seed(seed)
    grid = matching.grid(h, w)
    per_patch = (b, grid.query_rows, grid.query_cols)
    embedding = torch.randint(-3, 4, (b, e, h, w), generator=g).to(dtype)
    values = torch.randn(b, c, h, w, generator=g, dtype=dtype)
    values[:, -1] = 1
    return [embedding, values, torch.full(per_patch, 0.02, dtype=dtype), torch.ones(per_patch, dtype=dtype)]


def run(backend: str, tensors: list[Tensor], k: int, matching: Matching, **options: Any) -> list[Tensor]:
    """Result, result without gradients, and the gradients of a loss that leaves out what is NaN."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    out = match_images(*leaves, k, matching, backend=backend, **options)  # type: ignore[arg-type]
    weight = torch.sin(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    (out * weight).nansum().backward()
    with torch.no_grad():
        fused = match_images(*tensors, k, matching, backend=backend, **options)  # type: ignore[arg-type]
    return [out.detach(), fused, *(t.grad if t.grad is not None else torch.zeros_like(t) for t in leaves)]


def spoiled(embedding: Tensor, values: Tensor, matching: Matching) -> Tensor:
    """Pixels of patches that hold what is no number, or choose from such patches only, by plain loops: (B, H, W)."""
    b, _, h, w = values.shape
    left, right, top, bottom = matching.padding(h, w)
    bad = ~(embedding.isfinite().all(1) & values.isfinite().all(1))
    bad = torch.nn.functional.pad(bad, (left, right, top, bottom))
    out = torch.zeros_like(bad)
    grid, size, step = matching.grid(h, w), matching.patch_size, matching.stride
    candidates = grid.candidates(bad.device).unflatten(-1, (grid.window, grid.window))
    first = [grid.start(q, bad.device).tolist() for q in (grid.query_rows, grid.query_cols)]
    for i in range(b):
        holds = {
            (y, x): bool(bad[i, y * step : y * step + size, x * step : x * step + size].any())
            for y in range(grid.query_rows)
            for x in range(grid.query_cols)
        }
        for (y, x), lost in holds.items():
            slots = [(first[0][y] + int(u), first[1][x] + int(v)) for u, v in candidates[y, x].nonzero()]
            if lost or all(holds[slot] for slot in slots):
                out[i, y * step : y * step + size, x * step : x * step + size] = True
    return out[:, top : top + h, left : left + w]


def assert_promises(results: list[Tensor], tensors: list[Tensor], k: int, matching: Matching) -> None:
    """NaN where a patch holds one and nowhere else, neighbours within the values, weights that sum to 1."""
    embedding, values, *_ = tensors
    bad = spoiled(embedding, values, matching)
    c = values.shape[1]
    whole = values.masked_fill(~values.isfinite(), 0)
    for out in results[:2]:
        assert torch.equal(out.isnan(), bad[:, None].expand_as(out))
        kept = out.movedim(1, -1)[~bad]  # (pixels, k C)
        if len(kept):
            if not any(matching.padding(*values.shape[2:])):
                assert (kept[:, c - 1 :: c] - 1).abs().max() < 1e-5
            assert kept.max() <= max(whole.max(), 1) + 1e-5
            assert kept.min() >= min(whole.min(), 0) - 1e-5
    for name, g in zip(("embedding", "values", "scale", "strength"), results[2:], strict=True):
        assert g.isfinite().all(), name


@st.composite
def cases(draw: st.DrawFn, dtype: torch.dtype) -> tuple[list[Tensor], int, Matching]:
    patch = draw(st.integers(1, 6))
    matching = Matching(
        patch, draw(st.integers(1, patch)), draw(st.integers(3, 9)), draw(st.sampled_from(["shift", "clip"]))
    )
    odd = draw(st.sampled_from([0, 0, 1]))  # whether zeros complete the patches
    h, w = (patch + matching.stride * draw(st.integers(2, 6)) - odd for _ in range(2))
    fewest = matching.grid(h, w).fewest_candidates()
    k = draw(st.integers(1, min(9, fewest)))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 3)), h, w)
    return example(matching, *shape, draw(st.integers(0, 99)), dtype), k, matching


def put(data: st.DataObject, image: Tensor, numbers: list[float], most: int = 3) -> None:
    """A few of these numbers somewhere into an image, in place."""
    for _ in range(data.draw(st.integers(0, most))):
        place = tuple(data.draw(st.integers(0, side - 1)) for side in image.shape)
        image[place] = data.draw(st.sampled_from(numbers))


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_numbers_give_a_choice(backend: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    tensors, k, matching = data.draw(cases(dtype))
    put(data, tensors[1], NOT_NUMBERS)
    if data.draw(st.booleans(), "large distances"):
        put(data, tensors[0], NOT_NUMBERS + HUGE + TINY)
        tensors[0] *= data.draw(st.sampled_from([0.0, 1e-30, 1, 1e12, 1e18, 1e36]))
        small = [-1.0, 0.0, 1e-45, 1e-20]
        for t in tensors[2:]:
            put(data, t, small)
    else:
        put(data, tensors[0], NOT_NUMBERS + TINY)
        put(data, tensors[2], [-1e38, -1.0, 0.0, 1e-20, 1e3, 1e10, 1e20, 1e38, math.inf, -math.inf])
        put(data, tensors[3], [0.0, 1e-45, 1e-20, 1e3, 1e10, 1e20, 1e38, math.inf])
    options = {
        "distance": data.draw(st.sampled_from(["squared", "euclidean"])),
        "rule": data.draw(st.sampled_from(["continuous", "hard"])),
    }
    assert_promises(run(backend, tensors, k, matching, **options), tensors, k, matching)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_equals_the_reference_where_some_numbers_are_none(backend: str, data: st.DataObject) -> None:
    """Forward and backward, against the reference in float64."""
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    tensors, k, matching = data.draw(cases(dtype))
    for image in tensors[:2]:
        put(data, image, NOT_NUMBERS)
    for per_patch in tensors[2:]:
        put(data, per_patch, [math.nan, 0.0, 0.3], most=2)
    distance = data.draw(st.sampled_from(["squared", "euclidean"]))
    ours = run(backend, tensors, k, matching, distance=distance)
    judge = run("reference", [t.double() for t in tensors], k, matching, distance=distance)
    for name, a, b in zip(("out", "fused", "embedding", "values", "scale", "strength"), ours, judge, strict=True):
        assert torch.equal(a.isnan(), b.isnan()), name
        tolerance = (1e-9 if dtype == torch.float64 else 1e-3) * float(b.nan_to_num().abs().max().clamp(min=1))
        torch.testing.assert_close(a.double(), b, rtol=0, atol=tolerance, equal_nan=True, msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scale", [1e10, 1e38, math.inf])
def test_a_scale_beyond_all_numbers_takes_the_nearest(backend: str, scale: float) -> None:
    """Temperature 0: what the rule "hard" gives. Distances differ by more than rounding."""
    matching = Matching(2, 2, 5)
    g = torch.Generator().manual_seed(3)
    embedding = (torch.rand(1, 1, 6, 8, generator=g) * 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    values = torch.randn(1, 2, 12, 16, generator=g)
    per_patch = torch.ones(1, 6, 8)
    tensors = [embedding, values, per_patch * scale, per_patch * scale]
    for result in run(backend, tensors, 3, matching)[:2]:
        hard = match_images(embedding, values, per_patch, per_patch, 3, matching, rule="hard", backend="reference")
        torch.testing.assert_close(result, hard)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("e", "s"), [(1.0, 1e38), (1e20, 1.0), (1e20, 1e38), (3e38, 1e-30)])
def test_a_large_image_of_large_numbers(backend: str, e: float, s: float) -> None:
    """More than one tile; with gradients and without."""
    matching = Matching()
    side = 200 if backend == "native" else 60
    tensors = example(matching, 1, 2, 2, side, side, 0, torch.float32)
    tensors[0] *= e
    tensors[2] = torch.full_like(tensors[2], s)
    assert_promises(run(backend, tensors, 7, matching), tensors, 7, matching)


@pytest.mark.parametrize("backend", ["tiled", NATIVE])
def test_one_pixel_that_is_no_number_spoils_its_patches_only(backend: str) -> None:
    matching = Matching()
    tensors = example(matching, 1, 2, 2, 150, 150, 0, torch.float32)
    clean = match_images(*tensors, 7, matching, backend=backend)  # type: ignore[arg-type]
    for i, channel in ((0, 0), (1, 1)):
        one = [t.clone() for t in tensors]
        one[i][0, channel, 31, 33] = torch.nan
        out = match_images(*one, 7, matching, backend=backend)  # type: ignore[arg-type]
        rows, cols = slice(25, 40), slice(25, 40)  # four patches of 10 x 10 every 5 pixels have it
        assert out[..., rows, cols].isnan().all()
        assert int(out[0, 0].isnan().sum()) == 15 * 15
        far = out[..., 150 - 5 :, :]  # whose windows do not reach it
        torch.testing.assert_close(far, clean[..., 150 - 5 :, :], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rule", ["continuous", "hard"])
def test_fewer_candidates_than_neighbours(backend: str, rule: str) -> None:
    """Five pixels in a row, of which two or four are no numbers."""
    matching = Matching(1, 1, 9)
    embedding = torch.tensor([0.0, 1.0, math.nan, 10.0, math.inf])[None, None, None]
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])[None, None, None]
    ones = torch.ones(1, 1, 5)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            out = match_images(embedding, values, 100 * ones, 100 * ones, 3, matching, rule=rule, backend=backend)
        first = out[0, :, 0]  # (k, 5)
        assert first[:, [2, 4]].isnan().all()
        assert first[:2, [0, 1, 3]].tolist() == [[2, 1, 2], [4, 4, 1]]  # the nearest, then the other
        if rule == "hard":
            assert first[2, [0, 1, 3]].tolist() == [2, 1, 2]  # and again
        else:
            assert ((first[2, [0, 1, 3]] >= 1) & (first[2, [0, 1, 3]] <= 4)).all()
        embedding[..., 1] = math.nan
        embedding[..., 3] = math.nan
        with torch.set_grad_enabled(grad):
            out = match_images(embedding, values, ones, ones, 3, matching, rule=rule, backend=backend)
        assert out.isnan().all()  # one pixel is left, and nobody for it to choose
        embedding[..., 1], embedding[..., 3] = 1.0, 10.0


@pytest.mark.parametrize("rule", ["stochastic", "concrete"])
def test_rules_that_draw(rule: str) -> None:
    matching = Matching(2, 2, 5)
    tensors = example(matching, 1, 1, 2, 10, 12, 0, torch.float32)
    tensors[0][0, 0, 4, 4] = torch.nan
    leaves = [t.requires_grad_() for t in tensors]
    annealing = torch.full((1, 5, 6), 0.5)
    annealing[0, 0, 0] = torch.nan if rule == "concrete" else 0.5
    out = match_images(*leaves, 3, matching, rule=rule, annealing=annealing, generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert int(out[0, 0].isnan().sum()) == (8 if rule == "concrete" else 4)
    out.nansum().backward()
    assert all(t.grad is None or t.grad.isfinite().all() for t in leaves)


@pytest.mark.parametrize("backend", BACKENDS)
def test_looking_first_changes_nothing(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled programs cannot look whether all numbers are finite, and do the same without."""
    matching = Matching(4, 2, 5)
    tensors = example(matching, 1, 2, 2, 16, 18, 0, torch.float64)
    tensors[1][0, 0, 3, 3] = torch.nan
    sets = set_example()
    expected, of_sets = run(backend, tensors, 3, matching), match_sets(*sets, 3)
    monkeypatch.setattr(limits, "surely_finite", lambda *_, **__: False)
    monkeypatch.setattr("n3net.neighbors.sets.surely_finite", lambda *_, **__: False)
    for a, b in zip(run(backend, tensors, 3, matching), expected, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(match_sets(*sets, 3), of_sets, rtol=0, atol=0)


@pytest.mark.parametrize("normalize", [False, True, "query"])
def test_a_block_with_one_pixel_that_is_no_number(normalize: bool | str) -> None:
    """In training and in evaluation: NaN near the pixel, finite gradients, and statistics that stay finite."""
    from n3net.nn import N3Options

    torch.manual_seed(0)
    options = N3Options(normalize=normalize)  # type: ignore[arg-type]
    block = N3Block2d(2, k=3, patch_size=4, stride=2, window=7, options=options, embedding=None)
    assert block.temperature is not None
    block.temperature.eval()  # a batch norm in training spreads the NaN over the whole batch
    x = torch.rand(1, 2, 30, 32)
    x[0, 0, 15, 15] = torch.nan
    for learning in (True, False):
        block.train(learning).temperature.eval()  # type: ignore[union-attr]
        with torch.set_grad_enabled(learning):
            out = block(x, match_on=x)
        bad = out[0, 2:].isnan().any(0)
        assert bad[15, 15]
        assert not bad[:8].any()
        assert not bad[24:].any()
        if learning:
            out[:, 2:].nansum().backward()
            if block.normalization is not None:
                assert block.normalization.weight.grad is not None
                assert block.normalization.weight.grad.isfinite().all()
        w, _ = block.weights(x, match_on=x)
        assert 0 < w.isnan().float().mean() < 0.2
    for name, t in block.state_dict().items():
        assert t.isfinite().all(), name


# Sets.


def set_example(n: int = 9, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    g = torch.Generator().manual_seed(n)
    embedding, values = (torch.randn(2, n, 3, generator=g, dtype=dtype) for _ in range(2))
    return [embedding, values, torch.ones(2, n, dtype=dtype), torch.ones(2, n, dtype=dtype)]


WAYS: list[dict[str, Any]] = [
    {"backend": "reference"},
    {"backend": "tiled"},
    {"backend": "auto"},
    {"backend": "auto", "distance": "euclidean"},
    {"backend": "tiled", "rule": "hard"},
]


def run_sets(tensors: list[Tensor], k: int, **options: Any) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in tensors]
    out = match_sets(*leaves, k, **options)  # type: ignore[arg-type]
    out.nansum().backward()
    return [out.detach(), *(t.grad if t.grad is not None else torch.zeros_like(t) for t in leaves)]


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("include_self", [False, True])
def test_items_that_are_no_numbers_might_as_well_be_masked(options: dict[str, Any], include_self: bool) -> None:
    """But for their own neighbours, which are NaN and not 0."""
    tensors = set_example()
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, [1, 4]] = mask[1, 8] = False
    tensors[0][0, 1, 2] = tensors[1][0, 4, 0] = math.nan
    tensors[0][1, 8] = -math.inf
    ours = run_sets(tensors, 3, include_self=include_self, **options)
    judge = run_sets(tensors, 3, include_self=include_self, mask=mask, **options)
    assert torch.equal(ours[0].isnan(), ~mask[..., None, None].expand_as(ours[0]))
    torch.testing.assert_close(ours[0][mask], judge[0][mask])
    for a, b in zip(ours[1:], judge[1:], strict=True):
        assert a.isfinite().all()
        torch.testing.assert_close(a, b)
    tensors[2][0, 0] = tensors[3][0, 2] = math.nan  # a scale and a strength
    ours = run_sets(tensors, 3, include_self=include_self, **options)
    mask[0, [0, 2]] = False
    assert torch.equal(ours[0].isnan(), ~mask[..., None, None].expand_as(ours[0]))
    assert all(g.isfinite().all() for g in ours[1:])


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_sets_with_too_few_numbers(options: dict[str, Any]) -> None:
    tensors = set_example(4)
    tensors[0][0, :2] = math.nan  # two are left, each the other's only candidate
    tensors[0][1, :3] = math.nan  # one is left, and nobody for it
    out, *grads = run_sets(tensors, 3, **options)
    assert out[0, :2].isnan().all()
    torch.testing.assert_close(out[0, 2], tensors[1][0, 3].expand(3, 3))
    assert out[1].isnan().all()
    assert all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize("options", WAYS[:4], ids=str)
@pytest.mark.parametrize(("e", "s"), [(1.0, math.inf), (1e20, 1.0), (1e38, 1e38), (1.0, -1e38), (0.0, 1.0)])
def test_sets_of_large_numbers(options: dict[str, Any], e: float, s: float) -> None:
    embedding, values, ones, _ = set_example(dtype=torch.float32)
    values[..., -1] = 1
    out, *grads = run_sets([embedding * e, values, ones * s, ones], 4, **options)
    torch.testing.assert_close(out[..., -1], torch.ones(2, 9, 4))
    assert (out.amax((1, 2)) <= values.amax(1) + 1e-5).all()
    assert (out.amin((1, 2)) >= values.amin(1) - 1e-5).all()
    assert all(g.isfinite().all() for g in grads)


def test_a_block_of_sets() -> None:
    torch.manual_seed(0)
    block = N3Block(3, k=2)
    x = torch.rand(1, 8, 3)
    x[0, 5] = math.nan
    out = block(x)
    assert out[0, 5].isnan().all()
    assert out[0, [0, 1, 2, 3, 4, 6, 7]].isfinite().all()


def test_select_at_the_smallest_temperature() -> None:
    d = torch.tensor([3.0, 1.0, 2.0, 1e6], requires_grad=True)
    w = select(d, 3, 1e-44)
    assert w.argmax(-1).tolist() == [1, 2, 0]
    assert w.sum().item() == 3
    w[1, 2].backward()
    assert d.grad is not None
    assert d.grad.isfinite().all()
