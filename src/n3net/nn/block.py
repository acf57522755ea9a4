"""What all N3 blocks share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from n3net.neighbors.problem import Choice
from n3net.nn.options import N3Options, as_options
from n3net.selection import Rule, check_choice

# The lowest log t that a net of temperatures may predict, 0 being the option's temperature_scale. Choices are hard long
# before. Beyond it, logits are so large that their gradients are rounding, times their size: one patch of one crop can
# make a step of training that undoes hundreds.
COLDEST = -10.0


class Block(nn.Module):
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
        self.options = as_options(options)

    @property
    def out_channels(self) -> int:
        return (self.k + 1) * self.channels

    def extra_repr(self) -> str:
        return f"channels={self.channels}, k={self.k}, rule={self.rule!r}, options={self.options}"

    def embed(self, x: Tensor, match_on: Tensor | None) -> Tensor:
        if match_on is not None:
            return match_on
        if self.embedding is None:
            raise ValueError("match_on: this block has no embedding net of its own, pass what it shall match on")
        out: Tensor = self.embedding(x)
        return out

    def scale_and_strength(self, net: Tensor) -> tuple[Tensor, Tensor]:
        """From the temperature net's output per query to the scale of the logits and the strength of their update."""
        o = self.options
        net = net.to(torch.promote_types(net.dtype, torch.float32))
        scale = net if o.temperature == "inverse" else torch.exp(-net.clamp(min=COLDEST)) / o.temperature_scale
        return scale, scale if o.update == "tempered" else torch.ones_like(scale)

    def choosing(
        self, scale: Tensor, strength: Tensor, annealing: Tensor | None, generator: torch.Generator | None
    ) -> Choice:
        return Choice(
            k=self.k,
            scale=scale,
            strength=strength,
            distance=self.options.distance,
            rule=self.rule,
            annealing=annealing,
            generator=generator,
        )
