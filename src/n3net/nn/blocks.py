"""N3 blocks: embed, match, select, aggregate, concatenate (Sec. 4 of the paper)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from n3net.neighbors.backends import choose
from n3net.neighbors.grid import im2col, pad
from n3net.neighbors.images import Matching, Pads, match_images
from n3net.neighbors.limits import compared, gained, logits, marked, root, weigh
from n3net.neighbors.parts import Layout, Part, match_part
from n3net.neighbors.sets import match_sets
from n3net.nn.centers import at_centers
from n3net.nn.normalization import DistanceNorm, QueryNorm
from n3net.nn.options import N3Options, resolve
from n3net.selection import Rule, check_choice


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


def embedding_mlp(channels: int, out_channels: int, features: int = 64) -> nn.Sequential:
    """A perceptron for the items of a set."""
    return nn.Sequential(
        nn.Linear(channels, features),
        nn.ReLU(inplace=True),
        nn.Linear(features, features),
        nn.ReLU(inplace=True),
        nn.Linear(features, out_channels),
    )


class _Block(nn.Module):
    """What the blocks for sets and for images share: the nets, and from their outputs to logit scale and strength."""

    embedding: nn.Module | None
    temperature: nn.Module | None
    annealing: nn.Module | None

    def __init__(self, channels: int, k: int, options: str | N3Options, rule: Rule) -> None:
        super().__init__()
        check_choice("rule", rule, Rule)
        for name, value in (("channels", channels), ("k", k)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: expected an integer of at least 1, got {value!r}")
        self.channels, self.k, self.rule = channels, k, rule
        self.options = resolve(options)

    @property
    def out_channels(self) -> int:
        return (self.k + 1) * self.channels

    def extra_repr(self) -> str:
        return f"channels={self.channels}, k={self.k}, rule={self.rule!r}, options={self.options}"

    def _embed(self, x: Tensor, match_on: Tensor | None) -> Tensor:
        if match_on is not None:
            return match_on
        if self.embedding is None:
            raise ValueError("match_on: this block has no embedding net of its own, pass what it shall match on")
        out: Tensor = self.embedding(x)
        return out

    def _scale_and_strength(self, net: Tensor) -> tuple[Tensor, Tensor]:
        """From the temperature net's output per query to the scale of the logits and the strength of their update."""
        o = self.options
        net = net.to(torch.promote_types(net.dtype, torch.float32))
        scale = net if o.temperature == "inverse" else torch.exp(-net) / o.temperature_scale
        return scale, scale if o.update == "tempered" else torch.ones_like(scale)


