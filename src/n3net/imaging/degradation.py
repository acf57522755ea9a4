"""What super-resolution starts from, and what it should give back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from n3net.imaging.color import luminance
from n3net.imaging.resizing import WHOLE, check_factor, resize

Plane = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Degraded:
    """An image, and the small one that was made from it.

    Args:
        high, low: luminance of both in [0, 1], (H, W) and (h, w).
        large, small: colours of both, (H, W, 3) and (h, w, 3).
    """

    high: Plane
    low: Plane
    large: npt.NDArray[np.uint8]
    small: npt.NDArray[np.uint8]

    def upscaled(self, part: tuple[slice, slice] = WHOLE) -> Plane:
        """Rows and columns of the small image at the size of the large one, bicubically."""
        height, width = self.high.shape
        return resize(self.low, size=(height, width), part=part)


def degrade(image: npt.NDArray[np.uint8], factor: float) -> Degraded:
    """Downscale an image (H, W, 3) bicubically, in colours of 8 bits, as a file would hold it.

    First it is cropped at its lower and right border to a multiple of the factor, rounded where there is none.
    """
    check_factor(factor)
    small = [int(side / factor + 1e-9) for side in image.shape[:2]]
    if 0 in small:
        raise ValueError(f"factor: {image.shape[1]} x {image.shape[0]} pixels are too few for {factor:g}")
    height, width = enlarged(small, factor)
    high = image[:height, :width]
    low = resize(high, size=(small[0], small[1]))
    return Degraded(_luminance(high), _luminance(low), high, low)


def enlarged(small: Sequence[int], factor: float) -> tuple[int, int]:
    """Height and width of the large image that a small one was made from."""
    return round(small[0] * factor), round(small[1] * factor)


def _luminance(image: npt.NDArray[np.uint8]) -> Plane:
    return luminance(image.astype(np.float32) / np.float32(255))
