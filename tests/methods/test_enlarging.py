"""Methods for super-resolution: what they must keep, what they add, and their parts against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import n3net
from n3net.evaluation import superresolution
from n3net.evaluation.metrics import psnr
from n3net.imaging.resizing import resize_tensor
from n3net.methods import selfex as module
from n3net.methods.enlarging import back_project, bicubic
from n3net.methods.registry import METHODS
from n3net.methods.selfex import selfex
from n3net.methods.wsdsr import wsdsr

NAMES = [name for name, entry in METHODS.items() if entry.task == "super-resolution"]


def stripes(height: int = 64, width: int = 72) -> Tensor:
    """A picture with the same edges at many places and sizes, (1, H, W)."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return (((x + y // 2) // 8 % 2).float() * 0.5 + 0.2)[None]


@pytest.mark.parametrize("name", NAMES)
def test_edges_become_sharper(name: str) -> None:
    large = stripes(40, 44)
    small = bicubic(large, (20, 22))
    out = superresolution.upscaler(name).run(small, 2)
    assert out.shape == large.shape
    assert psnr(out, large) > psnr(bicubic(small, (40, 44)), large) + 1.5
    assert (bicubic(out, (20, 22)) - small).abs().mean() < 0.01
    torch.testing.assert_close(superresolution.upscaler(name).run(small, 2), out, rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("shape", "factor"), [((20, 17, 3), 1.5), ((9, 12), 3), ((3, 2), 2), ((10, 10), 1)])
def test_files_of_any_size_and_kind(name: str, shape: tuple[int, ...], factor: float) -> None:
    image = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    told: list[tuple[int, int]] = []
    out = n3net.upscale(image, factor, name, progress=lambda *done: told.append(done))
    assert out.shape == (math.ceil(shape[0] * factor), math.ceil(shape[1] * factor), *shape[2:])
    assert out.dtype == np.uint8
    assert all(done <= total for done, total in told)


def test_back_projection() -> None:
    small = torch.rand(1, 8, 9, generator=torch.Generator().manual_seed(0))
    large = torch.zeros(1, 16, 18)
    before = (resize_tensor(large, size=(8, 9)) - small).abs().max()
    after = (resize_tensor(back_project(large, small, 20), size=(8, 9)) - small).abs().max()
    assert after < 0.02 * before


def test_samples_are_bilinear() -> None:
    levels = [torch.rand(1, 6, 7), torch.rand(1, 5, 4), torch.rand(1, 3, 3)]
    pyramid = module._Pyramid.of(levels, 1.26)
    level, y, x = torch.tensor([0, 1]), torch.tensor([[0.4, 0.0], [0.9, 0.31]]), torch.tensor([[0.7, 0.0], [1.0, 0.5]])
    found = pyramid.sample(pyramid.high, level, y, x)
    for n in range(2):
        image = levels[n][0]
        for k in range(2):
            v, u = (
                min(max(float(p) * side - 0.5, 0), side - 1)
                for p, side in zip((y[n, k], x[n, k]), image.shape, strict=True)
            )
            a, b = int(v), int(u)
            c, d = min(a + 1, image.shape[0] - 1), min(b + 1, image.shape[1] - 1)
            s, t = v - a, u - b
            expected = (1 - s) * ((1 - t) * image[a, b] + t * image[a, d]) + s * (
                (1 - t) * image[c, b] + t * image[c, d]
            )
            assert float(found[n, k]) == pytest.approx(float(expected), abs=1e-5)


def test_the_search_never_gets_worse() -> None:
    levels = [bicubic(stripes(), (32, 36)), bicubic(stripes(), (25, 29)), bicubic(stripes(), (20, 23))]
    search = module._Search(bicubic(levels[0], (40, 45))[0], module._Pyramid.of(levels, 1.26), 1.26, torch.Generator())
    first = search.cost
    search.random()
    search.propagate()
    assert (search.cost <= first).all()
    assert search.cost.mean() < 0.7 * first.mean()
    torch.testing.assert_close(search.costs(search.best), search.cost)


@pytest.mark.parametrize("method", [wsdsr, selfex])
def test_flat_images_stay_flat(method: object) -> None:
    out = method(torch.full((1, 12, 14), 0.4), (24, 28), None)  # type: ignore[operator]
    assert (out - 0.4).abs().max() < 2e-3
