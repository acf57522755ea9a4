"""SelfEx (Huang, Singh and Ahuja 2015) without planes, our version: details from larger patches of the image itself.

An image is enlarged in small steps. Each patch of the next step, still without detail, looks for a larger patch of the
same image, turned and sheared, that looks the same when it is reduced; what that one has in detail, it takes over. The
search is PatchMatch (Barnes et al. 2009): random places and transforms, and those of neighbouring pixels. The authors'
program also finds planes of buildings, by a detector that is not public; and it works on colours, ours on luminance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from n3net.imaging.resizing import Size
from n3net.methods.enlarging import Progress, back_project, bicubic

SIDE = 5  # of a patch
SPREAD = 3.0  # of the Gaussian that weights its pixels
STEPS_PER_OCTAVE = 3
OCTAVES = 3  # down to which the image is reduced
LARGEST = 8.0  # scale of a source patch
MOST_BIAS = 0.25  # difference of brightness that is made up for
SCALE_COST = 1e-3
ROUNDS, FEWER, FEWEST = 12, 3, 3  # of the search: in the first step, fewer in each that follows, and at least
BACK_PROJECTIONS = 20
SEED = 0
PIXELS = 1 << 16  # that are compared at a time


def selfex(small: Tensor, size: Size, progress: Progress | None = None) -> Tensor:
    """Enlarge the luminance of an image.

    Args:
        small: (1, h, w) in [0, 1].
        size: height and width of the result.
        progress: called after each round of the search.

    Returns:
        (1, H, W). The same for the same image: the random numbers are seeded.
    """
    factor = max(side / before for side, before in zip(size, small.shape[1:], strict=True))
    steps = max(1, round(STEPS_PER_OCTAVE * math.log2(factor))) if factor > 1 else 0
    if steps == 0:
        return bicubic(small, size)
    ratio = factor ** (1 / steps)
    generator = torch.Generator().manual_seed(SEED)
    levels = [small]  # from large to small
    for i in range(1, round(OCTAVES * math.log(2) / math.log(ratio)) + 1):
        reduced = (max(1, round(side / ratio**i)) for side in small.shape[1:])
        levels.append(bicubic(small, tuple(reduced)))
    rounds = [max(FEWEST, ROUNDS - FEWER * i) for i in range(steps)]
    for i in range(steps):
        part = ratio ** (steps - 1 - i)
        step_size: Size = size if i == steps - 1 else (round(size[0] / part), round(size[1] / part))
        target = bicubic(levels[0], step_size)[0].clamp(0, 1)  # (H, W)
        search = _Search(target, _Pyramid.of(levels, ratio), ratio, generator)
        for number in range(rounds[i]):
            search.random()
            search.propagate()
            if progress is not None:
                progress((sum(rounds[:i]) + number + 1) / sum(rounds))
        levels.insert(0, back_project(search.vote()[None], small, BACK_PROJECTIONS).clamp(0, 1))
    return levels[0]


@dataclass(frozen=True)
class _Pyramid:
    """An image in several sizes, behind each other in memory: with detail, and as the next smaller one shows it."""

    high: Tensor
    low: Tensor
    starts: Tensor
    sizes: Tensor  # (levels, 2)
    ratio: float

    @classmethod
    def of(cls, levels: list[Tensor], ratio: float) -> _Pyramid:
        sharp, sizes = levels[:-1], [tuple(level.shape[1:]) for level in levels[:-1]]
        blurred = [bicubic(b, (a.shape[1], a.shape[2])) for a, b in zip(sharp, levels[1:], strict=True)]
        counts = torch.tensor([0, *(level.numel() for level in sharp)]).cumsum(0)[:-1]
        flat = [torch.cat([level.flatten() for level in part]) for part in (sharp, blurred)]
        return cls(flat[0], flat[1], counts, torch.tensor(sizes), ratio)

    def sample(self, values: Tensor, level: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """Bilinearly at parts y and x of the height and width of a level each: (N,), (N, K), (N, K) -> (N, K)."""
        height, width = self.sizes[level].T[..., None]  # (N, 1)
        y, x = (p.mul(side).sub(0.5).clamp(min=0) for p, side in ((y, height), (x, width)))
        y, x = torch.minimum(y, height - 1.0), torch.minimum(x, width - 1.0)
        top, left = y.long(), x.long()
        down, right = torch.minimum(top + 1, height - 1), torch.minimum(left + 1, width - 1)
        y, x = y - top, x - left
        start = self.starts[level][:, None]
        upper = torch.lerp(values[start + top * width + left], values[start + top * width + right], x)
        lower = torch.lerp(values[start + down * width + left], values[start + down * width + right], x)
        return torch.lerp(upper, lower, y)


@dataclass(frozen=True)
class _Sources:
    """For each pixel of the target, what its patch is taken from: where in the target, scale, turn and shear; (N,)."""

    y: Tensor
    x: Tensor
    scale: Tensor
    turn: Tensor
    shear: Tensor

    def moved(self, dy: Tensor | float, dx: Tensor | float) -> tuple[Tensor, Tensor]:
        """Where a pixel that lies so far from the patch's middle is taken from."""
        cos, sin = self.scale * self.turn.cos(), self.scale * self.turn.sin()
        u = dx + self.shear * dy
        return self.y + sin * u + cos * dy, self.x + cos * u - sin * dy

    def each(self, change: Callable[[Tensor], Tensor]) -> _Sources:
        return _Sources(*map(change, vars(self).values()))

    def where(self, better: Tensor, other: _Sources) -> _Sources:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Sources(*(torch.where(better, b, a) for a, b in pairs))

    def at(self, part: slice) -> _Sources:
        return self.each(lambda value: value[part, None])


