"""The backends by name. Each has ``distances``, ``aggregate`` and ``neighbors``, and says why it cannot run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from n3net.neighbors import native, reference, tiled
from n3net.neighbors.grid import Grid
from n3net.neighbors.limits import logits, root


@dataclass(frozen=True)
class Backend:
    """One way to compute matching on images; see ``reference.py`` for what the functions mean, ``limits.py`` for NaN.

    ``fused`` is distances and aggregation without gradients and in less memory. ``sweep`` is all that
    :func:`n3net.neighbors.match_images` does, on a part of an image without its padding, without gradients.
    """

    name: str
    why_not: Callable[[Tensor, str], str | None]
    distances: Callable[[Tensor, Grid], Tensor]
    aggregate: Callable[..., Tensor]
    fused: Callable[..., Tensor] | None = None
    sweep: Callable[..., Tensor] | None = None

    def neighbors(
        self,
        embedding: Tensor,
        scale: Tensor,
        strength: Tensor,
        values: Tensor,
        grid: Grid,
        k: int,
        *,
        euclidean: bool,
        **rule: Any,
    ) -> Tensor:
        """Distances, logits ``-scale * d``, selection and aggregation: (B, C, H, W) -> (B, k C, H, W)."""
        if self.fused is not None and not torch.is_grad_enabled():
            return self.fused(embedding, scale, strength, values, grid, k, euclidean=euclidean, **rule)
        d = self.distances(embedding, grid)  # (B, Qh, Qw, M)
        return self.aggregate(logits(root(d) if euclidean else d, scale), strength, values, grid, k, **rule)


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("reference", reference.why_not, reference.distances, reference.aggregate),
        Backend(
            "dense",
            tiled.why_not,
            partial(tiled.distances, tile=None),
            partial(tiled.aggregate, tile=None),
        ),
        Backend("tiled", tiled.why_not, tiled.distances, tiled.aggregate, tiled.neighbors),
        Backend(
            "native",
            native.why_not,
            native.distances,
            native.aggregate,
            native.neighbors,
            native.neighbors,
        ),
    )
}


def choose(name: str, values: Tensor, grid: Grid, rule: str) -> Backend:
    """The backend of that name, or for ``"auto"`` the fastest one that can run here."""
    if name == "auto":
        if native.why_not(values, rule) is None:
            return BACKENDS["native"]
        small = not torch.compiler.is_exporting() and max(grid.query_rows, grid.query_cols) <= tiled.MAX_DENSE
        return BACKENDS["dense" if small else "tiled"]
    if name not in BACKENDS:
        raise ValueError(f"backend: expected 'auto' or one of {', '.join(map(repr, BACKENDS))}, got {name!r}")
    reason = BACKENDS[name].why_not(values, rule)
    if reason is not None:
        raise ValueError(f"backend {name!r} cannot run: {reason}")
    return BACKENDS[name]
