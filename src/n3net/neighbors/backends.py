"""The backends by name. Each is a file with functions of a problem, and one that says why it cannot run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from n3net import kernel
from n3net.neighbors import gpu, native, reference, tiled
from n3net.neighbors.grid import Grid
from n3net.neighbors.problem import Sets, Windows


@dataclass(frozen=True)
class Backend:
    """One way to solve matching problems; ``reference.py`` has what the functions mean, ``limits.py`` what NaN does.

    Args:
        name: by which it can be asked for.
        why_not: why it cannot solve a problem, or None.
        windows: the neighbours of patches as volumes, (B, k C, H, W).
        sets: the neighbours of queries, (B, Q, k, C); None if it knows images only.
        sweep: all that :func:`n3net.neighbors.match_images` does, on a part of an image without its padding, without
            gradients, if it can.
    """

    name: str
    why_not: Callable[[Windows | Sets], str | None]
    windows: Callable[[Windows], Tensor]
    sets: Callable[[Sets], Tensor] | None = None
    sweep: Callable[..., Tensor] | None = None


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("reference", reference.why_not, reference.windows, reference.sets),
        Backend("dense", tiled.why_not, partial(tiled.windows, tile=None)),
        Backend("tiled", tiled.why_not, tiled.windows, tiled.sets),
        Backend("native", native.why_not, native.windows, native.sets, native.sweep),
        Backend("triton", gpu.why_not, gpu.windows, gpu.sets),
    )
}


def choose(name: str, problem: Windows | Sets) -> Backend:
    """The backend of that name, or for ``"auto"`` the fastest one that can run here."""
    if name == "auto":
        if native.why_not(problem) is None:
            return BACKENDS["native"]
        return BACKENDS["dense" if isinstance(problem, Windows) and _small(problem.grid) else "tiled"]
    known = [n for n, backend in BACKENDS.items() if isinstance(problem, Windows) or backend.sets is not None]
    if name not in known:
        raise ValueError(f"backend: expected 'auto' or one of {', '.join(map(repr, known))}, got {name!r}")
    reason = BACKENDS[name].why_not(problem)
    if reason is not None:
        raise ValueError(f"backend {name!r} cannot run: {reason}")
    return BACKENDS[name]


def _small(grid: Grid) -> bool:
    return not torch.compiler.is_exporting() and max(grid.query_rows, grid.query_cols) <= tiled.MAX_DENSE


def distances(embedding: Tensor, grid: Grid) -> Tensor:
    """Squared distances of patches, 0 where a slot is no candidate, the fastest way: (B, E, H, W) -> (B, Qh, Qw, M)."""
    if kernel.why_not(embedding) is None:
        return native.distances(embedding, grid)
    return tiled.distances(embedding, grid, None if _small(grid) else tiled.TILE)
