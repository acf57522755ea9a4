"""Windows that reach into neighbouring frames: the reference against loops, the others against the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from n3net import select
from n3net.neighbors import Matching, tiled
from n3net.neighbors.grid import Time
from n3net.nn import N3Block2d, N3Options
from problems import match_images


def video(matching: Matching, b: int, t: int, h: int, w: int, e: int = 2, c: int = 2) -> list[Tensor]:
    """Embedding, values, scale and strength, frames one behind the other in the batch."""
    g = torch.Generator().manual_seed(0)
    grid = matching.grid(h, w)
    images = [torch.rand(b * t, n, h, w, generator=g, dtype=torch.float64) for n in (e, c)]
    queries = (b * t, grid.query_rows, grid.query_cols)
    return [*images, *(torch.rand(queries, generator=g, dtype=torch.float64) * 2 + 0.5 for _ in range(2))]


@pytest.mark.parametrize(("t", "border"), [(4, "shift"), (4, "clip"), (2, "shift"), (1, "shift")])
def test_reference_is_the_definition_by_hand(t: int, border: str) -> None:
    """Pixels as patches, 3 x 3 windows in three frames; one query after the other."""
    h, w, k = 4, 5, 3
    matching, time = Matching(1, 1, 3, border), Time(t, 1, border)
    embedding, values, scale, _ = video(matching, 2, t, h, w)
    out = match_images(embedding, values, scale, scale, k, matching, "reference", time=time)
    for b in range(2):
        for f in range(t):
            for y in range(h):
                for x in range(w):
                    first = [f - 1, y - 1, x - 1]
                    if border == "shift":
                        first = [min(max(s, 0), max(n - 3, 0)) for s, n in zip(first, (t, h, w), strict=True)]
                    own = [
                        (b * t + i, r, s)
                        for i in range(max(first[0], 0), min(first[0] + 3, t))
                        for r in range(max(first[1], 0), min(first[1] + 3, h))
                        for s in range(max(first[2], 0), min(first[2] + 3, w))
                        if (i, r, s) != (f, y, x)
                    ]
                    e, v = (torch.stack([z[i, :, r, s] for i, r, s in own]) for z in (embedding, values))
                    d = (e - embedding[b * t + f, :, y, x]).square().sum(-1)
                    expected = select(d, k, 1 / scale[b * t + f, y, x]) @ v
                    torch.testing.assert_close(out[b * t + f, :, y, x], expected.flatten())


@pytest.mark.parametrize("backend", ["dense", "tiled"])
@pytest.mark.parametrize("sizes", [(4, 2, 3, "shift"), (4, 2, 4, "clip"), (5, 2, 3, "shift")])
@pytest.mark.parametrize("reach", [1, 2])
def test_equals_the_reference(
    backend: str, sizes: tuple[int, int, int, str], reach: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matching = Matching(*sizes)
    tensors = video(matching, 2, 4, 11, 13)
    options = {"time": Time(4, reach, sizes[3]), "distance": "euclidean", "beside": True}
    monkeypatch.setattr(tiled, "CHUNK", 100)
    results = []
    for name in ("reference", backend):
        leaves = [x.clone().requires_grad_() for x in tensors]
        out = match_images(*leaves, 3, matching, name, **options)
        weight = torch.sin(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
        with torch.no_grad():
            plain = match_images(*leaves, 3, matching, name, **options)
        results.append([out, plain, *torch.autograd.grad((out * weight).sum(), leaves)])
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-8)


def test_what_is_no_number_stays_in_its_frame_and_the_windows_that_see_nothing_else() -> None:
    matching = Matching(4, 2, 3)
    tensors = video(matching, 1, 3, 8, 8)
    tensors[1][2, 0, 1, 1] = torch.nan
    out = match_images(*tensors, 3, matching, time=Time(3, 1))
    assert out[:2].isfinite().all()
    assert out[2, :, :4, :4].isnan().all()
    assert out[2, :, 4:, 4:].isfinite().all()


@pytest.mark.parametrize("options", ["paper", "reference-2018", N3Options(normalize="query")])
def test_block(options: str | N3Options) -> None:
    torch.manual_seed(0)
    block = N3Block2d(2, 2, 4, 2, 3, frames=1, features=4, options=options).double()
    still = N3Block2d(2, 2, 4, 2, 3, features=4, options=options).double()
    x = torch.rand(2, 3, 2, 12, 10, dtype=torch.float64, requires_grad=True)
    out = block(x)
    assert out.shape == (2, 3, 6, 12, 10)
    (grad,) = torch.autograd.grad(out[:, 1, 2:].square().sum(), x)
    assert all(grad[:, t].any() for t in range(3))
    block.eval(), still.eval()
    still.load_state_dict(block.state_dict())  # statistics have moved
    torch.testing.assert_close(block(x[:, :1]), still(x[:, 0])[:, None])  # a video of one frame
    with torch.no_grad():
        torch.testing.assert_close(block(x), block(x.detach().clone().requires_grad_()).detach())
        assert (block(x) - still(x.flatten(0, 1)).unflatten(0, (2, 3))).abs().max() > 1e-3


def test_refuses_with_a_reason() -> None:
    with pytest.raises(ValueError, match="frames: expected an integer of at least 0, got -1"):
        N3Block2d(2, frames=-1)
    block = N3Block2d(2, 2, 4, 2, 3, frames=1)
    with pytest.raises(ValueError, match=r"x: expected shape \(B, T, 2, H, W\), got \(1, 2, 9, 9\)"):
        block(torch.rand(1, 2, 9, 9))
    block = N3Block2d(2, 2, 4, 2, 3, frames=1, backend="native")
    with pytest.raises(ValueError, match="cannot run: its windows do not reach into other frames"):
        block(torch.rand(1, 2, 2, 9, 9))
    with pytest.raises(ValueError, match="no whole number of videos of 3 frames"):
        match_images(*video(Matching(4, 2, 3), 1, 4, 8, 8), 2, Matching(4, 2, 3), time=Time(3, 1))
