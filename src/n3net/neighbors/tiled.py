"""Matching in pure PyTorch, in tiles: any device, any size, gradients of any order.

A tile of T x T queries looks at the patches of one region, (T + w - 1) of them along an axis, so distances and
weighted sums are batched matrix products. Cells are multiplied once and shared by the m² patches that contain them
(see ``grid.py``); weights are averaged over those patches before they meet the cells. There is no im2col.

The backend ``dense`` is this one with a single tile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from n3net.neighbors import all_pairs, candidates
from n3net.neighbors.grid import Grid, Time
from n3net.neighbors.limits import gained, logits, logits_of, root, weigh
from n3net.neighbors.problem import Sets, Windows

STILL = Time()
TILE = 8  # cells along one side of a tile
MAX_DENSE = 32  # queries along one side up to which one tile serves the whole image
CHUNK = 24_000_000  # numbers in the largest tensor of a chunk of tiles


def why_not(problem: Windows | Sets) -> str | None:
    """Why this backend cannot run, or None: pure PyTorch always can."""
    return None


def windows(problem: Windows, tile: int | None = TILE) -> Tensor:
    """All neighbours of all patches as volumes, (B, k C, H, W); without gradients in chunks of tiles."""
    if tile is None or torch.is_grad_enabled():
        d = distances(problem.embedding, problem.grid, tile, problem.time)
        return aggregate(logits_of(problem, d), problem, tile)
    return _in_chunks(problem, tile)


@dataclass(frozen=True)
class _Axis:
    """Tiles of queries along one axis, and the region of patches that each tile looks at."""

    queries: Tensor  # (n, T) numbers of the queries, clamped to the axis
    valid: Tensor  # (n, T) true where that is a query
    cells: Tensor  # (n, T + m - 1) numbers of the cells of the queries, clamped to the axis
    region: Tensor  # (n, R + m - 1) numbers of the cells of the region, clamped to the axis
    slot: Tensor  # (n, T, w) place in the region of each slot, clamped to the region

    @classmethod
    def make(cls, grid: Grid, total: int, first: int, tiles: int, step: int, count: int, device: torch.device) -> _Axis:
        """Tile i has the ``count`` queries from ``first + i * step`` on, of ``total`` queries along the axis."""
        exporting, m = torch.compiler.is_exporting(), grid.patch
        size = count + grid.window - 1
        raw = first + step * torch.arange(tiles, device=device)[:, None]  # (n, 1)
        queries = raw + torch.arange(count, device=device)
        inside = queries.clamp(0, total - 1)
        start = grid.start(total, device)[inside]  # (n, T)
        base = start[:, :1].clamp(min=0)
        if not exporting:  # where the axis is shorter than the region, the region shrinks
            size = min(size, total)
            base = base.clamp(max=total - size)
        cells = (raw + torch.arange(count + m - 1, device=device)).clamp(0, total + m - 2)
        region = (base + torch.arange(size + m - 1, device=device)).clamp(0, total + m - 2)
        slot = start[..., None] + torch.arange(grid.window, device=device) - base[..., None]
        return cls(inside, queries == inside, cells, region, slot.clamp(0, size - 1))


def distances(embedding: Tensor, grid: Grid, tile: int | None = TILE, time: Time = STILL) -> Tensor:
    """Squared distances of patches, 0 where a slot is no candidate: (B, C, H, W) -> (B, Qh, Qw, M)."""
    rows, cols = grid.query_rows, grid.query_cols
    ty, tx = _tile_sizes(rows, cols, tile)
    y = _Axis.make(grid, rows, 0, _tiles(rows, ty), ty, ty, embedding.device)
    x = _Axis.make(grid, cols, 0, _tiles(cols, tx), tx, tx, embedding.device)
    d = _distances(_cells(embedding, grid), grid, time, y, x)  # (B, ny, nx, ty, tx, M)
    d = d.permute(0, 1, 3, 2, 4, 5).flatten(3, 4).flatten(1, 2)[:, :rows, :cols]  # (B, Qh, Qw, M)
    return torch.where(time.candidates(grid, d.shape[0], d.device), d, 0)


def aggregate(z: Tensor, problem: Windows, tile: int | None = TILE) -> Tensor:
    """Select k neighbours by their logits and put them into the image: (B, Qh, Qw, M) -> (B, k C, H, W)."""
    values, grid = problem.values, problem.grid
    w, dead = weigh(z, problem.candidates, problem.choice)  # (B, Qh, Qw, k, M)
    y, x = _cell_tiles(grid, values.device, 0, grid.rows, 0, grid.cols, tile)
    at = (slice(None), y.queries[:, None, :, None], x.queries[None, :, None, :])  # (B, ny, nx, ty, tx)
    cells = _aggregate(w[at], dead[at], _cells(values, grid), grid, problem.time, y, x)  # (B, rows, cols, k, F)
    return _image(cells[:, : grid.rows, : grid.cols], grid)


def _in_chunks(problem: Windows, tile: int) -> Tensor:
    """:func:`distances` and :func:`aggregate` for a chunk of tiles at a time."""
    values, grid, choice = problem.values, problem.grid, problem.choice
    candidates, euclidean = problem.candidates, choice.distance == "euclidean"
    if problem.gain is not None:  # distances are computed twice, which costs less than to keep the weights of all
        d = distances(problem.embedding, grid, tile, problem.time)
        scale = gained(problem.gain, root(d) if euclidean else d, candidates, choice.scale)
        choice = replace(choice, scale=scale)
    e, v = _cells(problem.embedding, grid), _cells(values, grid)
    out: Tensor | None = None
    for r0, r1, c0, c1 in _chunks(grid, values.shape[0] * choice.k * problem.time.frames, tile):
        y, x = _cell_tiles(grid, values.device, r0, r1, c0, c1, tile)
        at = (slice(None), y.queries[:, None, :, None], x.queries[None, :, None, :])  # (B, ny, nx, ty, tx)
        keep, chosen = candidates[at], choice.at(at)  # (1 or B, ny, nx, ty, tx, M)
        d = _distances(e, grid, problem.time, y, x).masked_fill(~keep, 0)  # (B, ny, nx, ty, tx, M)
        w, dead = weigh(logits(root(d) if euclidean else d, chosen.scale), keep, chosen)
        part = _image(_aggregate(w, dead, v, grid, problem.time, y, x)[:, : r1 - r0, : c1 - c0], grid)  # (B, k C, h, w)
        if part.shape[-2:] == values.shape[-2:]:
            return part
        if out is None:
            out = part.new_empty(*part.shape[:2], *values.shape[-2:])
        s = grid.cell
        out[..., r0 * s : r1 * s, c0 * s : c1 * s] = part
    assert out is not None
    return out


def _chunks(grid: Grid, copies: int, tile: int | None) -> list[tuple[int, int, int, int]]:
    """Rectangles of cells (r0, r1, c0, c1) whose weights fit into CHUNK numbers, or nearly."""
    if tile is None or torch.compiler.is_exporting():
        return [(0, grid.rows, 0, grid.cols)]
    side = tile + grid.patch - 1
    per_tile = max(1, copies) * side**2 * (side + grid.window + grid.patch) ** 2
    tiles = max(1, CHUNK // per_tile)
    width = tile * min(tiles, _tiles(grid.cols, tile))
    height = tile * max(1, tiles * tile // width)
    return [
        (r, min(r + height, grid.rows), c, min(c + width, grid.cols))
        for r in range(0, grid.rows, height)
        for c in range(0, grid.cols, width)
    ]


def _distances(cells: Tensor, grid: Grid, time: Time, y: _Axis, x: _Axis) -> Tensor:
    """Squared distances for tiles of queries, in slots: (B, Gh, Gw, F) -> (B, ny, nx, ty, tx, M)."""
    none = cells.isnan()
    cells = cells.masked_fill(none, 0)
    nan = cells.new_zeros(cells.shape[:-1]).masked_fill(none.any(-1), torch.nan)[..., None]  # (B, Gh, Gw, 1)
    frames = zip(time.others(cells), time.others(nan), strict=True)
    return torch.cat([_between(cells, nan, *frame, grid, y, x) for frame in frames], -1)


def _between(cells: Tensor, nan: Tensor, others: Tensor, others_nan: Tensor, grid: Grid, y: _Axis, x: _Axis) -> Tensor:
    """The same for queries of one frame and windows in another."""
    m = grid.patch
    (ty, tx), (ry, rx) = _shape(y, x, m)
    a = _take(cells, y.cells, x.cells)  # (B, ny, nx, ay, ax, F)
    b = _take(others, y.region, x.region)  # (B, ny, nx, by, bx, F)
    # Distances do not change with the origin; around the region's mean, products lose fewer digits.
    mean = b.mean((-3, -2), keepdim=True).detach()
    a, b = (a - mean).flatten(-3, -2), (b - mean).flatten(-3, -2)
    aa = a.square().sum(-1) + _take(nan, y.cells, x.cells).flatten(-3)  # (B, ny, nx, ay ax)
    bb = b.square().sum(-1) + _take(others_nan, y.region, x.region).flatten(-3)  # (B, ny, nx, by bx)
    d = aa[..., :, None] + bb[..., None, :] - 2 * a @ b.transpose(-1, -2)
    d = d.unflatten(-1, (ry + m - 1, rx + m - 1)).unflatten(-3, (ty + m - 1, tx + m - 1))
    d = _sum([d[..., u : u + ty, v : v + tx, u : u + ry, v : v + rx] for u in range(m) for v in range(m)])
    d = d.clamp(min=0)  # (B, ny, nx, ty, tx, ry, rx)
    rows = y.slot[None, :, None, :, None, :, None].expand(*d.shape[:-2], grid.window, rx)
    d = d.gather(-2, rows)  # (B, ny, nx, ty, tx, w, rx)
    cols = x.slot[None, None, :, None, :, None, :].expand(*d.shape[:-1], grid.window)
    return d.gather(-1, cols).flatten(-2)


def _aggregate(w: Tensor, dead: Tensor, cells: Tensor, grid: Grid, time: Time, y: _Axis, x: _Axis) -> Tensor:
    """Weighted sums of cells, averaged over patches: (B, ny, nx, ty, tx, k, M) -> (B, rows, cols, k, F).

    Cells of queries that are dead, (B, ny, nx, ty, tx), are NaN.
    """
    parts = zip(w.chunk(time.frames, -1), time.others(cells), strict=True)
    return _sum([_aggregate_from(part, dead, others, grid, y, x) for part, others in parts])


def _aggregate_from(w: Tensor, dead: Tensor, cells: Tensor, grid: Grid, y: _Axis, x: _Axis) -> Tensor:
    """The same from one frame."""
    m, k = grid.patch, w.shape[-2]
    (qy, qx), (ry, rx) = _shape(y, x, m)
    valid = y.valid[:, None, :, None] & x.valid[None, :, None, :]  # (ny, nx, ty, tx)
    w = w * valid[..., None, None].to(w.dtype)
    index = y.slot[:, None, :, None, :, None] * rx + x.slot[None, :, None, :, None, :]  # (ny, nx, ty, tx, w, w)
    index = index.flatten(-2)[None, ..., None, :].expand_as(w)
    spread = w.new_zeros(*w.shape[:-1], ry * rx).scatter_add(-1, index, w).unflatten(-1, (ry, rx))
    # Cell t + u of the tile belongs to query t as its member u, and takes the cell of the region that is member u too.
    cy, cx = qy - m + 1, qx - m + 1
    met = _sum(
        [
            F.pad(
                spread[..., m - 1 - u : m - 1 - u + cy, m - 1 - v : m - 1 - v + cx, :, :, :],
                (v, m - 1 - v, u, m - 1 - u),
            )
            for u in range(m)
            for v in range(m)
        ]
    )  # (B, ny, nx, cy, cx, k, ry + m - 1, rx + m - 1)
    b = _take(cells, y.region, x.region).flatten(-3, -2)  # (B, ny, nx, R, F)
    out = met.flatten(-2).flatten(-4, -2) @ b  # (B, ny, nx, cy cx k, F)
    out = out.unflatten(-2, (cy, cx, k)).permute(0, 1, 3, 2, 4, 5, 6).flatten(3, 4).flatten(1, 2)
    count = _members(y, m)[:, None] * _members(x, m)  # (rows, cols)
    some = (dead & valid).to(out.dtype)
    some = _sum([some[..., u : u + cy, v : v + cx] for u in range(m) for v in range(m)])  # (B, ny, nx, cy, cx)
    none = some.permute(0, 1, 3, 2, 4).flatten(3).flatten(1, 2)[..., None, None] > 0  # (B, rows, cols, 1, 1)
    return (out / count[..., None, None].to(out.dtype)).masked_fill(none, torch.nan)


def _shape(y: _Axis, x: _Axis, m: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Queries of a tile, and patches of its region, along y and x."""
    queries = (y.queries.shape[1], x.queries.shape[1])
    return queries, (y.region.shape[1] - m + 1, x.region.shape[1] - m + 1)


