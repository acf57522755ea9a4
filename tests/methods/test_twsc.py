"""TWSC against loops with a full singular value decomposition of each group."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from n3net.evaluation.metrics import psnr
from n3net.methods import twsc as module
from n3net.methods.twsc import SEARCH, estimate_noise, shrink, twsc
from n3net.neighbors.similar import similar_patches
from n3net.restoration.photographs import check_model, denoise_photograph, photo_denoiser_for


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def literal_group(patches: Tensor, level: Tensor) -> Tensor:
    """(n, D), (n,): the decomposition itself, patches as columns."""
    mean = patches.mean(0)
    d, s, _ = np.linalg.svd((patches - mean).T.numpy(), full_matrices=False)
    clean = np.sqrt(np.maximum(s**2 - len(patches) * float(level[0]) ** 2, 0))
    out = []
    for patch, noise in zip(patches - mean, level.tolist(), strict=True):
        total = np.zeros(len(patch))
        for k in range(len(s)):
            b = d[:, k] @ patch.numpy()
            if clean[k] > 0:
                total += d[:, k] * np.sign(b) * max(abs(b) - noise**2 / clean[k], 0)
        out.append(torch.from_numpy(total) + mean)
    return torch.stack(out)


def test_groups() -> None:
    patches = seeded(4, 20, 12) * torch.tensor([0.01, 0.2, 1.0, 3.0], dtype=torch.float64)[:, None, None]
    patches += seeded(4, 20, 1) * seeded(4, 1, 12)
    level = 0.2 + seeded(4, 20).abs() / 5
    level[0] = 50.0  # all below the noise
    out = shrink(patches, level)
    for i in range(4):
        torch.testing.assert_close(out[i], literal_group(patches[i], level[i]), rtol=0, atol=1e-9)
    torch.testing.assert_close(out[0], patches[0].mean(0).expand(20, -1))


def test_a_round() -> None:
    image, noise = seeded(3, 26, 31), 0.3 + seeded(21, 26).abs()
    index, _ = similar_patches(image, SEARCH)
    total, weights = torch.zeros_like(image), torch.zeros_like(image)
    p = SEARCH.patch
    for group in index.flatten(0, 1).tolist():
        places = [divmod(i, 31) for i in group]
        patches = torch.stack([image[:, y : y + p, x : x + p].flatten() for y, x in places])
        level = torch.stack([noise[y, x] for y, x in places])
        for (y, x), patch, s in zip(places, shrink(patches[None], level[None])[0], level, strict=True):
            total[:, y : y + p, x : x + p] += patch.view(3, p, p) / s
            weights[:, y : y + p, x : x + p] += 1 / s
    torch.testing.assert_close(module._filter(image, index, noise), total / weights, rtol=0, atol=1e-6)


def test_noise_estimate() -> None:
    clean = torch.linspace(0.2, 0.8, 90).expand(3, 80, 90)
    noise = seeded(3, 80, 90) * torch.tensor([4.0, 8.0, 6.0], dtype=torch.float64)[:, None, None] / 255
    expected = ((16 + 64 + 36) / 3) ** 0.5
    assert estimate_noise(clean + noise) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("size", [(40, 50), (9, 7)])
def test_photographs(size: tuple[int, int]) -> None:
    clean = torch.linspace(0.2, 0.8, size[1]).expand(3, *size)
    noisy = (clean + seeded(3, *size) * 6 / 255).float()
    told: list[float] = []
    out = twsc(noisy, progress=told.append)
    assert out.shape == noisy.shape
    if size == (40, 50):  # the other one is little but its repeated border
        assert psnr(out, clean.float()) > psnr(noisy, clean.float()) + 4
    assert told[-1] == 1
    assert len(told) == module.ROUNDS
    model = photo_denoiser_for("twsc", gray=False)
    check_model(model)
    pixels = denoise_photograph(noisy.permute(1, 2, 0).numpy(), "twsc").pixels
    torch.testing.assert_close(torch.from_numpy(pixels).permute(2, 0, 1), out, atol=1e-6, rtol=0)
