"""The N3 block for sequences: neighbours of each moment among those around it, or before it."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from n3net.neighbors.problem import Sets
from n3net.neighbors.sets import match_sets
from n3net.nn.block import Block
from n3net.nn.options import N3Options
from n3net.selection import Rule


class SequenceNet(nn.Module):
    """Three convolutions along a sequence, (B, L, C) -> (B, L, out); what is masked is 0, as beyond the ends.

    Args:
        channels, out_channels, features: of the input, the result and the layers between.
        size: moments that a convolution sees, odd.
        causal: whether these end with the moment itself instead of having it in their middle.
    """

    def __init__(self, channels: int, out_channels: int, features: int = 64, size: int = 3, causal: bool = False):
        super().__init__()
        self.pads = (size - 1, 0) if causal else (size // 2, size // 2)
        widths = (channels, features, features, out_channels)
        self.layers = nn.ModuleList(nn.Conv1d(a, b, size) for a, b in pairwise(widths))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        none = None if mask is None else ~mask[:, None]  # (B, 1, L)
        x = x.transpose(1, 2)  # (B, C, L)
        for i, layer in enumerate(self.layers):
            x = F.relu(x) if i else x
            x = x if none is None else x.masked_fill(none, 0)
            x = layer(F.pad(x, self.pads))
        return x.transpose(1, 2)  # (B, L, out)


class N3Block1d(Block):
    r"""The N3 block for sequences: each moment's k nearest neighbours in a window, as features beside the input.

    Time and memory grow linearly with the length. Where a window leaves fewer than k others, they are neighbours again;
    a moment without any, the first of a causal block, has neighbours of 0.

    Args:
        channels: C of a moment.
        k: neighbours.
        window: moments that one is compared with, half of them before it; if causal, all of them.
        causal: whether a moment sees only those before it, in its embedding, too.
        options: ``"paper"``, or an :class:`N3Options` without ``normalize``.
        rule: of selection, see :func:`n3net.select`.
        features: of the hidden layers of the embedding and temperature nets.
        size: moments that one of their three convolutions sees, odd.
        embedding: a net (B, L, C) -> (B, L, E), by default three convolutions; ``None`` if what is matched always comes
            from outside, through ``match_on``.
        backend: of :mod:`n3net.neighbors`; affects speed and memory only.

    Shape:
        :math:`(B, L, C) \to (B, L, (k + 1) C)`: the moment, then its neighbours.

    Example:
        >>> block = N3Block1d(channels=4, k=3, window=64, causal=True)
        >>> block(torch.rand(2, 1000, 4)).shape
        torch.Size([2, 1000, 16])
    """

    def __init__(
        self,
        channels: int,
        k: int = 7,
        window: int = 64,
        *,
        causal: bool = False,
        options: str | N3Options = "paper",
        rule: Rule = "continuous",
        features: int = 64,
        size: int = 3,
        embedding: nn.Module | str | None = "cnn",
        backend: str = "auto",
    ) -> None:
        super().__init__(channels, k, options, rule)
        if self.options.normalize:
            raise ValueError("options: N3Block1d does not normalise distances, use an N3Options with normalize=False")
        if isinstance(window, bool) or not isinstance(window, int) or window < k:
            raise ValueError(f"window: expected an integer of at least k = {k}, got {window!r}")
        if size < 1 or size % 2 == 0:
            raise ValueError(f"size: expected an odd number, got {size!r}")
        if isinstance(embedding, str) and embedding != "cnn":
            raise ValueError(f"embedding: expected 'cnn', a module or None, got {embedding!r}")
        self.window, self.causal, self.backend = window, causal, backend

        def net(out_channels: int) -> SequenceNet:
            return SequenceNet(channels, out_channels, features, size, causal)

        self.embedding = net(channels) if isinstance(embedding, str) else embedding
        self.temperature = None if rule == "hard" else net(1)
        self.annealing = net(1) if rule == "concrete" else None

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        match_on: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The moments and their neighbours.

        Args:
            x: (B, L, C).
            mask: true where there is a moment, (B, L), in sequences of unequal length.
            match_on: (B, L, E), replaces the embedding net's output.
            generator: for the rules that draw.
        """
        if x.dim() != 3 or x.shape[2] != self.channels:
            raise ValueError(f"x: expected shape (B, L, {self.channels}), got {tuple(x.shape)}")
        own = isinstance(self.embedding, SequenceNet) and match_on is None
        embedding = self.embedding(x, mask) if own and self.embedding is not None else self.embed(x, match_on)
        if self.temperature is None:
            scale = strength = x.new_ones(x.shape[:2])
        else:
            scale, strength = self.scale_and_strength(self.temperature(x, mask).squeeze(-1))
        annealing = None if self.annealing is None else torch.exp(self.annealing(x, mask).squeeze(-1).float())
        problem = Sets(
            queries=embedding,
            items=embedding,
            values=x,
            choice=self.choosing(scale, strength, annealing, generator),
            query_mask=mask,
            mask=mask,
            candidates=self.candidates(x.shape[1], x.device).expand(x.shape[0], -1, -1),
        )
        neighbors = match_sets(problem, self.backend)  # (B, L, k, C)
        if self.options.neighbors == "differences":
            neighbors = neighbors - x.unsqueeze(2)
        return torch.cat([x, neighbors.flatten(2)], 2)

    def candidates(self, length: int, device: torch.device) -> Tensor:
        """Numbers of the moments in the window of each, -1 beyond the ends, (1, L, window)."""
        steps = torch.arange(-self.window, 0, device=device)
        if not self.causal:
            steps = steps + self.window // 2
            steps = steps + (steps >= 0).long()  # the moment itself is left out
        index = torch.arange(length, device=device)[:, None] + steps  # (L, window)
        return torch.where((index >= 0) & (index < length), index, -1)[None]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, window={self.window}, causal={self.causal}"
