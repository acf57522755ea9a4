"""Matching problems from tensors in a fixed order, for tests that keep these in lists."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from n3net import neighbors
from n3net.neighbors import Choice, Images, Matching, Sets

CHOICE = ("distance", "rule", "annealing", "generator")


def choice(k: Any, scale: Tensor, strength: Tensor, options: dict[str, Any]) -> Choice:
    """How queries choose; takes what concerns it out of the options."""
    return Choice(k=k, scale=scale, strength=strength, **{x: options.pop(x) for x in CHOICE if x in options})


def match_images(
    embedding: Tensor,
    values: Tensor,
    scale: Tensor,
    strength: Tensor,
    k: Any,
    matching: Matching,
    backend: str = "auto",
    **options: Any,
) -> Tensor:
    chosen = choice(k, scale, strength, options)
    problem = Images(embedding=embedding, values=values, choice=chosen, matching=matching, **options)
    return neighbors.match_images(problem, backend)


def match_sets(
    embedding: Tensor,
    values: Tensor,
    scale: Tensor,
    strength: Tensor,
    k: Any,
    backend: str = "auto",
    mask: Tensor | None = None,
    include_self: bool = False,
    **options: Any,
) -> Tensor:
    """A set against itself."""
    problem = Sets(
        queries=embedding,
        items=embedding,
        values=values,
        choice=choice(k, scale, strength, options),
        query_mask=mask,
        mask=mask,
        itself=include_self,
        **options,
    )
    return neighbors.match_sets(problem, backend)
