"""The N3 block for images: embed, match, select, aggregate, concatenate (Sec. 4 of the paper)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from n3net.neighbors.grid import Matching, Pads, Time
from n3net.neighbors.images import image_distances, match_images
from n3net.neighbors.limits import compared, gained, logits_of, marked, root, weigh
from n3net.neighbors.parts import Layout, Part, Parts, match_part
from n3net.neighbors.problem import Choice, Images, Windows
from n3net.nn.block import Block
from n3net.nn.centers import at_centers
from n3net.nn.normalization import DistanceNorm, QueryNorm
from n3net.nn.options import N3Options
from n3net.selection import Rule


def embedding_cnn(channels: int, out_channels: int, features: int = 64) -> nn.Sequential:
    """The paper's CNN for embeddings and temperatures (supplement, Tables 7 and 8)."""
    net = nn.Sequential(
        nn.Conv2d(channels, features, 3, padding=1, bias=False),
        nn.BatchNorm2d(features),
        nn.ReLU(inplace=True),
        nn.Conv2d(features, features, 3, padding=1, bias=False),
        nn.BatchNorm2d(features),
        nn.ReLU(inplace=True),
        nn.Conv2d(features, out_channels, 3, padding=1),
    )
    net.reach = 3  # type: ignore[assignment]  # pixels away that an input pixel may influence an output pixel
    return net


