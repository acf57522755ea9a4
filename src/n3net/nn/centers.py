"""The output of a small CNN at the center pixels of patches, without computing it everywhere."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from n3net.kernel.convolution import Squares, at_squares
from n3net.neighbors.grid import Matching, Pads
from n3net.nn.convolutions import FusedSequential


def at_centers(net: Any, x: Tensor, matching: Matching, pads: Pads | None) -> Tensor:
    """``net(x)`` at each patch's center, (B, C, H, W) -> (B, Qh, Qw), for a net of three 3 x 3 convolutions.

    The last convolution takes steps of a stride. In evaluation the one before it computes only the three rows around
    each center, three of five for the paper's stride; in training its batch norm needs the others, too.
    """
    height, width = x.shape[-2:]
    grid, stride = matching.grid(height, width, pads), matching.stride
    left, _, top, _ = matching.padding(height, width) if pads is None else pads
    y, first = (matching.patch_size // 2 - before for before in (top, left))  # center of the first patch
    rows, cols = grid.query_rows, grid.query_cols
    last_y, last_x = y + (rows - 1) * stride, first + (cols - 1) * stride
    fused = isinstance(net, FusedSequential)
    inside = min(y, first) >= 1 and last_y + 1 < height and last_x + 1 < width  # 3 x 3 pixels around each center
    if fused and inside and stride > 3 and net.why_not(x) is None:
        *layers, last = net.convolutions
        squares = Squares(rows, cols, stride, y - 1, first - 1)
        return at_squares(x, [layer.ready for layer in layers], squares, last.weight, last.bias)
    if fused or last_y >= height or last_x >= width:  # a center lies in the padding
        return matching.at_patches(net(x), "center", pads)
    conv, norm, relu, last = net[3:]
    hidden = net[:3](x)  # (B, F, H, W)
    steps, around = _steps(first, stride)
    if not net.training and stride == 5 and y >= 2 and y - 2 + rows * stride <= height:
        # Rows y - 2 .. y + 2 around a center are as many as a stride: a view, with each center's rows in the batch.
        bands = hidden[:, :, y - 2 : y - 2 + rows * stride].unflatten(2, (rows, stride)).transpose(1, 2).flatten(0, 1)
        hidden = relu(norm(F.conv2d(bands, conv.weight, conv.bias, padding=(0, 1))))  # (B Qh, F, 3, W)
        out = F.conv2d(hidden, last.weight, last.bias, stride=(1, stride), padding=(0, around))  # (B Qh, 1, 1, n)
        return out[:, 0, 0, steps : steps + cols].unflatten(0, (x.shape[0], rows))
    up, above = _steps(y, stride)
    hidden = relu(norm(conv(hidden)))
    out = F.conv2d(hidden, last.weight, last.bias, stride=stride, padding=(above, around))  # (B, 1, n, n)
    return out[:, 0, up : up + rows, steps : steps + cols]


def _steps(first: int, stride: int) -> tuple[int, int]:
    """Padding with which a 3 x 3 convolution meets pixel ``first`` at a multiple of its stride, and at which one."""
    steps = (first + stride - 1) // stride
    return steps, 1 + steps * stride - first
