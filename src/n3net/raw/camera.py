"""Photographs as a camera makes them, from pictures without noise.

A picture is turned back into what a sensor would have measured: the tone curve, the matrix of colours and the white
balance are undone. The sensor's noise is added, one colour of each pixel is kept, and the camera's own development
follows: demosaicking, white balance, matrix, tone curve, a little smoothing or sharpening, JPEG. What noise looks like
afterwards comes from these steps: it depends on intensity and colour, and neighbouring pixels share it.

The clean picture goes the same way without the noise, so that what distinguishes the two is noise alone.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3net.imaging.color import LUMA
from n3net.imaging.demosaicking import METHODS, PATTERNS, Pattern, mosaic
from n3net.noise.sensor import NoiseLevel

Floats = NDArray[np.floating[Any]]

TOE = 0.0045  # of the curve of gamma
SMALLEST = np.float32(1e-7)  # what a logarithm is taken of
MARGIN = 4  # pixels at the border that filters have not seen all surroundings of


@dataclass(frozen=True)
class Camera:
    """How a sensor's values become a picture.

    Args:
        gains: of red, green and blue: white balance and exposure. White of the sensor is 1.
        matrix: from the camera's colours to those of the picture, (3, 3); its rows sum to 1.
        gamma: exponent that makes dark values brighter.
        contrast: of the tone curve, 1 for none.
        pattern: of the mosaic.
        method: of demosaicking, a name of :data:`n3net.imaging.demosaicking.METHODS`.
        smooth: weight of each of two neighbours in a filter along rows and columns; negative sharpens.
        smooth_colors: how often the same is done to differences from luminance, each time twice as wide.
        quality: of JPEG, 1 to 100; None for a file without loss.
        subsampled: whether JPEG keeps colours at half resolution.
    """

    gains: tuple[float, float, float] = (2.0, 1.0, 1.6)
    matrix: tuple[tuple[float, float, float], ...] = ((1.6, -0.5, -0.1), (-0.2, 1.5, -0.3), (0.0, -0.5, 1.5))
    gamma: float = 2.4
    contrast: float = 1.2
    pattern: Pattern = "RGGB"
    method: str = "malvar"
    smooth: float = 0.0
    smooth_colors: int = 0
    quality: int | None = None
    subsampled: bool = True

    def sense(self, rgb: Floats) -> Floats:
        """What the sensor would have measured with all three colours in each pixel, (..., 3) of [0, 1]."""
        linear = linearize(_bend(rgb, 1 / self.contrast), self.gamma)
        inverse = np.linalg.inv(np.array(self.matrix)) / np.array(self.gains)[:, None]
        return np.clip(linear @ inverse.T.astype(rgb.dtype), 0, 1)

    def develop(self, values: Floats) -> Floats:
        """The picture of a mosaic, (..., H, W) -> (..., H, W, 3) in [0, 1]."""
        dtype = values.dtype
        rgb = METHODS[self.method](values, self.pattern)
        rgb = np.minimum(rgb * np.array(self.gains, dtype), 1)
        rgb = np.clip(rgb @ np.array(self.matrix, dtype).T, 0, 1)
        return self._smoothed(_bend(encode(rgb, self.gamma), self.contrast))

    def _smoothed(self, rgb: Floats) -> Floats:
        if self.smooth:
            rgb = _filtered(rgb, self.smooth, 1)
        if self.smooth_colors:
            gray = (rgb @ np.array(LUMA, rgb.dtype))[..., None]
            colors: Floats = rgb - gray
            for i in range(self.smooth_colors):
                colors = _filtered(colors, 0.25, 2**i)
            rgb = gray + colors
        return np.clip(rgb, 0, 1)

    def store(self, rgb: Floats) -> Floats:
        """A picture (H, W, 3) as a file of 8 bits has it."""
        eight_bits = np.rint(rgb * 255).astype(np.uint8)
        if self.quality is not None:
            eight_bits = compress(eight_bits, self.quality, self.subsampled)
        return eight_bits.astype(rgb.dtype) / rgb.dtype.type(255)


def photograph(rgb: Floats, camera: Camera, level: NoiseLevel, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """A picture (H, W, 3) of [0, 1] as the camera has it, with noise and without, (H, W, 3) each."""
    clean = mosaic(camera.sense(rgb), camera.pattern)  # (H, W)
    noise = rng.standard_normal(clean.shape, dtype=np.float32)
    noisy = np.clip(clean + np.sqrt(level.a * clean + level.b).astype(clean.dtype) * noise, 0, 1)
    noisy, clean = camera.develop(np.stack([noisy, clean]))  # (2, H, W, 3)
    return camera.store(noisy), camera.store(clean)


def draw_camera(rng: np.random.Generator) -> Camera:
    """Any camera, with any settings."""
    exposure = rng.uniform(1, 1.5)
    red, blue = rng.uniform(1.2, 2.6, 2)
    return Camera(
        gains=(float(exposure * red), float(exposure), float(exposure * blue)),
        matrix=draw_matrix(rng),
        gamma=float(rng.uniform(2.0, 2.6)),
        contrast=float(rng.uniform(1, 1.5)),
        pattern=PATTERNS[rng.integers(len(PATTERNS))],
        method=list(METHODS)[rng.integers(len(METHODS))],
        smooth=float(rng.uniform(-0.02, 0.3)),
        smooth_colors=int(rng.choice(4, p=(0.15, 0.25, 0.3, 0.3))),
        quality=int(rng.integers(60, 99)) if rng.random() < 0.5 else None,
        subsampled=bool(rng.random() < 0.5),
    )


def draw_matrix(rng: np.random.Generator) -> tuple[tuple[float, float, float], ...]:
    """A matrix of colours as cameras have them: what a colour filter lets through of the others is taken away."""
    low = np.array([[0, -0.8, -0.25], [-0.35, 0, -0.5], [-0.1, -0.8, 0]])
    high = np.array([[0, -0.2, 0.1], [-0.05, 0, -0.1], [0.1, -0.2, 0]])
    others = rng.uniform(low, high)
    matrix = np.eye(3) - np.diag(others.sum(1)) + others
    return tuple((float(r), float(g), float(b)) for r, g, b in matrix)


def draw_level(rng: np.random.Generator, log_a: tuple[float, float] = (-4.5, -2.0)) -> NoiseLevel:
    """Noise from a large sensor's at ISO 100 to a phone's at ISO 6400.

    The value of one electron, a, is drawn by its logarithm, and so is the noise of reading, from 1 to 6 electrons.
    """
    a = 10 ** rng.uniform(*log_a)
    return NoiseLevel(float(a), float((a * np.exp(rng.uniform(0, np.log(6)))) ** 2))


def encode(linear: Floats, gamma: float) -> Floats:
    """A curve like that of sRGB, which it is close to with 2.4: a power of values in [0, 1], with a slope at black."""
    black, white = TOE ** (1 / gamma), (1 + TOE) ** (1 / gamma)
    return (_power(linear + linear.dtype.type(TOE), 1 / gamma) - black) / (white - black)


def linearize(encoded: Floats, gamma: float) -> Floats:
    """The inverse of :func:`encode`."""
    black, white = TOE ** (1 / gamma), (1 + TOE) ** (1 / gamma)
    return _power(encoded * (white - black) + black, gamma) - TOE


def compress(rgb: NDArray[np.uint8], quality: int, subsampled: bool) -> NDArray[np.uint8]:
    """A picture (H, W, 3) after JPEG compression."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(rgb).save(file, "JPEG", quality=quality, subsampling="4:2:0" if subsampled else "4:4:4")
    return np.asarray(Image.open(file))


def _bend(values: Floats, contrast: float) -> Floats:
    """A tone curve like an S that keeps black, white and the middle; with 1 / contrast, its inverse."""
    up, down = _power(values, contrast), _power(1 - values, contrast)
    return up / (up + down)


def _power(values: Floats, exponent: float) -> Floats:
    """Of values in [0, 1], faster than numpy's."""
    return np.exp(np.log(np.maximum(values, SMALLEST)) * values.dtype.type(exponent))


def _filtered(rgb: Floats, weight: float, step: int) -> Floats:
    """Means with the two neighbours ``step`` pixels away, along rows and columns of (..., H, W, 3); mirrored."""
    for axis in (-3, -2):
        last = rgb.shape[axis] - 1
        index = np.arange(last + 1)
        before, after = np.abs(index - step), last - np.abs(last - index - step)
        sides = rgb.take(before, axis) + rgb.take(after, axis)
        rgb = rgb * rgb.dtype.type(1 - 2 * weight) + sides * rgb.dtype.type(weight)
    return rgb
