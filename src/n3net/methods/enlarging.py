"""What methods for super-resolution share: images of luminance, and results that give the small image when reduced."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from n3net.imaging.resizing import Size, resize_tensor

Progress = Callable[[float], None]  # part that is done, 0 to 1


def bicubic(small: Tensor, size: Size) -> Tensor:
    """An image (C, h, w) at another size, as MATLAB does it."""
    return resize_tensor(small, size=size)


def back_project(large: Tensor, small: Tensor, rounds: int = 1) -> Tensor:
    """Add to a large image what is missing in it when it is reduced (Irani and Peleg 1991)."""
    size: Size = (large.shape[-2], large.shape[-1])
    for _ in range(rounds):
        missing = small - bicubic(large, (small.shape[-2], small.shape[-1]))
        large = large + bicubic(missing, size)
    return large


class Enlarger(nn.Module):
    """A method in the place of a network: the luminance of a small image and a size -> that of the large one.

    Args:
        method: (1, h, w) in [0, 1], height and width of the result, and whom to tell -> (1, H, W), not clipped.
    """

    channels = 1

    def __init__(self, method: Callable[[Tensor, Size, Progress | None], Tensor]) -> None:
        super().__init__()
        self.method = method

    def forward(self, small: Tensor, size: Size, progress: Progress | None = None) -> Tensor:
        with torch.inference_mode():
            return self.method(small, size, progress)
