"""Neighbours of image patches, from features to feature volumes N_1 .. N_k (Sec. 4 of the paper)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from n3net.modes import constant, undisturbed
from n3net.neighbors import native
from n3net.neighbors.backends import choose
from n3net.neighbors.grid import Border, Grid, col2im, crop, grid_for, im2col, pad, padding
from n3net.neighbors.grid import Pads as Pads
from n3net.neighbors.limits import compared, gained, logits, marked, root
from n3net.neighbors.native import Places
from n3net.selection import Rule

Distance = Literal["euclidean", "squared"]


@dataclass(frozen=True)
class Matching:
    """Which patches of an image are compared: P x P pixels every ``stride`` pixels, with ``window``² of them around."""

    patch_size: int = 10
    stride: int = 5
    window: int = 15
    border: Border = "shift"

    def __post_init__(self) -> None:
        for name in ("patch_size", "stride", "window"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: expected an integer of at least 1, got {value!r}")
        if self.stride > self.patch_size:
            raise ValueError(
                f"stride: expected at most patch_size = {self.patch_size}, so that every pixel lies in a patch, "
                f"got {self.stride}"
            )
        if self.border not in ("shift", "clip"):
            raise ValueError(f"border: expected 'shift' or 'clip', got {self.border!r}")

    def padding(self, height: int, width: int) -> Pads:
        """Zeros (left, right, top, bottom) that complete the patches of an image of this size."""
        return padding(height, width, self.patch_size, self.stride)

    def grid(self, height: int, width: int, pads: Pads | None = None) -> Grid:
        """The grid of an image of this size after padding."""
        left, right, top, bottom = self.padding(height, width) if pads is None else pads
        return grid_for(
            height + top + bottom, width + left + right, self.patch_size, self.stride, self.window, self.border
        )

    def at_patches(self, image: Tensor, where: Literal["center", "mean"], pads: Pads | None = None) -> Tensor:
        """The value of a map at each patch, its centre pixel or its mean: (B, 1, H, W) -> (B, Qh, Qw)."""
        image = pad(image, self.padding(image.shape[-2], image.shape[-1]) if pads is None else pads)
        p, s = self.patch_size, self.stride
        if where == "mean":
            return F.avg_pool2d(image, p, s).squeeze(1)
        height, width = image.shape[-2:]
        return image[:, 0, p // 2 : height - p + p // 2 + 1 : s, p // 2 : width - p + p // 2 + 1 : s]


@undisturbed
def match_images(
    embedding: Tensor,
    values: Tensor,
    scale: Tensor,
    strength: Tensor,
    k: int,
    matching: Matching,
    *,
    distance: Distance = "squared",
    rule: Rule = "continuous",
    gain: Callable[[Tensor, Tensor], Tensor] | None = None,
    annealing: Tensor | None = None,
    generator: torch.Generator | None = None,
    differences: bool = False,
    beside: bool = False,
    pads: Pads | None = None,
    backend: str = "auto",
) -> Tensor:
    """k neighbour volumes of an image.

    What becomes of numbers that are none, or too large: see :mod:`n3net.neighbors.limits`.

    Args:
        embedding: what is compared, (B, E, H, W).
        values: what is aggregated, (B, C, H, W).
        scale: of the logits, 1 / t for each patch, (B, Qh, Qw): z = -scale * distance.
        strength: of the logit update, (B, Qh, Qw).
        k: neighbours.
        matching: patches and windows.
        distance: of two patches, the root of the sum of squares or the sum itself.
        rule: see :func:`n3net.select`.
        gain: a further factor of the logits, (B, Qh, Qw) or a scalar, computed from all distances (B, Qh, Qw, M) and
            the mask of candidates.
        annealing: of the Concrete rule, (B, Qh, Qw).
        generator: for the rules that draw.
        differences: whether the values are subtracted from each volume.
        beside: whether the values come first in the result.
        pads: zeros (left, right, top, bottom) around the image, for a tile whose patch grid is that of a larger image;
            by default as many as complete the patches.
        backend: ``"auto"`` or a name, see :mod:`n3net.neighbors`.

    Returns:
        N_1 .. N_k, (B, k C, H, W), or (B, (k + 1) C, H, W) beside the values.
    """
    height, width = values.shape[-2:]
    dtype = values.dtype
    work = torch.promote_types(torch.promote_types(dtype, embedding.dtype), torch.float32)
    embedding, values, scale, strength = (t.to(work) for t in (embedding, values, scale, strength))
    if backend not in ("auto", "native") or native.why_not(values, rule) is not None:
        height, width = constant(height), constant(width)
    pads = matching.padding(height, width) if pads is None else pads
    grid = matching.grid(height, width, pads)
    if not torch.compiler.is_compiling():
        if any((size - matching.patch_size) % matching.stride for size in _padded(height, width, pads)):
            raise ValueError(
                f"pads: a {height} x {width} image with {pads} zeros (left, right, top, bottom) is no whole number of "
                f"patches of {matching.patch_size} pixels every {matching.stride}"
            )
        _check(embedding, values, scale, strength, k, grid)
    engine, euclidean = choose(backend, values, grid, rule), distance == "euclidean"
    x = values
    embedding, values = marked(embedding, values)
    whole_cells = matching.patch_size % matching.stride == 0
    if gain is not None and not torch.is_grad_enabled():
        # Distances are computed twice, here and in the sweep, which costs less than to do without it.
        source = pad(compared(embedding, embedding.shape[1] * matching.patch_size**2), pads)
        source = source if whole_cells else im2col(source, matching.patch_size, matching.stride)
        d = engine.distances(source, grid)  # (B, Qh, Qw, M)
        scale, gain = gained(gain, root(d) if euclidean else d, grid.candidates(d.device), scale), None
    if engine.sweep is not None and whole_cells and gain is None and not torch.is_grad_enabled():
        corner = (pads[2], pads[0])
        places = Places(corner, (0, 0), corner, (*corner, height, width))
        last = {"euclidean": euclidean, "differences": differences, "beside": beside, "places": places, "rule": rule}
        out = engine.sweep(embedding, scale, strength, values, grid, k, **last)
        if beside and values is not x:
            out[:, : x.shape[1]] = x
        return out.to(dtype)
    embedding = compared(embedding, embedding.shape[1] * matching.patch_size**2)
    embedding, values = pad(embedding, pads), pad(values, pads)
    padded_height, padded_width = values.shape[-2:]
    if not whole_cells:
        embedding, values = (im2col(t, matching.patch_size, matching.stride) for t in (embedding, values))
    options: dict[str, Any] = {"rule": rule}
    if rule in ("stochastic", "concrete"):
        options["generator"] = generator
    if rule == "concrete" and annealing is not None:
        options["annealing"] = annealing.to(work)
    if gain is None:
        out = engine.neighbors(embedding, scale, strength, values, grid, k, euclidean=euclidean, **options)
    else:
        d = engine.distances(embedding, grid)  # (B, Qh, Qw, M)
        d = root(d) if euclidean else d
        scale = gained(gain, d, grid.candidates(d.device), scale)
        out = engine.aggregate(logits(d, scale), strength, values, grid, k, **options)
    if not whole_cells:
        columns = out.unflatten(1, (-1, matching.patch_size**2)).flatten(0, 1)  # (B k C, P², Qh, Qw)
        image = col2im(columns, padded_height, padded_width, matching.patch_size, matching.stride)
        out = image.reshape(out.shape[0], -1, padded_height, padded_width)
        out = out.masked_fill(out.isnan(), torch.nan)  # without gradient
    out = crop(out, pads)
    if differences:
        out = out - torch.cat([x] * k, 1)  # cat keeps the memory format
    return (torch.cat([x, out], 1) if beside else out).to(dtype)


def _padded(height: int, width: int, pads: Pads) -> tuple[int, int]:
    return height + pads[2] + pads[3], width + pads[0] + pads[1]


def _check(embedding: Tensor, values: Tensor, scale: Tensor, strength: Tensor, k: int, grid: Grid) -> None:
    if values.dim() != 4:
        raise ValueError(f"values: expected shape (B, C, H, W), got {tuple(values.shape)}")
    b, _, h, w = values.shape
    if embedding.dim() != 4 or (embedding.shape[0], *embedding.shape[2:]) != (b, h, w):
        raise ValueError(f"embedding: expected shape ({b}, E, {h}, {w}) like the values, got {tuple(embedding.shape)}")
    expected = (b, grid.query_rows, grid.query_cols)
    for name, tensor in (("scale", scale), ("strength", strength)):
        if tuple(tensor.shape) != expected:
            raise ValueError(f"{name}: expected one value per patch, shape {expected}, got {tuple(tensor.shape)}")
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"k: expected an integer of at least 1, got {k!r}")
    fewest = grid.fewest_candidates()
    if k > fewest:
        raise ValueError(
            f"k: {k} neighbours were asked for, but a patch of a {h} x {w} image has only {fewest} candidates; "
            "use a larger image, a smaller patch_size or stride, or a smaller k"
        )
