"""N3Net for images: local networks with N3 blocks between them (Fig. 2b; supplement, Tables 9 and 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor, nn

from n3net.models.dncnn import DnCNN
from n3net.models.interface import Composed
from n3net.nn import N3Block2d, N3Options
from n3net.selection import Rule


class N3Net(Composed):
    """``stages`` DnCNNs of ``depth`` layers with an N3 block after each but the last.

    Args:
        in_channels, out_channels: of the image.
        stages: DnCNNs; 3 is the paper's full network, 2 its light one.
        depth: convolutions of each DnCNN.
        features: of their hidden layers.
        block_channels: C of the N3 blocks' input.
        k, patch_size, stride, window, options, rule: of the N3 blocks. With k = 0 there are none: the DnCNNs follow
            directly on each other.
        match_on: what patches are compared by: ``"embedding"``, learned; ``"input"``, the network's input image;
            ``"denoised"``, the output of a DnCNN of 17 layers, ``guide``, which has been trained before and stays as
            it is.
        fold: squares of so many pixels a side become channels of one, as in FFDNet, before the first DnCNN, and pixels
            again behind the last: patches, strides and windows are those of the smaller image.
        first_norm, norm: see :class:`DnCNN`; the blocks' own networks have batch norm in any case.
        backend: of :mod:`n3net.neighbors`.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int | None = None,
        *,
        stages: int = 3,
        depth: int = 6,
        features: int = 64,
        block_channels: int = 8,
        k: int = 7,
        patch_size: int = 10,
        stride: int = 5,
        window: int = 15,
        options: str | N3Options = "paper",
        rule: Rule = "continuous",
        match_on: Literal["embedding", "input", "denoised"] = "embedding",
        fold: int = 1,
        first_norm: bool = True,
        norm: bool = True,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if stages < 1:
            raise ValueError(f"stages: expected at least 1, got {stages}")
        if match_on not in ("embedding", "input", "denoised"):
            raise ValueError(f"match_on: expected 'embedding', 'input' or 'denoised', got {match_on!r}")
        if fold < 1:
            raise ValueError(f"fold: expected at least 1, got {fold}")
        out_channels = fold**2 * (in_channels if out_channels is None else out_channels)
        in_channels *= fold**2
        self.match_on, self.fold = match_on, fold
        self.blocks = nn.ModuleList(
            N3Block2d(
                block_channels,
                k,
                patch_size,
                stride,
                window,
                options=options,
                rule=rule,
                features=features,
                embedding="cnn" if match_on == "embedding" else None,
                backend=backend,
            )
            for _ in range(stages - 1 if k else 0)
        )
        wide = (k + 1) * block_channels
        self.stages = nn.ModuleList(
            DnCNN(
                in_channels if i == 0 else wide,
                out_channels if i == stages - 1 else block_channels,
                depth,
                features,
                first_norm=first_norm,
                norm=norm,
            )
            for i in range(stages)
        )
        self.guide = DnCNN(in_channels, out_channels, first_norm=first_norm) if match_on == "denoised" else None
        if self.guide is not None:
            self.guide.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> N3Net:
        """Training mode for all but the guide."""
        super().train(mode)
        if self.guide is not None:
            self.guide.eval()
        return self

    @property
    def reach(self) -> int:
        """How many pixels away an input pixel may influence an output pixel, where no window is shifted."""
        first, *rest = (stage.reach for stage in self.stages if isinstance(stage, DnCNN))
        if self.guide is not None:
            first = max(first, self.guide.reach)
        grids = [block.matching for block in self.blocks if isinstance(block, N3Block2d)]
        # a pixel's patch, the window around it, and the three convolutions of the block's own nets
        inner = first + sum(rest) + sum(g.patch_size - 1 + g.window // 2 * g.stride + 3 for g in grids)
        return self.fold * inner + self.fold - 1

    def forward(self, x: Tensor, match_on: Tensor | None = None) -> Tensor:
        """Restore an image (B, C, H, W).

        Args:
            x: the image.
            match_on: (B, E, H, W), compare patches of this instead.
        """
        height, width = x.shape[-2:]
        match_on = None if match_on is None else self.folded(match_on)
        y: Tensor = self.compose(lambda module, *maps: module(*maps), self.folded(x), match_on)
        return self.unfolded(y, height, width)

    def compose(self, apply: Callable[..., Any], x: Any, match_on: Any = None) -> Any:
        """The network as modules that are applied one after the other.

        Args:
            apply: (module, *inputs) -> output. :meth:`forward` calls the module; :mod:`n3net.restoration.streaming`
                has it computed a few rows at a time. The modules are N3 blocks, and networks that tell their ``reach``.
            x, match_on: as in :meth:`forward`, folded, or what stands for them.
        """
        if self.match_on == "input" and match_on is None:
            match_on = x
        if self.guide is not None and match_on is None:
            match_on = apply(self.guide, x)
        y = apply(self.stages[0], x)
        for i, stage in enumerate(list(self.stages)[1:]):
            y = apply(stage, apply(self.blocks[i], y, match_on) if len(self.blocks) else y)
        return y
