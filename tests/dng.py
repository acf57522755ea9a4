"""A small mosaic with the noise of a sensor, and a DNG file of it, of another writer than ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from n3net.noise.sensor import NoiseLevel

BLACK, WHITE = 512, 16383
LEVEL = NoiseLevel(2e-3, 1e-5)
MATRIX = (9, -2, -1, -4, 12, 2, 0, 1, 6)


def scene(height: int = 96, width: int = 128, pattern: str = "RGGB") -> np.ndarray[Any, Any]:
    """Clean values of a mosaic in [0, 1]: a gray ramp whose red and blue are half as strong as green."""
    ramp = np.linspace(0.05, 0.7, width)[None].repeat(height, 0) * np.linspace(0.5, 1, height)[:, None]
    for i, color in enumerate(pattern):
        ramp[i // 2 :: 2, i % 2 :: 2] *= 1.0 if color == "G" else 0.5
    return ramp


def write_test_dng(
    path: Path,
    values: np.ndarray[Any, Any],
    pattern: str = "RGGB",
    profile: tuple[float, ...] | None = None,
    orientation: int = 1,
    active: tuple[int, int, int, int] | None = None,
    corrections: dict[int, bytes] | None = None,
    preview: bool = False,
    further: list[tuple[int, int, int, Any, bool]] | None = None,
) -> Path:
    """A DNG file of another writer than ours."""
    raw = np.clip(np.rint(values * (WHITE - BLACK) + BLACK), 0, WHITE).astype(np.uint16)
    tags: list[tuple[int, int, int, Any, bool]] = [
        (33421, 3, 2, (2, 2), True),
        (33422, 1, 4, bytes("RGB".index(c) for c in pattern), True),
        (50706, 1, 4, bytes([1, 4, 0, 0]), True),
        (50707, 1, 4, bytes([1, 1, 0, 0]), True),
        (50708, 2, 0, "Testcam One", True),
        (50710, 1, 3, bytes([0, 1, 2]), True),
        (50713, 3, 2, (2, 2), True),
        (50714, 3, 4, (BLACK,) * 4, True),
        (50717, 4, 1, WHITE, True),
        (50721, 10, 9, tuple(n for value in MATRIX for n in (value, 10)), True),
        (50728, 5, 3, (1, 2, 1, 1, 1, 2), True),
        (50778, 3, 1, 21, True),
        (271, 2, 0, "Testcam", True),
        (272, 2, 0, "One", True),
        (315, 2, 0, "A Photographer", True),
        (274, 3, 1, orientation, True),
    ]
    if profile is not None:
        tags.append((51041, 12, len(profile), profile, True))
    if active is not None:
        tags.append((50829, 4, 4, active, True))
    lists = [(tag, 7, len(data), data, True) for tag, data in (corrections or {}).items()]
    import tifffile

    with tifffile.TiffWriter(path) as file:
        if preview:  # the mosaic is in a directory below
            small = np.zeros((16, 16, 3), np.uint8)
            file.write(small, photometric="rgb", subfiletype=1, subifds=1, extratags=tags, metadata=None)
        file.write(raw, photometric=32803, extratags=[*tags, *lists, *(further or [])], metadata=None)
    return path


def noisy(values: np.ndarray[Any, Any], level: NoiseLevel = LEVEL, seed: int = 0) -> np.ndarray[Any, Any]:
    normal = np.random.default_rng(seed).standard_normal(values.shape)
    return values + np.sqrt(level.a * values + level.b) * normal
