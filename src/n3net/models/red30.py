"""RED30 (Mao, Shen and Yang 2016): convolutions and transposed convolutions with symmetric skips."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from n3net.models.interface import Network


class RED30(Network):
    """``depth / 2`` convolutions, then as many transposed ones, to which outputs of the former are added.

    Of 15 and 15, the outputs of the 14th, 12th, ..., 2nd convolution are added to those of the 1st, 3rd, ..., 13th
    transposed one, behind its ReLU.

    Args:
        in_channels, out_channels: of the image.
        depth: convolutions of both kinds, an even number.
        features: of the hidden layers.
        skip_every: the outputs of every so many convolutions are added.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int | None = None,
        depth: int = 30,
        features: int = 128,
        skip_every: int = 2,
    ) -> None:
        super().__init__()
        if depth < 2 or depth % 2 or skip_every < 1:
            raise ValueError(
                f"depth, skip_every: expected an even number and at least 1, got depth={depth}, skip_every={skip_every}"
            )
        self.out_channels = in_channels if out_channels is None else out_channels
        self.skip_every = skip_every
        half = depth // 2
        self.down = nn.ModuleList(
            nn.Conv2d(in_channels if i == 0 else features, features, 3, padding=1) for i in range(half)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(features, self.out_channels if i == half - 1 else features, 3, padding=1)
            for i in range(half)
        )
        if not self.down[0].weight.is_meta:
            self._initialise()

    def _initialise(self) -> None:
        for layer in [*self.down, *self.up]:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        nn.init.normal_(layer.weight, std=1e-3)  # starts near the identity: its input has grown with each skip

    @property
    def reach(self) -> int:
        """How many pixels away an input pixel may influence an output pixel."""
        return len(self.down) + len(self.up)

    def forward(self, x: Tensor) -> Tensor:
        y, outputs = x, []
        for layer in self.down:
            y = torch.relu(layer(y))
            outputs.append(y)
        for i, layer in enumerate(self.up, start=1):
            y, left = layer(y), len(outputs) - i  # so many convolutions does this layer's output mirror
            if left:
                y = torch.relu(y)
                if left % self.skip_every == 0:
                    y = y + outputs[left - 1]
        return y + x[:, : self.out_channels]
