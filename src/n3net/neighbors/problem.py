"""A matching problem is one object: what is compared, what is aggregated, who may be chosen, and how.

All fields are named when an object is made, so that two tensors of one shape cannot be exchanged unnoticed. The letters
are those of ``grid.py`` and ``selection.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from n3net.neighbors.grid import Grid, Matching, Pads, Time
from n3net.selection import Rule

Distance = Literal["euclidean", "squared"]
Gain = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """From distances to neighbours; (...) are the queries, (B, Qh, Qw) in images and (B, Q) in sets.

    Args:
        k: neighbours.
        scale: of the logits, 1 / t of each query, (...): z = -scale * distance.
        strength: of the logit update, (...).
        distance: the root of the sum of squares, or the sum itself.
        rule: see :func:`n3net.select`.
        annealing: of the Concrete rule, (...).
        generator: for the rules that draw.
    """

    k: int
    scale: Tensor
    strength: Tensor
    distance: Distance = "squared"
    rule: Rule = "continuous"
    annealing: Tensor | None = None
    generator: torch.Generator | None = None

    def each(self, change: Callable[[Tensor], Tensor]) -> Choice:
        """The same with other numbers for the queries: ``change`` of each tensor that there is."""
        annealing = None if self.annealing is None else change(self.annealing)
        return replace(self, scale=change(self.scale), strength=change(self.strength), annealing=annealing)

    def now(self) -> Choice:
        """The same by a simpler rule, where nothing is differentiated."""
        plain = self.rule == "straight-through" and not torch.is_grad_enabled()
        return replace(self, rule="hard") if plain else self

    def at(self, index: Any) -> Choice:
        """Of some of the queries."""
        return self.each(lambda x: x[index])


@dataclass(frozen=True, kw_only=True)
class Images:
    """Patches of an image, each with those in a window around it; :func:`n3net.neighbors.match_images` solves it.

    Args:
        embedding: what is compared, (B, E, H, W).
        values: what is aggregated, (B, C, H, W).
        choice: of each patch, (B, Qh, Qw).
        matching: patches and windows.
        gain: a further factor of the logits, (B, Qh, Qw) or a scalar, computed from all distances (B, Qh, Qw, M) and
            the mask of candidates.
        differences: whether the values are subtracted from each volume.
        beside: whether the values come first in the result.
        time: of videos, whose frames lie one behind the other in the batch; windows then reach into other frames.
        pads: zeros (left, right, top, bottom) around the image, for a tile whose patch grid is that of a larger image;
            by default as many as complete the patches.
    """

    embedding: Tensor
    values: Tensor
    choice: Choice
    matching: Matching
    gain: Gain | None = None
    differences: bool = False
    beside: bool = False
    time: Time = Time()  # noqa: RUF009  # it cannot be changed
    pads: Pads | None = None


@dataclass(frozen=True, kw_only=True)
class Windows:
    """What is left of :class:`Images` for a backend: images of whole cells, of one type, finite or marked as NaN.

    Args:
        embedding, values: (B, E, H, W) and (B, C, H, W) on the grid; see ``limits.py`` for NaN.
        choice: of each patch, (B, Qh, Qw).
        grid: their cells and windows.
        gain, time: as in :class:`Images`.
    """

    embedding: Tensor
    values: Tensor
    choice: Choice
    grid: Grid
    gain: Gain | None = None
    time: Time = Time()  # noqa: RUF009

    @property
    def candidates(self) -> Tensor:
        """True where a slot may be chosen, (1 or B, Qh, Qw, M)."""
        return self.time.candidates(self.grid, self.values.shape[0], self.values.device)


@dataclass(frozen=True, kw_only=True)
class Sets:
    """Queries and a database of items; :func:`n3net.neighbors.match_sets` solves it.

    Args:
        queries: what is compared with the items, (B, Q, E).
        items: whom queries choose from, (B, N, E).
        values: what is aggregated, (B, N, C).
        choice: of each query, (B, Q).
        query_mask: true where there is a query, (B, Q); what comes out for others is 0.
        mask: true where there is an item, (B, N); others are never chosen.
        candidates: numbers of the items that a query may choose, (B, Q, M), negative where there is none; a number that
            stands there twice is two candidates. By default all items.
        idle: for backends: queries whose result does not matter, and who may have nothing to choose from, (B, Q).
        itself: whether a query may choose the item of its own number, which it is where a set is matched with itself.
    """

    queries: Tensor
    items: Tensor
    values: Tensor
    choice: Choice
    query_mask: Tensor | None = None
    mask: Tensor | None = None
    candidates: Tensor | None = None
    itself: bool = True
    idle: Tensor | None = None

    @property
    def embedding(self) -> Tensor:
        """What is compared."""
        return self.items
