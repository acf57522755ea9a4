"""BM3D (Dabov et al. 2007), gray and colour: two rounds of groups of similar patches that are filtered together.

The first round drops small coefficients; groups of the second are found on its result, which also says how the
coefficients of the noisy image are shrunk. Settings are the published ones but for two: patches of the second round are
9 x 9, between those for weak and for strong noise, and groups have no limit of distance. So nothing but thresholds
depends on the noise, which may be another at each pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from n3net.methods.collaborative import collaborate
from n3net.methods.transforms import dct, kaiser, spline_wavelet
from n3net.models.interface import Network
from n3net.neighbors.similar import Search, similar_patches

BETA = 2.0  # of the Kaiser window
THRESHOLD = 2.7  # in standard deviations of the noise
BAND = (
    48  # rows that are filtered one after the other: a multiple of the steps, and those two bands away are out of reach
)

# What a colour is turned into: brightness, on which groups are found, and two differences. Rows are of unit length and
# orthogonal, so that the noise stays as it is.
OPPONENT = (
    torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]]) / torch.tensor([[3.0], [2.0], [6.0]]).sqrt()
)


@dataclass(frozen=True)
class Round:
    """One of the two: which groups, and the matrix that transforms the sides of their patches."""

    search: Search
    matrix: Callable[[int], Tensor]
    threshold: float = 0.0

    def filter(self, noisy: Tensor, sigma: Tensor, guide: Tensor | None = None) -> Tensor:
        """An image (C, H, W), groups found on its first channel or on that of the guide; sigma (H, W)."""
        search = self.search
        index, _ = similar_patches((noisy if guide is None else guide)[:1], search)
        ys, xs = (search.starts(side) + search.patch // 2 for side in noisy.shape[1:])  # middles
        level = sigma[ys[:, None], xs].expand(len(noisy), -1, -1)  # (C, Qh, Qw)
        there, back, window = _matrices(self.matrix, search.patch)
        return collaborate(
            noisy, index, level, search, (there, back), window, threshold=self.threshold, guide=guide, band=BAND
        )


FIRST = Round(Search(8, 3, 19, 16), spline_wavelet, THRESHOLD)
SECOND = Round(Search(9, 3, 19, 32), dct)


@cache
def _matrices(matrix: Callable[[int], Tensor], side: int) -> tuple[Tensor, Tensor, Tensor]:
    there = matrix(side)
    return there, torch.linalg.inv(there), kaiser(side, BETA)


def bm3d(noisy: Tensor, sigma: float | Tensor) -> Tensor:
    """Remove white Gaussian noise.

    Args:
        noisy: (1, H, W), or (3, H, W) of red, green and blue; black 0, white 1.
        sigma: standard deviation of the noise in gray levels of 0..255, a number or a map (H, W).

    Returns:
        The image, of the same shape, not clipped.
    """
    if noisy.dim() != 3 or len(noisy) not in (1, 3):
        raise ValueError(f"noisy: expected shape (1, H, W) or (3, H, W), got {tuple(noisy.shape)}")
    height, width = noisy.shape[1:]
    least = max(r.search.patch for r in (FIRST, SECOND))
    level = torch.as_tensor(sigma, dtype=noisy.dtype, device=noisy.device).expand(height, width)
    image = _at_least(255 * _turned(noisy, OPPONENT), least)
    level = _at_least(level[None], least)[0]
    basic = FIRST.filter(image, level)
    out = SECOND.filter(image, level, basic)[:, :height, :width] / 255
    return _turned(out, OPPONENT.T)


def _turned(image: Tensor, matrix: Tensor) -> Tensor:
    return image if len(image) == 1 else torch.einsum("ij,jhw->ihw", matrix.to(image), image)


def _at_least(image: Tensor, side: int) -> Tensor:
    """With sides of at least so many pixels, repeated at the lower and right border."""
    height, width = image.shape[1:]
    return F.pad(image, (0, max(0, side - width), 0, max(0, side - height)), mode="replicate")


class BM3D(Network):
    """:func:`bm3d` in the place of a network that is told the noise: (B, channels + 1, H, W) -> (B, channels, H, W)."""

    alignment = 2 * BAND  # so that the result is the same to the last bit
    out_channels: int  # tells how much memory is needed

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels, self.out_channels = channels, 12 * channels

    @property
    def reach(self) -> int:
        return sum(2 * (r.search.radius + r.search.patch) for r in (FIRST, SECOND))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([bm3d(image[: self.channels], 255 * image[self.channels]) for image in x])