class N3Block2d(Block):
    r"""The N3 block for images: each patch's k nearest neighbours, as features beside the input.

    Args:
        channels: C of the input.
        k: neighbours.
        patch_size, stride, window: patches of ``patch_size`` pixels every ``stride`` pixels, each matched with the
            ``window`` x ``window`` patches around it.
        frames: for videos: frames before and behind a patch's own that its window reaches into, moved inwards at the
            ends. The input then has a dimension of time, :math:`(B, T, C, H, W)`.
        options: ``"paper"``, ``"reference-2018"``, or an :class:`N3Options`.
        rule: of selection, see :func:`n3net.select`. ``"hard"`` makes this the KNN block of the paper's ablation,
            ``"concrete"`` the Concrete block.
        features: of the hidden layers of the embedding and temperature nets.
        embedding: a net (B, C, H, W) -> (B, E, H, W); by default the paper's CNN; ``None`` if what is matched always
            comes from outside, through ``match_on``.
        backend: of :mod:`n3net.neighbors`; affects speed and memory only.

    Shape:
        :math:`(B, C, H, W) \to (B, (k + 1) C, H, W)`: the input, then :math:`N_1 \ldots N_k`.

    Example:
        >>> block = N3Block2d(channels=8, k=7)
        >>> block(torch.rand(1, 8, 80, 80)).shape
        torch.Size([1, 64, 80, 80])
    """

    def __init__(
        self,
        channels: int,
        k: int = 7,
        patch_size: int = 10,
        stride: int = 5,
        window: int = 15,
        *,
        frames: int = 0,
        options: str | N3Options = "paper",
        rule: Rule = "continuous",
        features: int = 64,
        embedding: nn.Module | str | None = "cnn",
        backend: str = "auto",
    ) -> None:
        super().__init__(channels, k, options, rule)
        self.matching = Matching(patch_size, stride, window, self.options.border)
        if isinstance(frames, bool) or not isinstance(frames, int) or frames < 0:
            raise ValueError(f"frames: expected an integer of at least 0, got {frames!r}")
        self.frames, self.backend = frames, backend
        if isinstance(embedding, str) and embedding != "cnn":
            raise ValueError(f"embedding: expected 'cnn', a module or None, got {embedding!r}")
        self.embedding = embedding_cnn(channels, channels, features) if isinstance(embedding, str) else embedding
        self.temperature = None if rule == "hard" else embedding_cnn(channels, 1, features)
        self.annealing = embedding_cnn(channels, 1, features) if rule == "concrete" else None
        self.normalization: DistanceNorm | QueryNorm | None = None
        if self.options.normalize and rule != "hard":
            self.normalization = QueryNorm() if self.options.normalize == "query" else DistanceNorm()

    def forward(
        self,
        x: Tensor,
        match_on: Tensor | None = None,
        generator: torch.Generator | None = None,
        pads: Pads | None = None,
    ) -> Tensor:
        """The input and its neighbours.

        Args:
            x: (B, C, H, W), or (B, T, C, H, W) with ``frames``.
            match_on: (B, E, H, W), or (B, T, E, H, W), replaces the embedding net's output.
            generator: for the rules that draw.
            pads: see :func:`n3net.neighbors.match_images`.
        """
        still = self.frames == 0
        if x.dim() != (4 if still else 5) or x.shape[-3] != self.channels:
            shape = f"(B, {self.channels}, H, W)" if still else f"(B, T, {self.channels}, H, W)"
            raise ValueError(f"x: expected shape {shape}, got {tuple(x.shape)}")
        if not still:
            time = Time(x.shape[1], self.frames, self.options.border)
            match_on = None if match_on is None else match_on.flatten(0, 1)
            out = self._matched(x.flatten(0, 1), match_on, generator, pads, time)  # (B T, (k + 1) C, H, W)
            return out.unflatten(0, x.shape[:2])
        return self._matched(x, match_on, generator, pads, Time())

    def _matched(
        self, x: Tensor, match_on: Tensor | None, generator: torch.Generator | None, pads: Pads | None, time: Time
    ) -> Tensor:
        choice, gain = self._choice(x, pads, generator), self.normalization
        if isinstance(gain, DistanceNorm) and not gain.training:
            choice, gain = replace(choice, scale=choice.scale * gain.constant()), None
        problem = Images(
            embedding=self.embed(x, match_on),
            values=x,
            choice=choice,
            matching=self.matching,
            gain=gain,
            differences=self.options.neighbors == "differences",
            beside=True,
            time=time,
            pads=pads,
        )
        return match_images(problem, self.backend)  # (B, (k + 1) C, H, W)

    def scales(self, x: Tensor, pads: Pads | None = None) -> Tensor:
        """What :meth:`part` is told of each patch, (B, C, H, W) -> (B, 2 or 3, Qh, Qw)."""
        choice = self._choice(x, pads)
        scale, strength, annealing = choice.scale, choice.strength, choice.annealing
        if isinstance(self.normalization, DistanceNorm):
            scale = scale * self.normalization.constant()
        return torch.stack([scale, strength] if annealing is None else [scale, strength, annealing], 1)

    def part(self, x: Part, embedding: Part, scales: Part, layout: Layout, rows: slice, cols: slice) -> Tensor:
        """Some rows and columns of what the block gives in evaluation, see :func:`n3net.neighbors.parts.match_part`."""
        parts = Parts(
            embedding=embedding,
            values=x,
            scales=scales,
            layout=layout,
            k=self.k,
            distance=self.options.distance,
            rule=self.rule,
            gain=self.normalization if isinstance(self.normalization, QueryNorm) else None,
            differences=self.options.neighbors == "differences",
            beside=True,
        )
        return match_part(parts, rows, cols, self.backend)  # (B, (k + 1) C, h, w)

    def weights(
        self, x: Tensor, match_on: Tensor | None = None, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the block has chosen in evaluation, for people to look at.

        Returns:
            The weights w_1 .. w_k of each patch's window (B, Qh, Qw, k, M), zero where a slot is no candidate, and the
            temperatures (B, Qh, Qw).
        """
        windows, d = self._compared(x, match_on, self._choice(x, None, generator))
        w, dead = weigh(logits_of(windows, d), windows.candidates, windows.choice)
        return w.masked_fill(dead[..., None, None], torch.nan), 1 / windows.choice.scale

    def distances(self, x: Tensor, match_on: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """What :meth:`weights` are computed from, for people who want to see what a change would change.

        Returns:
            The distances d of each patch to those of its window (B, Qh, Qw, M), the scale of the logits -scale * d,
            with the block's norm in it, and 1 / t without it, by which Eq. 9 multiplies its update (B, Qh, Qw).
        """
        choice = self._choice(x, None)
        windows, d = self._compared(x, match_on, choice)
        return root(d) if choice.distance == "euclidean" else d, windows.choice.scale, choice.scale

    def _compared(self, x: Tensor, match_on: Tensor | None, choice: Choice) -> tuple[Windows, Tensor]:
        """Each patch and its window, with the norm in the scale of its choice, and squared distances (B, Qh, Qw, M)."""
        if self.frames:
            raise ValueError("this block matches the frames of videos, of which there is no view yet")
        embedding, norm = self.embed(x, match_on), self.normalization
        if isinstance(norm, DistanceNorm):
            choice, norm = replace(choice, scale=choice.scale * norm.constant()), None
        embedding = compared(marked(embedding, x)[0], embedding.shape[1] * self.matching.patch_size**2)
        grid = self.matching.grid(*x.shape[-2:])
        windows = Windows(embedding=embedding, values=x, choice=choice, grid=grid)
        d = image_distances(embedding, self.matching)  # (B, Qh, Qw, M)
        if norm is not None:
            scale = gained(norm, root(d) if choice.distance == "euclidean" else d, windows.candidates, choice.scale)
            windows = replace(windows, choice=replace(choice, scale=scale))
        return windows, d

    def _choice(self, x: Tensor, pads: Pads | None, generator: torch.Generator | None = None) -> Choice:
        """How each patch chooses, (B, Qh, Qw)."""
        if self.temperature is None:
            grid = self.matching.grid(x.shape[-2], x.shape[-1], pads)
            scale = strength = x.new_ones(x.shape[0], grid.query_rows, grid.query_cols)
        else:
            scale, strength = self.scale_and_strength(self._at_patches(self.temperature, x, pads))
        annealing = None
        if self.annealing is not None:
            annealing = torch.exp(self._at_patches(self.annealing, x, pads).float())
        return self.choosing(scale, strength, annealing, generator)

    def _at_patches(self, net: nn.Module, x: Tensor, pads: Pads | None) -> Tensor:
        """The output of a net of :func:`embedding_cnn`'s at each patch, (B, C, H, W) -> (B, Qh, Qw)."""
        at = self.options.temperature_at
        if at == "mean" or torch.compiler.is_exporting():
            return self.matching.at_patches(net(x), at, pads)
        return at_centers(net, x, self.matching, pads)
