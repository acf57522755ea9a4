"""Numbers that are none, or too large: every backend keeps what ``matching/limits.py`` says, forward and backward."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from n3net import kernel
from n3net.matching import Matching, match_images

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
    """Pixels of patches that hold what is no number, or can choose from such patches only, by plain loops: (B, H, W)."""
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