class _Search:
    """PatchMatch for one step."""

    def __init__(self, target: Tensor, pyramid: _Pyramid, ratio: float, generator: torch.Generator) -> None:
        self.target, self.pyramid, self.ratio, self.generator = target, pyramid, ratio, generator
        self.height, self.width = target.shape
        reach = torch.arange(SIDE) - SIDE // 2
        self.dy, self.dx = (d.flatten().float() for d in torch.meshgrid(reach, reach, indexing="ij"))  # (K,)
        weights = torch.exp(-(self.dy**2 + self.dx**2) / (2 * SPREAD**2))
        self.weights = weights / weights.sum()
        padded = F.pad(target[None, None], (SIDE // 2,) * 4, mode="replicate")
        self.patches = F.unfold(padded, SIDE)[0].T  # (N, K)
        y, x = torch.meshgrid(torch.arange(self.height), torch.arange(self.width), indexing="ij")
        zeros = torch.zeros(target.numel())
        self.best = _Sources(y.flatten().float(), x.flatten().float(), zeros + 2.0, zeros, zeros)
        self.cost = self.costs(self.best)

    def level(self, scale: Tensor) -> Tensor:
        """The level of the pyramid whose pixels are about as far apart as those of a patch of this scale."""
        exact = scale.log() / math.log(self.ratio)
        return exact.round().long().sub(1).clamp(0, len(self.pyramid.sizes) - 1)

    def samples(self, values: Tensor, sources: _Sources, part: slice) -> Tensor:
        """The pixels of source patches: (n, K)."""
        y, x = sources.at(part).moved(self.dy, self.dx)
        level = self.level(sources.scale[part])
        return self.pyramid.sample(values, level, (y + 0.5) / self.height, (x + 0.5) / self.width)

    def bias(self, found: Tensor, part: slice) -> Tensor:
        return ((self.patches[part] - found) @ self.weights).clamp(-MOST_BIAS, MOST_BIAS)[:, None]

    def parts(self) -> list[slice]:
        return [slice(i, min(i + PIXELS, len(self.patches))) for i in range(0, len(self.patches), PIXELS)]

    def costs(self, sources: _Sources) -> Tensor:
        """How well patches fit, (N,)."""
        found = []
        for part in self.parts():
            low = self.samples(self.pyramid.low, sources, part)
            found.append((low + self.bias(low, part) - self.patches[part]).square() @ self.weights)
        outside = (sources.y < 0) | (sources.x < 0) | (sources.y > self.height - 1) | (sources.x > self.width - 1)
        outside |= (sources.scale < self.ratio) | (sources.scale > LARGEST)
        return torch.cat(found) + SCALE_COST * (self.ratio - sources.scale).clamp(min=0) + outside * 1e6

    def take(self, other: _Sources) -> None:
        cost = self.costs(other)
        better = cost < self.cost
        self.cost, self.best = torch.where(better, cost, self.cost), self.best.where(better, other)

    def random(self) -> None:
        """Try places and transforms around the best ones, closer and closer."""
        radius, number = max(self.height, self.width) / 8, 2
        while radius >= 1:
            draw = 2 * torch.rand(5, len(self.cost), generator=self.generator) - 1
            b = self.best
            self.take(
                _Sources(
                    b.y + radius * draw[0],
                    b.x + radius * draw[1],
                    (b.scale * (1 + 0.5 / number * draw[2])).clamp(self.ratio, LARGEST),
                    b.turn + math.pi / 8 / number * draw[3],
                    b.shear + 0.025 / number * draw[4],
                )
            )
            radius, number = radius / 2, number + 1

    def propagate(self) -> None:
        """Try what the four neighbours have found, moved by a pixel."""
        for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            other = self.best.each(partial(self.rolled, dy, dx))
            y, x = other.moved(float(dy), float(dx))
            self.take(replace(other, y=y, x=x))

    def rolled(self, dy: int, dx: int, values: Tensor) -> Tensor:
        return values.view(self.height, self.width).roll((dy, dx), (0, 1)).flatten()

    def vote(self) -> Tensor:
        """The patches with their detail, put together: (H, W)."""
        high = torch.empty_like(self.patches)
        for part in self.parts():
            bias = self.bias(self.samples(self.pyramid.low, self.best, part), part)
            high[part] = self.samples(self.pyramid.high, self.best, part) + bias
        size, margin = (self.height + SIDE - 1, self.width + SIDE - 1), SIDE // 2
        total = F.fold((high * self.weights).T[None], size, SIDE)
        weights = F.fold(self.weights[:, None].expand(-1, len(high))[None], size, SIDE)
        return (total / weights)[0, 0, margin : margin + self.height, margin : margin + self.width]
