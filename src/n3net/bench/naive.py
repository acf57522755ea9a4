"""The engine the way the program of 2018 computes it, to be measured against.

Patches are cut out whole; distances are products with gathered candidates, 64 at a time; the weights of each neighbour
are scattered into a matrix of all patches by all patches, which is multiplied with the patches.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from n3net.models import N3Net
from n3net.neighbors.grid import Grid, col2im, im2col
from n3net.neighbors.reference import slots_of
from n3net.nn import PRESETS, N3Block2d

CHUNK = 64


def neighbors(
    embedding: Tensor, values: Tensor, scale: Tensor, k: int, grid: Grid, norm: nn.Module | None = None
) -> Tensor:
    """k neighbour volumes with the untempered update: (B, C, H, W) -> (B, k C, H, W); ``norm`` is of the distances."""
    b, c, height, width = values.shape
    patch = grid.patch * grid.cell
    e, y = (im2col(t, patch, grid.cell).flatten(-2).transpose(1, 2) for t in (embedding, values))  # (B, Q, D)
    index = slots_of(grid, values.device)  # (Q, M)
    itself = index == torch.arange(len(index), device=index.device)[:, None]
    index = index[~itself].unflatten(0, (len(index), -1))  # (Q, M - 1)
    squares = e.square().sum(-1)  # (B, Q)
    products = torch.cat(
        [(e[:, part] @ e.unsqueeze(-1)).squeeze(-1) for part in index.split(CHUNK, 1)], -1
    )  # (B, Q, M - 1)
    d = squares[:, :, None] + squares[:, index] - 2 * products
    z = -scale.flatten(1)[..., None] * d
    if norm is not None:
        z = z * norm(d, torch.ones_like(d[0], dtype=torch.bool))
    volumes = []
    for _ in range(k):
        w = torch.softmax(z, -1)
        z = z + torch.log1p(-w.clamp(max=1 - 1e-7))
        spread = torch.zeros(b, len(index), len(index), dtype=w.dtype, device=w.device)
        spread.scatter_(-1, index.expand_as(w), w)  # (B, Q, Q)
        columns = (spread @ y).transpose(1, 2)  # (B, D, Q)
        columns = columns.unflatten(-1, (grid.query_rows, grid.query_cols)).unflatten(1, (c, -1)).flatten(0, 1)
        volumes.append(col2im(columns, height, width, patch, grid.cell).reshape(b, c, height, width))
    return torch.cat(volumes, 1)


class Block(nn.Module):
    """An N3 block of the 2018 program's kind, in training, whose nets are ours and whose engine is this one.

    For images that need no padding.
    """

    def __init__(self, block: N3Block2d) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor, match_on: Tensor | None = None) -> Tensor:
        block = self.block
        scale = block._choice(x, None).scale
        grid = block.matching.grid(*x.shape[-2:])
        found = neighbors(block.embed(x, match_on), x, scale, block.k, grid, block.normalization)
        return torch.cat([x, found - torch.cat([x] * block.k, 1)], 1)


def replace_blocks(net: N3Net) -> None:
    """Let the blocks of a network compute this way."""
    for i, block in enumerate(net.blocks):
        assert isinstance(block, N3Block2d)
        assert block.options == PRESETS["reference-2018"]
        net.blocks[i] = Block(block)
