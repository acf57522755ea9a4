"""BM3D against loops that say what it does, and its parts by the kernel and by PyTorch against each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import n3net
from n3net import kernel
from n3net.errors import UserError
from n3net.evaluation.gaussian import noise
from n3net.evaluation.metrics import psnr
from n3net.methods import bm3d as module
from n3net.methods import collaborative
from n3net.methods.bm3d import bm3d
from n3net.methods.registry import METHODS, find
from n3net.methods.transforms import dct, haar, kaiser, spline_wavelet
from n3net.neighbors import similar
from n3net.neighbors.similar import Search, similar_patches

SHARED = Path(__file__).parents[3] / "shared"
needs_kernel = pytest.mark.skipif(kernel.instruction_set() is None, reason="the compiled kernel is not built")


def picture(*shape: int, seed: int = 0) -> Tensor:
    """Noise on stripes."""
    g = torch.Generator().manual_seed(seed)
    stripes = torch.arange(shape[-1], dtype=torch.float64).div(3).sin().mul(60)
    return stripes + 20 * torch.randn(shape, generator=g, dtype=torch.float64)


def literal_groups(image: Tensor, search: Search) -> tuple[Tensor, Tensor]:
    """One patch after the other, all pixels of its window."""
    p, r = search.patch, search.radius
    height, width = image.shape[1:]
    ys, xs = ([min(i, side - p) for i in range(0, side - p + search.step, search.step)] for side in (height, width))
    index = torch.full((len(ys), len(xs), search.count), -1, dtype=torch.int32)
    distance = torch.full(index.shape, torch.inf, dtype=image.dtype)
    for a, y in enumerate(ys):
        for b, x in enumerate(xs):
            found = [(-1.0, y * width + x)]
            for v in range(max(0, y - r), min(height - p, y + r) + 1):
                for u in range(max(0, x - r), min(width - p, x + r) + 1):
                    difference = image[:, y : y + p, x : x + p] - image[:, v : v + p, u : u + p]
                    d = float(difference.square().mean())
                    if (v, u) != (y, x) and d <= search.farthest:
                        found.append((d, v * width + u))
            for i, (d, place) in enumerate(sorted(found)[: search.count]):
                index[a, b, i], distance[a, b, i] = place, max(d, 0)
    return index, distance


@pytest.mark.parametrize(
    ("channels", "size", "search"),
    [
        (1, (21, 26), Search(8, 3, 6, 5)),
        (3, (13, 17), Search(4, 2, 20, 9)),
        (2, (12, 15), Search(5, 4, 3, 70)),  # more members than patches
        (1, (16, 14), Search(3, 3, 4, 8, 500.0)),  # some are too far away
        (1, (8, 8), Search(8, 3, 19, 4)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_groups(channels: int, size: tuple[int, int], search: Search, dtype: torch.dtype) -> None:
    image = picture(channels, *size).to(dtype)
    index, distance = literal_groups(image.double(), search)
    for found in (similar_patches(image, search), similar.by_torch(image, search)):
        assert torch.equal(found[0], index)
        torch.testing.assert_close(found[1].double(), distance, rtol=1e-4, atol=1e-3)


def test_of_equals_the_first_is_taken() -> None:
    index, _ = similar_patches(torch.zeros(1, 9, 9), Search(4, 5, 9, 3))
    assert index[-1, -1].tolist() == [5 * 9 + 5, 0, 1]
    assert torch.equal(similar.by_torch(torch.zeros(1, 9, 9), Search(4, 5, 9, 3))[0], index)


def literal_filter(
    noisy: Tensor, index: Tensor, level: Tensor, matrix: Tensor, window: Tensor, threshold: float, guide: Tensor | None
) -> Tensor:
    """One group after the other."""
    p, width = len(matrix), noisy.shape[2]
    total, weights = torch.zeros_like(noisy), torch.zeros_like(noisy)
    back = torch.linalg.inv(matrix)
    for c, image in enumerate(noisy):
        for group, sigma in zip(index.flatten(0, 1), level[c].flatten(), strict=True):
            places = [divmod(int(i), width) for i in group if i >= 0]
            places = places[: 2 ** int(np.log2(len(places)))]
            along = haar(len(places))

            def spectrum(image: Tensor, places: list[tuple[int, int]] = places, along: Tensor = along) -> Tensor:
                patches = torch.stack([matrix @ image[y : y + p, x : x + p] @ matrix.T for y, x in places])
                return torch.tensordot(along, patches, 1)

            if guide is None:
                share = (spectrum(image).abs() > threshold * sigma).double()
                weight = 1 / (sigma**2 * max(1, float(share.sum())))
            else:
                power = spectrum(guide[c]) ** 2
                share = power / (power + sigma**2)
                weight = 1 / (sigma**2 * share.square().sum())
            filtered = torch.tensordot(along.T, spectrum(image) * share, 1)
            for (y, x), patch in zip(places, filtered, strict=True):
                total[c, y : y + p, x : x + p] += weight * window * (back @ patch @ back.T)
                weights[c, y : y + p, x : x + p] += weight * window
    return total / weights


@pytest.mark.parametrize("wiener", [False, True])
@pytest.mark.parametrize(("side", "matrix"), [(8, spline_wavelet), (7, dct), (11, dct)])
def test_filter(side: int, matrix: object, wiener: bool) -> None:
    search = Search(side, 3, 5, 8)
    noisy, guide = picture(2, 24, 29), picture(2, 24, 29, seed=1)
    index, _ = similar_patches(noisy[:1], search)
    level = torch.linspace(5, 30, 2 * index[..., 0].numel(), dtype=torch.float64).reshape(2, *index.shape[:2])
    there = matrix(side)  # type: ignore[operator]
    settings = {"threshold": 2.7, "guide": guide if wiener else None}
    expected = literal_filter(noisy, index, level, there, kaiser(side, 2.0), **settings)  # type: ignore[arg-type]
    both = (there, torch.linalg.inv(there))
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 0.02)):
        given = [t.to(dtype) for t in (noisy, level)]
        cast = {**settings, "guide": guide.to(dtype) if wiener else None}
        for call, more in ((collaborative.collaborate, {"band": 24}), (collaborative.by_torch, {})):
            out = call(given[0], index, given[1], search, both, kaiser(side, 2.0), **cast, **more)  # type: ignore[operator]
            assert (out.double() - expected).abs().max() < tolerance


def test_transforms() -> None:
    for matrix in (dct(8), haar(16), dct(11)):
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(len(matrix), dtype=torch.float64))
    wavelet = spline_wavelet(8)
    torch.testing.assert_close(wavelet.norm(dim=1), torch.ones(8, dtype=torch.float64))
    torch.testing.assert_close(wavelet[0], torch.full((8,), 8**-0.5, dtype=torch.float64))
    assert torch.linalg.cond(wavelet) < 3
    constant = torch.zeros(8, dtype=torch.float64)
    constant[0] = 8**0.5
    torch.testing.assert_close(wavelet @ torch.ones(8, dtype=torch.float64), constant)


@pytest.mark.parametrize("channels", [1, 3])
def test_it_denoises(channels: int) -> None:
    clean = torch.linspace(0.1, 0.9, 60).expand(channels, 50, 60).clone()
    clean[..., 20:, 15:40] *= 0.4
    noisy = clean + noise(clean.shape, 25, 0)
    out = bm3d(noisy, 25)
    assert psnr(out, clean) > psnr(noisy, clean) + 10
    torch.testing.assert_close(bm3d(noisy, torch.full((50, 60), 25.0)), out)
    assert (bm3d(clean, 0.0) - clean).abs().max() < 1e-4


def test_weaker_noise_of_a_map_keeps_more() -> None:
    noisy = torch.rand(1, 40, 40, generator=torch.Generator().manual_seed(0))
    level = torch.full((40, 40), 60.0)
    level[:, 20:] = 1.0
    change = (bm3d(noisy, level) - noisy).abs().mean(1)[0]
    assert change[30:].mean() < 0.1 * change[:10].mean()


@pytest.mark.parametrize("size", [(1, 1), (7, 30), (8, 9)])
def test_small_images(size: tuple[int, int]) -> None:
    out = bm3d(torch.full((1, *size), 0.5), 25)
    assert (out - 0.5).abs().max() < 1e-3


def test_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = picture(1, 20, 24).float() / 255
    out = bm3d(noisy, 20)
    monkeypatch.setattr(kernel, "why_not", lambda values: "not built")
    torch.testing.assert_close(bm3d(noisy, 20), out, atol=1e-3, rtol=0)


def test_threads_and_tiles_change_nothing() -> None:
    noisy = picture(430, 40).float().numpy() / 255
    whole = n3net.denoise(noisy, 20, "bm3d")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 if threads == 1 else 1)
        assert np.array_equal(n3net.denoise(noisy, 20, "bm3d"), whole)
    finally:
        torch.set_num_threads(threads)
    seen: list[int] = []
    forward = module.BM3D.forward
    module.BM3D.forward = lambda self, x: seen.append(x.shape[2]) or forward(self, x)  # type: ignore[func-returns-value,method-assign]
    try:
        assert np.array_equal(n3net.denoise(noisy, 20, "bm3d", tile=60), whole)
    finally:
        module.BM3D.forward = forward  # type: ignore[method-assign]
    assert len(seen) > 4
    assert min(seen) < 430


@needs_kernel
def test_the_kernel_refuses_what_does_not_fit() -> None:
    search, image = Search(8, 3, 5, 4), torch.zeros(1, 20, 20)
    index, _ = similar_patches(image, search)
    level, matrix = torch.ones(1, *index.shape[:2]), dct(8)
    settings = (search, (matrix, matrix.T), kaiser(8, 2.0))
    with pytest.raises(ValueError, match="cannot compute"):
        collaborative.collaborate(image, index, level, *settings, band=9)  # bands that touch each other
    with pytest.raises(ValueError, match="numbers in a row"):
        collaborative.collaborate(image, index[1:], level, *settings, band=24)
    wild = torch.full_like(index, 2**31 - 1)
    assert torch.equal(collaborative.collaborate(image + 1, wild, level, *settings, band=24), image + 1)
    wild[..., 0] = 13 * 20  # does not fit below row 12
    assert torch.equal(collaborative.collaborate(image + 1, wild, level, *settings, band=24), image + 1)


def test_by_name() -> None:
    assert find("bm3d", "denoising", 3).channels == 3
    assert find("n3net", "denoising", 3) is None
    assert find(None, "denoising", 3) is None
    with pytest.raises(UserError, match="not for super-resolution"):
        find("bm3d", "super-resolution", 1)
    assert all(entry.summary and entry.paper for entry in METHODS.values())


@pytest.mark.skipif(not (SHARED / "data" / "Set12").is_dir(), reason="needs Set12 in ../shared/data")
def test_set12() -> None:
    """As published: 29.45 dB for the cameraman at σ = 25 (Zhang et al. 2017, Table 2)."""
    from n3net.evaluation.images import image_set

    clean = image_set(SHARED / "data" / "Set12").read(0, 1)
    assert psnr(bm3d(clean + noise(clean.shape, 25, 0), 25).clamp(0, 1), clean) > 29.3
