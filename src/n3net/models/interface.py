"""What those who use a network need to know of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Recipe:
    """The name and the full config that :func:`n3net.models.create` built a model from; every model carries its own."""

    name: str
    config: dict[str, Any]  # JSON types only


@runtime_checkable
class Local(Protocol):
    """A module that says how far it looks."""

    @property
    def reach(self) -> int | None:
        """How many pixels away an input pixel may influence an output pixel; None for any number."""


class Network(nn.Module):
    """A network for images, (B, C, H, W) -> (B, C', H, W). Other modules can be used, too; they see whole images only.

    Attributes:
        alignment: a tile of an image starts at a multiple of so many pixels.
        estimates_noise: whether it finds out the noise level itself.
        tells_progress: whether ``forward`` takes ``progress``, which it calls with the part of its work that is done.
    """

    alignment: ClassVar[int] = 1
    estimates_noise: ClassVar[bool] = False
    tells_progress: ClassVar[bool] = False

    @property
    def reach(self) -> int | None:
        """How many pixels away an input pixel may influence an output pixel; None for any number."""
        return None


class Composed(Network):
    """A network of several that can be swept over an image, see :mod:`n3net.restoration.streaming`.

    Attributes:
        fold: squares of so many pixels a side become channels of one: :meth:`compose` sees the image :meth:`folded`.
    """

    fold: int = 1

    @abstractmethod
    def compose(self, apply: Callable[..., Any], x: Any) -> Any:
        """The network as modules that are applied one after the other.

        Args:
            apply: (module, *inputs) -> output; the modules are N3 blocks, and networks that tell their ``reach``.
            x: the input, or what stands for it.
        """

    def folded(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C fold², H / fold, W / fold), the last row and column repeated to whole squares."""
        if self.fold == 1:
            return x
        height, width = x.shape[-2:]
        x = F.pad(x, (0, -width % self.fold, 0, -height % self.fold), mode="replicate")
        return F.pixel_unshuffle(x, self.fold)

    def unfolded(self, x: Tensor, height: int, width: int) -> Tensor:
        """The image (B, C, height, width) of what :meth:`folded` makes of one."""
        return x if self.fold == 1 else F.pixel_shuffle(x, self.fold)[..., :height, :width]


class Stepwise(Network):
    """A network that needs the whole image between its steps, each of which can be done part by part."""

    @property
    @abstractmethod
    def step_count(self) -> int:
        """How often :meth:`in_steps` applies a module."""

    @abstractmethod
    def in_steps(self, apply: Callable[..., Tensor], x: Tensor) -> Tensor:
        """The network as modules that are applied to whole maps; :mod:`n3net.restoration.running` does it in parts."""

    def forward(self, x: Tensor) -> Tensor:
        """All steps, each on the whole image."""
        return self.in_steps(lambda module, *maps: module(*maps), x)


class Model(nn.Module):
    """What a name of the registry builds: a network, and how it is told what to do.

    Attributes:
        purpose: what it is for, in a word or two.
        recipe: how to build it again.
        record: what the file of its weights says of them; empty without one.
    """

    purpose: ClassVar[str]
    recipe: Recipe
    record: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.record = {}

    @staticmethod
    def ends(**settings: Any) -> tuple[int, int]:
        """Channels that the network is given and gives, for settings of the model's own."""
        raise NotImplementedError

    @abstractmethod
    def example(self, generator: torch.Generator) -> Tensor:
        """What it makes of something small and made up, to see whether it works."""
