"""The N3 block for sets, or for queries and a database."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from n3net.neighbors.problem import Sets
from n3net.neighbors.pruning import nearest_items
from n3net.neighbors.sets import match_sets
from n3net.nn.block import Block
from n3net.nn.options import N3Options
from n3net.selection import Rule


def embedding_mlp(channels: int, out_channels: int, features: int = 64) -> nn.Sequential:
    """A perceptron for the items of a set."""
    return nn.Sequential(
        nn.Linear(channels, features),
        nn.ReLU(inplace=True),
        nn.Linear(features, features),
        nn.ReLU(inplace=True),
        nn.Linear(features, out_channels),
    )


class N3Block(Block):
    r"""The N3 block for sets: each item's k nearest neighbours among all others, as features beside the input.

    Args:
        channels: C of an item.
        k: neighbours.
        options: ``"paper"``, ``"reference-2018-sets"``, or an :class:`N3Options` without ``normalize``.
        rule: of selection, see :func:`n3net.select`.
        features: of the hidden layers of the embedding and temperature nets.
        embedding: a net (B, N, C) -> (B, N, E); by default a perceptron; ``None`` if what is matched always comes from
            outside, through ``match_on``.
        temperature: a net (B, N, C) -> (B, N, 1); by default a perceptron.
        include_self: whether an item may be its own neighbour.
        keep: let each item choose among this many others, those nearest to it, see :func:`n3net.nearest`; for sets too
            large to be weighed as a whole.
        backend: of :mod:`n3net.neighbors`; affects speed and memory only.

    Shape:
        :math:`(B, N, C) \to (B, N, (k + 1) C)`: the item, then its neighbours. With a database,
        :math:`(B, Q, C), (B, N, C) \to (B, Q, (k + 1) C)`.

    Example:
        >>> block = N3Block(channels=32, k=3)
        >>> block(torch.rand(2, 500, 32)).shape
        torch.Size([2, 500, 128])
        >>> block(torch.rand(2, 10, 32), database=torch.rand(2, 500, 32)).shape
        torch.Size([2, 10, 128])
    """

    def __init__(
        self,
        channels: int,
        k: int = 7,
        *,
        options: str | N3Options = "paper",
        rule: Rule = "continuous",
        features: int = 64,
        embedding: nn.Module | str | None = "mlp",
        temperature: nn.Module | str = "mlp",
        include_self: bool = False,
        keep: int | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__(channels, k, options, rule)
        if self.options.normalize:
            raise ValueError("options: N3Block does not normalise distances, use an N3Options with normalize=False")
        for name, net in (("embedding", embedding), ("temperature", temperature)):
            if isinstance(net, str) and net != "mlp":
                raise ValueError(f"{name}: expected 'mlp' or a module, got {net!r}")
        self.include_self, self.keep, self.backend = include_self, keep, backend
        self.embedding = embedding_mlp(channels, channels, features) if isinstance(embedding, str) else embedding
        if rule == "hard":
            self.temperature = None
        else:
            self.temperature = embedding_mlp(channels, 1, features) if isinstance(temperature, str) else temperature
        self.annealing = embedding_mlp(channels, 1, features) if rule == "concrete" else None

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        match_on: Tensor | None = None,
        generator: torch.Generator | None = None,
        *,
        database: Tensor | None = None,
        database_mask: Tensor | None = None,
        match_database_on: Tensor | None = None,
        candidates: Tensor | None = None,
    ) -> Tensor:
        """The items and their neighbours.

        Args:
            x: (B, N, C), or queries (B, Q, C) of a database.
            mask: true where there is an item, (B, N), in sets of unequal size.
            match_on: (B, N, E), replaces the embedding net's output.
            generator: for the rules that draw.
            database: (B, N, C), whom the queries choose from; the same nets embed both, and temperatures are those of
                the queries. By default the set itself.
            database_mask, match_database_on: of the database, as ``mask`` and ``match_on`` are of the queries.
            candidates: numbers of the items that each query may choose, (B, Q, M), negative where there is none; see
                :func:`n3net.nearest`.
        """
        for name, t in (("x", x), ("database", database)):
            if t is not None and (t.dim() != 3 or t.shape[2] != self.channels):
                raise ValueError(f"{name}: expected shape (B, N, {self.channels}), got {tuple(t.shape)}")
        alone = database is None
        if alone and (database_mask is not None or match_database_on is not None):
            raise ValueError("database: expected with database_mask or match_database_on; mask and match_on are for x")
        queries = self.embed(x, match_on)
        items = queries if database is None else self.embed(database, match_database_on)
        if self.temperature is None:
            scale = strength = x.new_ones(x.shape[:2])
        else:
            scale, strength = self.scale_and_strength(self.temperature(x).squeeze(-1))
        annealing = None if self.annealing is None else torch.exp(self.annealing(x).squeeze(-1).float())
        problem = Sets(
            queries=queries,
            items=items,
            values=x if database is None else database,
            choice=self.choosing(scale, strength, annealing, generator),
            query_mask=mask,
            mask=mask if alone else database_mask,
            candidates=candidates,
            itself=self.include_self or not alone,
        )
        if self.keep is not None and candidates is None:
            problem = replace(problem, candidates=nearest_items(problem, self.keep))
        neighbors = match_sets(problem, self.backend)  # (B, Q, k, C)
        if self.options.neighbors == "differences":
            neighbors = neighbors - x.unsqueeze(2)
        return torch.cat([x, neighbors.flatten(2)], 2)
