"""The backend ``triton``, for GPUs: queries with candidates in one kernel, and images as patches with such candidates.

Nobody has measured it on a GPU yet, so it is taken only when asked for by name.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from n3net.neighbors.candidates import usable
from n3net.neighbors.grid import col2im, im2col
from n3net.neighbors.problem import Sets, Windows
from n3net.neighbors.reference import slots_of


def why_not(problem: Windows | Sets) -> str | None:
    """Why this backend cannot run, or None."""
    if problem.choice.rule != "continuous":
        return f"it knows the rule 'continuous', not {problem.choice.rule!r}"
    if isinstance(problem, Sets) and problem.candidates is None:
        return "it needs candidates, or keep"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install 'n3net[triton]'"
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if problem.values.device.type != "cuda" and not interpreted:
        return "it runs on GPUs of NVIDIA, and for tests with TRITON_INTERPRET=1 on the CPU"
    if torch.compiler.is_exporting():
        return "an exported program must not depend on it"
    return None


def windows(problem: Windows) -> Tensor:
    """All neighbours of all patches as volumes, (B, k C, H, W): patches are items, windows are candidates."""
    p, grid, choice = problem, problem.grid, problem.choice
    if p.gain is not None:
        raise ValueError("backend 'triton' cannot run: distances are normalised by the batch, which it does not keep")
    if p.time.reach:
        raise ValueError("backend 'triton' cannot run: its windows do not reach into other frames")
    size = grid.patch * grid.cell
    b, channels, height, width = p.values.shape
    e, v = (im2col(t, size, grid.cell).flatten(-2).transpose(1, 2) for t in (p.embedding, p.values))  # (B, Q, D)
    there = e.isfinite().all(-1)  # (B, Q)
    slots = torch.where(p.candidates[0].flatten(0, 1), slots_of(grid, e.device), -1)  # (Q, M)
    index = slots.expand(b, -1, -1)
    index = torch.where(there[:, slots.clamp(min=0)], index, -1)
    lost = ~there | choice.scale.isnan().flatten(1) | choice.strength.isnan().flatten(1) | (index < 0).all(-1)
    scale, strength = (t.flatten(1).masked_fill(lost, 1) for t in (choice.scale, choice.strength))
    e = e.masked_fill(~there[..., None], 0)
    out = _Chosen.apply(e, e, index, scale, strength, v, choice.k, choice.distance == "euclidean")  # (B, Q, k, D)
    out = out.masked_fill(lost[..., None, None], torch.nan)
    columns = out.permute(0, 2, 3, 1).unflatten(2, (channels, -1)).flatten(0, 2)  # (B k C, P², Q)
    columns = columns.unflatten(-1, (grid.query_rows, grid.query_cols))
    volumes = col2im(columns, height, width, size, grid.cell).reshape(b, -1, height, width)
    return volumes.masked_fill(volumes.isnan(), torch.nan)  # without gradient


def sets(problem: Sets) -> Tensor:
    """All neighbours of all queries among their candidates, (B, Q, k, C), 0 where there are none."""
    p, choice = problem, problem.choice
    assert p.candidates is not None
    index = p.candidates.long().masked_fill(~usable(p), -1)
    tensors = p.queries, p.items, index, choice.scale, choice.strength, p.values
    result: Tensor = _Chosen.apply(*tensors, choice.k, choice.distance == "euclidean")
    return result


def blocks(m: int, e: int, c: int, k: int) -> dict[str, int]:
    """Sizes of what a program holds at once, powers of 2, for candidates, embedding, channels and neighbours."""

    def power(n: int, least: int) -> int:
        return max(least, 1 << (n - 1).bit_length())

    block_m = power(m, 16)
    wide = 64 if block_m <= 64 else 32 if block_m <= 128 else 16
    return {
        "BLOCK_M": block_m,
        "BLOCK_K": power(k, 16),
        "BLOCK_E": min(wide, power(e, 16)),
        "BLOCK_C": min(wide, power(c, 16)),
    }


class _Chosen(torch.autograd.Function):
    """The kernels of ``triton_kernels.py`` as a function with a gradient."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        from n3net.neighbors import triton_kernels

        *tensors, k, euclidean = given
        tensors = [t.contiguous() for t in tensors]
        queries, items, index, _, _, values = tensors
        out: Tensor = values.new_empty(*queries.shape[:2], k, values.shape[2])
        if out.numel():
            sizes, options = _sizes(queries, items, index, values, k, euclidean)
            triton_kernels.forward[(queries.shape[0] * queries.shape[1],)](*tensors, out, *sizes, **options)
        ctx.save_for_backward(*tensors)
        ctx.k, ctx.euclidean = k, euclidean
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from n3net.neighbors import triton_kernels

        tensors = ctx.saved_tensors
        queries, items, index, scale, strength, values = tensors
        out = [torch.zeros_like(t) for t in (queries, items, scale, strength, values)]
        if grads[0].numel():
            sizes, options = _sizes(queries, items, index, values, ctx.k, ctx.euclidean)
            programs = (queries.shape[0] * queries.shape[1],)
            triton_kernels.backward[programs](grads[0].contiguous(), *tensors, *out, *sizes, **options)
        return out[0], out[1], None, out[2], out[3], out[4], None, None


def _sizes(
    queries: Tensor, items: Tensor, index: Tensor, values: Tensor, k: int, euclidean: bool
) -> tuple[tuple[int, int], dict[str, Any]]:
    m, e, c = index.shape[2], queries.shape[2], values.shape[2]
    constants = {"M": m, "E": e, "C": c, "K": k, "EUCLIDEAN": euclidean}
    return (queries.shape[1], items.shape[1]), {**constants, **blocks(m, e, c, k)}
