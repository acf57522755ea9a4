"""Parity with the program published in 2018: its weights and its outputs, to 1e-4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import n3net
from n3net.models import N3Net
from n3net.neighbors import Matching, reference, tiled
from n3net.neighbors.grid import crop, pad
from n3net.neighbors.problem import Choice, Windows

SHARED = Path(__file__).parents[3] / "shared"
pytestmark = pytest.mark.skipif(
    not (SHARED / "official").is_dir(), reason="the authors' weights and outputs are not beside this project"
)


def authors_net(sigma: int) -> N3Net:
    """The authors' weights under our names."""
    theirs: dict[str, Tensor] = torch.load(
        SHARED / "official" / f"gaussian_sigma{sigma}.t7", weights_only=True, map_location="cpu"
    )["net"]
    ours = {}
    for name, value in theirs.items():
        kind, index, part, *rest = name.split(".")
        if kind == "blocks":
            if part == "bn1":
                continue  # saved, but never applied
            layer = 2 + int(rest[0]) if part == "layer1" else {"conv1": 0, "conv2": 14}[part]
            ours[f"stages.{index}.layers.{layer}.{rest[-1]}"] = value
        elif part == "n3aggregation":
            if rest[-1] in ("weight", "running_var"):
                ours[f"blocks.{index}.normalization.{rest[-1]}"] = value.squeeze()
        else:
            net = {"embedcnn": "embedding", "tempcnn": "temperature"}[part]
            ours[f"blocks.{index}.{net}.{rest[0]}.{rest[1]}"] = value
    model = N3Net(options="reference-2018", first_norm=False).eval()
    missing = model.load_state_dict(ours, strict=False)
    assert not missing.unexpected_keys
    assert all(name.endswith("num_batches_tracked") for name in missing.missing_keys)
    return model


def test_selection_equals_the_authors() -> None:
    data = np.load(SHARED / "reference" / "official_selection.npz")
    temperature = torch.from_numpy(data["log_temperature"]).exp() * float(data["temp_bias"])
    weights = n3net.select(
        torch.from_numpy(-data["negated_distances"]), 5, temperature.squeeze(-1), update="untempered"
    )
    expected = torch.from_numpy(data["weights"]).transpose(-1, -2)  # (..., k, M)
    torch.testing.assert_close(weights, expected, atol=1e-5, rtol=0)


def arrays(sigma: int) -> dict[str, Tensor]:
    size = {25: "97x123", 50: "160x160"}[sigma]
    data = np.load(SHARED / "reference" / f"official_sigma{sigma}_{size}.npz")
    return {name: torch.from_numpy(data[name]) for name in data.files}


@pytest.mark.parametrize("sigma", [25, 50])
@pytest.mark.parametrize("backend", ["reference", "tiled", "native"])
def test_network_equals_the_authors(sigma: int, backend: str) -> None:
    data, model = arrays(sigma), authors_net(sigma)
    for block in model.blocks:
        block.backend = backend
    with torch.no_grad():
        denoised = model(data["noisy"][None, None])[0, 0]
    torch.testing.assert_close(denoised, data["denoised"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("backend", ["reference", "dense", "tiled", "native"])
def test_block_equals_the_authors(backend: str) -> None:
    data, block = arrays(50), authors_net(50).blocks[0]
    block.backend = backend
    with torch.no_grad():
        out = block(data["block1_in"][None])[0]
    torch.testing.assert_close(out, data["block1_out"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("backend", ["reference", "dense", "tiled", "native"])
def test_block_equals_the_authors_with_their_rounding(backend: str) -> None:
    """At sigma 25 the logits are 800 times the distances, and the authors' |a|² + |b|² - 2ab, in float32 with
    |a|² = 1.5, is off by a few 1e-7: up to 1.7e-4 in the output. With their formula in place of ours, all agrees."""
    data, block = arrays(25), authors_net(25).blocks[0]
    x, matching = data["block1_in"][None], Matching()
    pads, grid = matching.padding(97, 123), matching.grid(97, 123)
    patches = reference._patches(pad(data["block1_embedding"][None], pads), grid)  # (B, Q, D)
    index = reference.slots_of(grid, patches.device)  # (Q, M)
    squares = patches.square().sum(-1)
    products = (patches[:, index] @ patches[..., None]).squeeze(-1)  # (B, Q, M)
    d = squares[:, index] - 2 * products + squares[..., None]
    temperature = matching.at_patches(data["block1_log_temperature"][None], "mean").exp() * 0.1
    scale = block.normalization.constant().detach() / temperature
    logits = -scale[..., None] * d.unflatten(1, (grid.query_rows, grid.query_cols))
    choice = Choice(k=7, scale=scale, strength=torch.ones_like(scale))
    problem = Windows(embedding=pad(x, pads), values=pad(x, pads), choice=choice, grid=grid)
    sizes = [grid.rows, grid.cols, grid.cell, grid.patch, grid.window, 0]
    aggregate: dict[str, Any] = {
        "reference": lambda: reference.aggregate(logits, problem),
        "dense": lambda: tiled.aggregate(logits, problem, None),
        "tiled": lambda: tiled.aggregate(logits, problem, 7),
        "native": lambda: torch.ops.n3net.window_aggregate(logits, choice.strength, problem.values, sizes, 7, False),
    }
    out = aggregate[backend]()
    difference = crop(out, pads) - x.repeat(1, 7, 1, 1) - data["block1_out"][None, 8:]
    assert difference.abs().max() < 1e-4

    with torch.no_grad():
        ours = block(x)[0]
    error = (ours - data["block1_out"]).abs()
    assert error.mean() < 5e-6
    assert error.max() < 2e-4
