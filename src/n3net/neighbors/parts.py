"""What :func:`n3net.neighbors.match_images` gives for a part of an image, from parts of the maps that it reads.

The patch grid and the shift of the windows at the border are those of the whole image, so the result is what the whole
image has there: no part has a border of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from n3net.neighbors.backends import choose
from n3net.neighbors.grid import Grid, Matching, Pads
from n3net.neighbors.images import match_images
from n3net.neighbors.limits import surely_finite
from n3net.neighbors.native import Places
from n3net.neighbors.problem import Choice, Distance, Gain, Images, Windows
from n3net.selection import Rule


@dataclass(frozen=True)
class Part:
    """Some rows and columns (B, C, h, w) of a map, from its row ``top`` and column ``left`` on."""

    tensor: Tensor
    top: int = 0
    left: int = 0

    def crop(self, rows: slice, cols: slice) -> Tensor:
        """Rows and columns of the map, which must be there, (B, C, h, w)."""
        height, width = self.tensor.shape[-2:]
        y, x = (slice(s.start - first, s.stop - first) for s, first in ((rows, self.top), (cols, self.left)))
        if y.start < 0 or x.start < 0 or y.stop > height or x.stop > width:
            raise ValueError(
                f"rows {rows.start} to {rows.stop} and columns {cols.start} to {cols.stop} are not in the part that is "
                f"there: {height} x {width} from {self.top}, {self.left} on"
            )
        return self.tensor[..., y, x]


@dataclass(frozen=True)
class Side:
    """One side of an image, and the patches along it.

    Args:
        size: pixels.
        before: zeros in front of them, which the padding has put there.
        patches: how many there are.
        matching: their size, stride and windows.
    """

    size: int
    before: int
    patches: int
    matching: Matching

    def touching(self, pixels: slice) -> slice:
        """Patches that have one of the pixels."""
        m = self.matching
        first = (pixels.start + self.before - m.patch_size) // m.stride + 1
        last = (pixels.stop - 1 + self.before) // m.stride
        return slice(max(first, 0), min(last + 1, self.patches))

    def seen(self, queries: slice) -> slice:
        """Patches in the windows of these, themselves included."""
        w = self.matching.window
        first, last = queries.start - w // 2, queries.stop - 1 - w // 2
        if self.matching.border == "shift":
            most = max(self.patches - w, 0)
            first, last = (min(max(start, 0), most) for start in (first, last))
        return slice(max(first, 0), min(last + w, self.patches))

    def pixels(self, patches: slice) -> slice:
        """The image's pixels that the patches have."""
        start, stop = self._ends(patches)
        return slice(max(start, 0), min(stop, self.size))

    def pads(self, patches: slice) -> tuple[int, int]:
        """Zeros before and after these pixels that complete the patches."""
        start, stop = self._ends(patches)
        return max(-start, 0), max(stop - self.size, 0)

    def _ends(self, patches: slice) -> tuple[int, int]:
        m = self.matching
        return patches.start * m.stride - self.before, (patches.stop - 1) * m.stride + m.patch_size - self.before


@dataclass(frozen=True)
class Layout:
    """An image's size and its patches."""

    rows: Side
    cols: Side
    grid: Grid

    @staticmethod
    def of(matching: Matching, height: int, width: int, pads: Pads | None = None) -> Layout:
        """For an image with the padding that :func:`match_images` would give it."""
        left, right, top, bottom = matching.padding(height, width) if pads is None else pads
        rows, cols = (
            Side(size, before, (before + size + after - matching.patch_size) // matching.stride + 1, matching)
            for size, before, after in ((height, top, bottom), (width, left, right))
        )
        return Layout(rows, cols, matching.grid(height, width, (left, right, top, bottom)))

    def pads(self, rows: slice, cols: slice) -> Pads:
        """Zeros (left, right, top, bottom) that complete these patches, around the image's pixels in them."""
        return *self.cols.pads(cols), *self.rows.pads(rows)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Parts of the maps of an :class:`n3net.neighbors.problem.Images` that is not there as a whole.

    Args:
        embedding, values: as far as the patches reach that are :meth:`Side.seen` by those that touch what is asked for.
        scales: of these patches, one value each: scale and strength, and for the Concrete rule annealing,
            (B, 2 or 3, qh, qw).
        layout: of the whole image.
        k, distance, rule: see :class:`n3net.neighbors.problem.Choice`.
        gain: see :class:`n3net.neighbors.problem.Images`; one that is computed for each patch from its own distances.
        differences, beside: likewise.
    """

    embedding: Part
    values: Part
    scales: Part
    layout: Layout
    k: int
    distance: Distance = "squared"
    rule: Rule = "continuous"
    gain: Gain | None = None
    differences: bool = False
    beside: bool = False

    def choice(self, scales: Tensor) -> Choice:
        """Of some patches, from (B, 2 or 3, qh, qw)."""
        scale, strength, *annealing = scales.unbind(1)
        return Choice(
            k=self.k,
            scale=scale,
            strength=strength,
            distance=self.distance,
            rule=self.rule,
            annealing=annealing[0] if annealing else None,
        )


@torch.no_grad()
def match_part(p: Parts, rows: slice, cols: slice, backend: str = "auto") -> Tensor:
    """Some rows and columns of what :func:`n3net.neighbors.match_images` gives, without gradients.

    Returns:
        (B, k C, h, w), or (B, (k + 1) C, h, w) beside the values.
    """
    layout, m = p.layout, p.layout.rows.matching
    sides = (layout.rows, rows), (layout.cols, cols)
    patches = [side.seen(side.touching(part)) for side, part in sides]
    pixels = [side.pixels(part) for (side, _), part in zip(sides, patches, strict=True)]
    e, v, s = p.embedding.crop(*pixels), p.values.crop(*pixels), p.scales.crop(*patches)
    choice = p.choice(p.scales.tensor)
    whole = Windows(embedding=p.embedding.tensor, values=p.values.tensor, choice=choice, grid=layout.grid)
    engine = choose(backend, whole)
    simple = m.patch_size % m.stride == 0 and p.gain is None and surely_finite(v)
    if engine.sweep is not None and simple and e.dtype == v.dtype == s.dtype:
        top, left = layout.rows.before, layout.cols.before
        places = Places(
            (p.embedding.top + top, p.embedding.left + left),
            (p.scales.top, p.scales.left),
            (p.values.top + top, p.values.left + left),
            (rows.start + top, cols.start + left, rows.stop - rows.start, cols.stop - cols.start),
        )
        return engine.sweep(whole, places, differences=p.differences, beside=p.beside)
    # The patches that are seen, alone, are an image in which the windows of those that touch the part are the same.
    part = Images(
        embedding=e,
        values=v,
        choice=p.choice(s),
        matching=m,
        gain=p.gain,
        differences=p.differences,
        beside=p.beside,
        pads=layout.pads(patches[0], patches[1]),
    )
    y, x = (slice(a.start - b.start, a.stop - b.start) for a, b in zip((rows, cols), pixels, strict=True))
    return match_images(part, backend)[..., y, x]