def _members(axis: _Axis, m: int) -> Tensor:
    """In how many queries each cell of the tiles lies -> (n cells,)."""
    valid = axis.valid.long()
    cells = axis.queries.shape[1] - m + 1
    return _sum([valid[:, m - 1 - u : m - 1 - u + cells] for u in range(m)]).flatten().clamp(min=1)


def _cell_tiles(
    grid: Grid, device: torch.device, r0: int, r1: int, c0: int, c1: int, tile: int | None
) -> tuple[_Axis, _Axis]:
    """Tiles of cells of a rectangle: the queries of each are those whose patches touch it."""
    m = grid.patch
    ty, tx = _tile_sizes(r1 - r0, c1 - c0, tile)
    y = _Axis.make(grid, grid.query_rows, r0 - m + 1, _tiles(r1 - r0, ty), ty, ty + m - 1, device)
    x = _Axis.make(grid, grid.query_cols, c0 - m + 1, _tiles(c1 - c0, tx), tx, tx + m - 1, device)
    return y, x


def _tile_sizes(rows: int, cols: int, tile: int | None) -> tuple[int, int]:
    if tile is None:
        return rows, cols
    return (tile, tile) if torch.compiler.is_exporting() else (min(tile, rows), min(tile, cols))


def _tiles(length: int, size: int) -> int:
    """Tiles along an axis. An exported program always has two or more, so that it need not treat one as special."""
    return length // size + 2 if torch.compiler.is_exporting() else (length + size - 1) // size


def _sum(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _cells(image: Tensor, grid: Grid) -> Tensor:
    b, c, s = image.shape[0], image.shape[1], grid.cell
    cells = image.reshape(b, c, grid.rows, s, grid.cols, s).permute(0, 2, 4, 1, 3, 5)
    return cells.reshape(b, grid.rows, grid.cols, c * s * s)  # (B, Gh, Gw, F)


def _image(cells: Tensor, grid: Grid) -> Tensor:
    b, rows, cols, k, f = cells.shape
    s = grid.cell
    pixels = cells.reshape(b, rows, cols, k * f // (s * s), s, s).permute(0, 3, 1, 4, 2, 5)
    return pixels.reshape(b, k * f // (s * s), rows * s, cols * s)  # (B, k C, rows s, cols s)


def _take(cells: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Cells of the rectangles y x x: (B, Gh, Gw, F), (ny, a), (nx, b) -> (B, ny, nx, a, b, F)."""
    return cells[:, y[:, None, :, None], x[None, :, None, :]]


def sets(problem: Sets) -> Tensor:
    """All neighbours of all queries, (B, Q, k, C)."""
    if problem.candidates is not None:
        return candidates.neighbors(problem)
    return all_pairs.neighbors(problem)
