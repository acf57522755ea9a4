"""Test images from a directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from n3net.errors import UserError
from n3net.evaluation.names import unique_names
from n3net.io.eight_bits import read_eight_bits

SUFFIXES = {".png", ".bmp", ".tif", ".tiff", ".jpg", ".jpeg", ".webp"}


@dataclass(frozen=True)
class ImageSet:
    """Images by name, in the order of their names; read when they are needed."""

    name: str
    paths: tuple[Path, ...]

    def read(self, index: int, channels: int = 1) -> Tensor:
        """One image, (channels, H, W) in [0, 1]; colour becomes gray by ITU-R 601, gray three equal channels."""
        pixels = self.pixels(index, channels).astype(np.float32) / 255
        return torch.from_numpy(np.atleast_3d(pixels).transpose(2, 0, 1).copy())  # (C, H, W)

    def pixels(self, index: int, channels: int = 1) -> npt.NDArray[np.uint8]:
        """The same in 8 bits: (H, W) or (H, W, 3)."""
        return read_eight_bits(self.paths[index], channels)


def image_set(directory: str | Path, limit: int | None = None) -> ImageSet:
    """The images of a directory, here or in ``$N3NET_DATA``, or the first few of them."""
    directory = Path(directory)
    if not directory.is_dir() and (root := data_root(None)) is not None:
        directory = root / directory
    if not directory.is_dir():
        raise UserError(f"{directory}: there is no such directory")
    paths = sorted(p for p in directory.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    if not paths:
        raise UserError(f"{directory}: no images in it (looked for {', '.join(sorted(SUFFIXES))})")
    return ImageSet(directory.resolve().name, tuple(paths[:limit]))


def image_sets(directories: Sequence[Path], limit: int | None = None) -> list[ImageSet]:
    """The images of several directories, under names that tell them apart."""
    sets = [image_set(directory, limit) for directory in directories]
    names = unique_names([directory.resolve() for directory in directories])
    return [replace(images, name=name) for images, name in zip(sets, names, strict=True)]


def data_root(given: str | Path | None) -> Path | None:
    """The directory of data sets: as given, or ``$N3NET_DATA``."""
    if given is None:
        given = os.environ.get("N3NET_DATA")
    if given is None:
        return None
    if not Path(given).is_dir():
        raise UserError(f"{given}: there is no such directory of data sets")
    return Path(given)
