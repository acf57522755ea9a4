"""Raw data made from developed pictures, with noise of a known level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3net.imaging.color import LUMA
from n3net.noise.sensor import NoiseLevel

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Scene:
    """How a developed picture becomes sensor values: f_c · Y^f_e in the paper.

    Args:
        factor: f_c, undoes white balance and exposure.
        exponent: f_e, undoes the compression of high intensities.
        gains: of red and blue against green in white balance; their values on the sensor are smaller by that.
    """

    factor: float = 1.0
    exponent: float = 2.2
    gains: tuple[float, float] = (1.0, 1.0)

    def luminance(self, rgb: Floats) -> Floats:
        """(H, W, 3) in [0, 1] -> (H, W), the paper's way: one plane with the luminance."""
        return self.factor * (rgb @ np.asarray(LUMA, rgb.dtype)) ** self.exponent

    def bayer(self, rgb: Floats, pattern: str = "RGGB") -> Floats:
        """(H, W, 3) in [0, 1] -> (H, W), one colour in each pixel as a colour filter array has them."""
        red, blue = self.gains
        scale = self.factor / np.asarray([red, 1.0, blue], rgb.dtype)
        out = np.empty(rgb.shape[:2], rgb.dtype)
        for index, colour in enumerate(pattern):
            place = (slice(index // 2, None, 2), slice(index % 2, None, 2))
            channel = "RGB".index(colour)
            out[place] = scale[channel] * rgb[(*place, channel)] ** self.exponent
        return out


def draw_scene(
    rng: np.random.Generator,
    factor: tuple[float, float] = (0.25, 1.0),
    exponent: tuple[float, float] = (1.25, 10.0),
    gains: tuple[float, float] = (1.2, 2.6),
) -> Scene:
    """A scene of the paper's ranges; ``gains`` is the range of both white balance gains."""
    red, blue = rng.uniform(*gains, 2)
    return Scene(float(rng.uniform(*factor)), float(rng.uniform(*exponent)), (float(red), float(blue)))


def draw_level(
    rng: np.random.Generator,
    log_a: tuple[float, float] = (-4.0, -1.0),
    log_ratio: float = -2.3,
    spread: float = 1.3,
) -> NoiseLevel:
    """A noise level of the 2018 program: log10 a ~ U(-4, -1), log10 b = log10 a - 2.3 + U(-1.3, 1.3)."""
    log = rng.uniform(*log_a)
    return NoiseLevel(float(10**log), float(10 ** (log + log_ratio + rng.uniform(-spread, spread))))


# What validation and `n3net eval raw` measure at: a daylight scene, and noise from a good camera's at ISO 800 or so to
# more than any of today's has.
SCENE = Scene(0.625, 2.2, (2.0, 1.6))
LEVELS = {"low": NoiseLevel(3e-4, 1e-6), "middle": NoiseLevel(3e-3, 2e-5), "high": NoiseLevel(3e-2, 4e-4)}
