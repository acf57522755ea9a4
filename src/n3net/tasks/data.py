"""Randomness that is a pure function of (seed, step, index), images in memory, and batches that are ready in time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from n3net.errors import UserError

Batch = dict[str, Tensor]

TRAINING, VALIDATION, ORDER = 0, 1, 2  # streams of random numbers that never meet
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


def generator(seed: int, stream: int, step: int, index: int) -> np.random.Generator:
    """Random numbers of one item of one step, whoever asks for them, whenever."""
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, index, step]))


@lru_cache(maxsize=8)
def _order(seed: int, round_: int, count: int) -> NDArray[np.int64]:
    return generator(seed, ORDER, round_, 0).permutation(count)


def choose(seed: int, number: int, count: int) -> int:
    """Which of ``count`` things the item of this number shows: all of them once, in random order, then again."""
    return int(_order(seed, number // count, count)[number % count])


class Images:
    """All images of some folders or files as uint8 arrays (H, W, channels), decoded once.

    Args:
        places: folders, searched without their subfolders, and single files.
        channels: 1 for gray (colour images are converted, as ITU-R 601-2 luma), 3 for RGB.
        smallest: least height and width that an image must have.
    """

    def __init__(self, places: list[Path], channels: int, smallest: int = 1) -> None:
        from n3net.io.eight_bits import read_eight_bits

        self.paths: list[Path] = []
        for place in places:
            if not place.exists():
                raise UserError(
                    f"{place}: there is no such folder or image; data.root or N3NET_DATA says where to look"
                )
            inside = sorted(place.iterdir()) if place.is_dir() else [place]
            found = [path for path in inside if path.suffix.lower() in SUFFIXES]
            if not found:
                raise UserError(f"{place}: no images in it ({', '.join(SUFFIXES)})")
            self.paths += found
        self.images: list[NDArray[np.uint8]] = []
        for path in self.paths:
            image = read_eight_bits(path, channels)
            if min(image.shape[:2]) < smallest:
                raise UserError(
                    f"{path}: {image.shape[1]} x {image.shape[0]} pixels, crops need at least {smallest} each way"
                )
            self.images.append(image.reshape(*image.shape[:2], channels))

    def __len__(self) -> int:
        return len(self.images)


def random_crop(image: NDArray[Any], size: int, rng: np.random.Generator) -> NDArray[Any]:
    """A square of the image, flipped and rotated by a multiple of 90 degrees at random."""
    return random_turn(image[random_place(image.shape, size, rng)], rng)


def random_place(shape: tuple[int, ...], size: int, rng: np.random.Generator) -> tuple[slice, slice]:
    """Rows and columns of a square in an image (H, W, ...)."""
    top, left = (int(rng.integers(side - size + 1)) for side in shape[:2])
    return slice(top, top + size), slice(left, left + size)


def random_turn(crop: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Flipped and rotated by a multiple of 90 degrees."""
    flip_rows, flip_columns, quarters = rng.integers([2, 2, 4])
    crop = crop[::-1] if flip_rows else crop
    crop = crop[:, ::-1] if flip_columns else crop
    return np.rot90(crop, quarters)


def to_planes(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(H, W, C) of 0..255 -> (C, H, W) in [0, 1]."""
    return np.ascontiguousarray(image.transpose(2, 0, 1), dtype=np.float32) / np.float32(255)


def stack(items: list[dict[str, Any]]) -> Batch:
    """Items of equal shapes -> a batch."""
    return {key: torch.from_numpy(np.stack([item[key] for item in items])) for key in items[0]}


class Prefetcher:
    """Batches of consecutive steps, made by threads ahead of their use.

    Args:
        make: the batch of a step.
        first: step to begin with.
        workers: threads.
        ahead: batches that are kept ready.
    """

    def __init__(self, make: Callable[[int], Batch], first: int, workers: int = 1, ahead: int = 4) -> None:
        self.waited = 0.0  # seconds that were spent waiting for a batch
        self._make, self._next = make, first
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="batch")
        self._ready: deque[Future[Batch]] = deque()
        for _ in range(max(ahead, workers)):
            self._submit()

    def _submit(self) -> None:
        self._ready.append(self._pool.submit(self._make, self._next))
        self._next += 1

    def __iter__(self) -> Iterator[Batch]:
        while True:
            start = time.perf_counter()
            batch = self._ready.popleft().result()
            self.waited += time.perf_counter() - start
            self._submit()
            yield batch

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