class N3Block2d(_Block):
    r"""The N3 block for images: each patch's k nearest neighbours, as features beside the input.

    Args:
        channels: C of the input.
        k: neighbours.
        patch_size, stride, window: patches of ``patch_size`` pixels every ``stride`` pixels, each matched with the
            ``window`` x ``window`` patches around it.
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
        options: str | N3Options = "paper",
        rule: Rule = "continuous",
        features: int = 64,
        embedding: nn.Module | str | None = "cnn",
        backend: str = "auto",
    ) -> None:
        super().__init__(channels, k, options, rule)
        self.matching = Matching(patch_size, stride, window, self.options.border)
        self.backend = backend
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
            x: (B, C, H, W).
            match_on: (B, E, H, W), replaces the embedding net's output.
            generator: for the rules that draw.
            pads: see :func:`n3net.neighbors.match_images`.
        """
        if x.dim() != 4 or x.shape[1] != self.channels:
            raise ValueError(f"x: expected shape (B, {self.channels}, H, W), got {tuple(x.shape)}")
        embedding = self._embed(x, match_on)
        scale, strength, annealing = self._per_patch(x, pads)
        gain = self.normalization
        if isinstance(gain, DistanceNorm) and not gain.training:
            scale, gain = scale * gain.constant(), None
        return match_images(
            embedding,
            x,
            scale,
            strength,
            self.k,
            self.matching,
            distance=self.options.distance,
            rule=self.rule,
            gain=gain,
            annealing=annealing,
            generator=generator,
            differences=self.options.neighbors == "differences",
            beside=True,
            pads=pads,
            backend=self.backend,
        )  # (B, (k + 1) C, H, W)

    def scales(self, x: Tensor, pads: Pads | None = None) -> Tensor:
        """What :meth:`part` is told of each patch, (B, C, H, W) -> (B, 2 or 3, Qh, Qw)."""
        scale, strength, annealing = self._per_patch(x, pads)
        if isinstance(self.normalization, DistanceNorm):
            scale = scale * self.normalization.constant()
        return torch.stack([scale, strength] if annealing is None else [scale, strength, annealing], 1)

    def part(self, x: Part, embedding: Part, scales: Part, layout: Layout, rows: slice, cols: slice) -> Tensor:
        """Some rows and columns of what the block gives in evaluation, see :func:`n3net.neighbors.parts.match_part`."""
        return match_part(
            embedding,
            x,
            scales,
            self.k,
            layout,
            rows,
            cols,
            distance=self.options.distance,
            rule=self.rule,
            gain=self.normalization if isinstance(self.normalization, QueryNorm) else None,
            differences=self.options.neighbors == "differences",
            beside=True,
            backend=self.backend,
        )  # (B, (k + 1) C, h, w)

    def weights(
        self, x: Tensor, match_on: Tensor | None = None, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the block has chosen in evaluation, for people to look at.

        Returns:
            The weights w_1 .. w_k of each patch's window (B, Qh, Qw, k, M), zero where a slot is no candidate, and the
            temperatures (B, Qh, Qw).
        """
        inverse, strength, annealing = self._per_patch(x, None)
        d, scale = self._distances(x, match_on, inverse)
        candidates = self.matching.grid(x.shape[-2], x.shape[-1]).candidates(d.device)
        rule = {"rule": self.rule, "annealing": annealing, "generator": generator}
        w, dead = weigh(logits(d, scale), candidates, strength, self.k, **rule)
        return w.masked_fill(dead[..., None, None], torch.nan), 1 / scale

    def distances(self, x: Tensor, match_on: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """What :meth:`weights` are computed from, for people who want to see what a change would change.

        Returns:
            The distances d of each patch to those of its window (B, Qh, Qw, M), the scale of the logits -scale * d,
            with the block's norm in it, and 1 / t without it, by which Eq. 9 multiplies its update (B, Qh, Qw).
        """
        inverse = self._per_patch(x, None)[0]
        return *self._distances(x, match_on, inverse), inverse

    def _distances(self, x: Tensor, match_on: Tensor | None, inverse: Tensor) -> tuple[Tensor, Tensor]:
        """Distances (B, Qh, Qw, M), and the scale of the logits (B, Qh, Qw) from 1 / t."""
        embedding = self._embed(x, match_on)
        m, (height, width) = self.matching, x.shape[-2:]
        grid = m.grid(height, width)
        embedding = compared(marked(embedding, x)[0], embedding.shape[1] * m.patch_size**2)
        source = pad(embedding, m.padding(height, width))
        source = source if m.patch_size % m.stride == 0 else im2col(source, m.patch_size, m.stride)
        d = choose("auto", source, grid, self.rule).distances(source, grid)  # (B, Qh, Qw, M)
        d = root(d) if self.options.distance == "euclidean" else d
        norm = self.normalization
        if isinstance(norm, DistanceNorm):
            return d, inverse * norm.constant()
        return d, inverse if norm is None else gained(norm, d, grid.candidates(d.device), inverse)

    def _per_patch(self, x: Tensor, pads: Pads | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Scale of the logits, strength of their update and annealing of each patch, (B, Qh, Qw) each."""
        if self.temperature is None:
            grid = self.matching.grid(x.shape[-2], x.shape[-1], pads)
            scale = strength = x.new_ones(x.shape[0], grid.query_rows, grid.query_cols)
        else:
            scale, strength = self._scale_and_strength(self._at_patches(self.temperature, x, pads))
        if self.annealing is None:
            return scale, strength, None
        return scale, strength, torch.exp(self._at_patches(self.annealing, x, pads).float())

    def _at_patches(self, net: nn.Module, x: Tensor, pads: Pads | None) -> Tensor:
        """The output of a net of :func:`embedding_cnn`'s at each patch, (B, C, H, W) -> (B, Qh, Qw)."""
        at = self.options.temperature_at
        if at == "mean" or torch.compiler.is_exporting():
            return self.matching.at_patches(net(x), at, pads)
        return at_centers(net, x, self.matching, pads)


class N3Block(_Block):
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
        backend: ``"auto"`` or ``"tiled"``, see :func:`n3net.neighbors.match_sets`; affects speed and memory only.

    Shape:
        :math:`(B, N, C) \to (B, N, (k + 1) C)`: the item, then its neighbours.

    Example:
        >>> block = N3Block(channels=32, k=3)
        >>> block(torch.rand(2, 500, 32)).shape
        torch.Size([2, 500, 128])
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
        backend: str = "auto",
    ) -> None:
        super().__init__(channels, k, options, rule)
        if self.options.normalize:
            raise ValueError("options: N3Block does not normalise distances, use an N3Options with normalize=False")
        for name, net in (("embedding", embedding), ("temperature", temperature)):
            if isinstance(net, str) and net != "mlp":
                raise ValueError(f"{name}: expected 'mlp' or a module, got {net!r}")
        self.include_self, self.backend = include_self, backend
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
    ) -> Tensor:
        """The items and their neighbours; ``mask`` (B, N) is true where there is an item, in sets of unequal size."""
        if x.dim() != 3 or x.shape[2] != self.channels:
            raise ValueError(f"x: expected shape (B, N, {self.channels}), got {tuple(x.shape)}")
        embedding = self._embed(x, match_on)
        if self.temperature is None:
            scale = strength = x.new_ones(x.shape[:2])
        else:
            scale, strength = self._scale_and_strength(self.temperature(x).squeeze(-1))
        annealing = None if self.annealing is None else torch.exp(self.annealing(x).squeeze(-1).float())
        neighbors = match_sets(
            embedding,
            x,
            scale,
            strength,
            self.k,
            mask=mask,
            include_self=self.include_self,
            distance=self.options.distance,
            rule=self.rule,
            annealing=annealing,
            generator=generator,
            backend=self.backend,
        )  # (B, N, k, C)
        if self.options.neighbors == "differences":
            neighbors = neighbors - x.unsqueeze(2)
        return torch.cat([x, neighbors.flatten(2)], 2)
