"""What is done for the page, each function in a worker process: decoders and networks run nowhere else.

Paths are the server's own, never a client's. What comes back is small; pixels go through files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.errors import UserError
from n3net.io.picture import Metadata, Picture
from n3net.jobs.denoising import Denoise, raw_levels
from n3net.jobs.planning import Job
from n3net.jobs.upscaling import Upscale
from n3net.jobs.work import Files, Work, do
from n3net.memory import is_lack_of_memory
from n3net.raw import is_raw
from n3net.serve.display import shown, write_levels

Box = tuple[int, int, int, int]  # left, top, width, height, in pixels of the upright picture

MARGIN = 16  # pixels around what is previewed that the network sees, too
SAMPLE = 1200  # pixels along a side of what the noise of a preview is estimated on
EXPLORED = 512  # pixels along a side of what is explored


@dataclass(frozen=True)
class Shown:
    """A picture in a folder of levels, see :mod:`n3net.serve.display`."""

    width: int
    height: int
    levels: int


@dataclass(frozen=True)
class Preview:
    """A part of a restored picture, (h, w, 3), and what was done."""

    pixels: npt.NDArray[np.uint8]
    note: str


def warm() -> None:
    """Import what takes long, before somebody waits for it."""
    import torch  # noqa: F401

    from n3net.memory import reuse_freed_memory
    from n3net.restoration.denoising import COLOR, PHOTO

    reuse_freed_memory()
    _network(PHOTO, True, False)
    _network(COLOR, False, False)


def add(source: Path, folder: Path, max_megapixels: float) -> dict[str, Any]:
    """Decode an upload and make it ready to be shown."""
    picture = _read(source, max_megapixels)
    pixels = shown(picture)
    height, width = pixels.shape[:2]
    about = Shown(width, height, write_levels(folder, pixels))
    kind = "raw" if is_raw(source) else picture.format
    return asdict(about) | {"kind": kind, "type": str(picture.pixels.dtype), "gray": picture.pixels.ndim == 2}


def preview(source: Path, work: Work, box: Box, max_megapixels: float) -> Preview:
    """Restore a part of a picture, as quickly as that can be: seen alone, with a margin."""
    if is_raw(source):
        return _preview_raw(source, work, box, max_megapixels)
    picture = _upright(_read(source, max_megapixels))
    height, width = picture.pixels.shape[:2]
    rows, cols = _inside(box[1], box[3], height), _inside(box[0], box[2], width)
    rows_seen, cols_seen = _wider(rows, height, MARGIN), _wider(cols, width, MARGIN)
    part = replace(picture, pixels=np.ascontiguousarray(picture.pixels[rows_seen, cols_seen]))
    if isinstance(work, Upscale):
        out, note, factor = _upscaled(part, work)
    else:
        assert isinstance(work, Denoise)
        out, note = _denoised(part, picture, (rows, cols), work)
        factor = 1.0
    pixels = shown(replace(part, pixels=out))
    top, left = round((rows.start - rows_seen.start) * factor), round((cols.start - cols_seen.start) * factor)
    size = round((rows.stop - rows.start) * factor), round((cols.stop - cols.start) * factor)
    return Preview(np.ascontiguousarray(pixels[top : top + size[0], left : left + size[1]]), note)


def restore(
    source: Path, target: Path, work: Work, folder: Path, progress: Path, max_megapixels: float
) -> dict[str, Any]:
    """What the command does with a file, and its result made ready to be shown."""
    with progress.open("wb", buffering=0) as file:

        def advance(done: int, total: int) -> None:
            os.pwrite(file.fileno(), struct.pack("<d", done / total), 0)

        record = _in_words(lambda: do(Job(source, target), _kept(work), Files(max_megapixels=max_megapixels), advance))
    pixels = shown(_developed(target, max_megapixels * 16))
    height, width = pixels.shape[:2]
    about = Shown(width, height, write_levels(folder, pixels))
    return asdict(about) | {"note": record.note, "seconds": record.seconds}


def read_progress(path: Path) -> float:
    """The part of a job that is done."""
    try:
        content = path.read_bytes()
    except OSError:
        return 0.0
    return float(struct.unpack("<d", content[:8])[0]) if len(content) >= 8 else 0.0


def explore(
    source: Path, target: Path, model: str, sigma: float | None, noise: float, center: Sequence[float],
    title: str, max_megapixels: float,
) -> dict[str, Any]:  # fmt: skip
    """Write what the blocks of a network choose by on a part of a picture; what was seen of it."""
    import torch

    from n3net.inspection import exploring
    from n3net.models import Denoiser
    from n3net.models.preparing import prepare
    from n3net.noise.white import estimate_sigma
    from n3net.weights import load

    net: Any = load(model)
    if not isinstance(net, Denoiser):
        raise UserError(f"{model}: a {net.recipe.name}; the page explores networks for denoising")
    picture = _upright(_developed(source, max_megapixels))
    values = _channels(picture.as_type(np.float32), net.channels)  # (H, W, C)
    rows, cols = (
        _inside(int(at * side) - EXPLORED // 2, EXPLORED, side)
        for at, side in zip((center[1], center[0]), values.shape, strict=False)
    )
    image = torch.from_numpy(np.ascontiguousarray(values[rows, cols].transpose(2, 0, 1)))  # (C, h, w)
    if noise > 0:
        image = image + torch.randn(image.shape, generator=torch.Generator().manual_seed(0)) * noise / 255
    if not net.noise_map:
        sigma = None
    elif sigma is None:
        given = image.numpy().transpose(1, 2, 0).clip(0, 1)
        sigma = float(np.sqrt(np.square(estimate_sigma(given[..., 0] if net.channels == 1 else given)).mean()))
    document = _in_words(lambda: exploring.explore(prepare(net), image, sigma, title))
    target.write_bytes(document)
    return {"sigma": sigma, "left": cols.start, "top": rows.start, "width": image.shape[2], "height": image.shape[1]}


def explorable() -> list[str]:
    """Weights by name whose networks denoise, and have blocks to look into."""
    import torch

    from n3net.models import Denoiser, create
    from n3net.nn import N3Block2d
    from n3net.weights import available, info

    names = []
    for name, path in available().items():
        try:
            recipe = info(path)["model"]
            with torch.device("meta"):  # without its weights
                net = create(recipe["name"], **recipe["config"])
        except (UserError, ValueError, KeyError, TypeError):
            continue
        if isinstance(net, Denoiser) and any(isinstance(module, N3Block2d) for module in net.modules()):
            names.append(name)
    return names


def explored_page(document: Path, target: Path) -> None:
    """Write the HTML file of what :func:`explore` wrote."""
    from n3net.inspection.exploring import page

    target.write_bytes(page(document.read_bytes()))


def match(sources: Sequence[Path], names: Sequence[str], cameras: Any, max_megapixels: float) -> dict[str, Any]:
    """Matches of two pictures as ``n3net match`` writes them to JSON, and the pose in words."""
    from n3net.correspondence.filtering import MODEL
    from n3net.correspondence.matching import look, match_views, open_image
    from n3net.correspondence.results import describe, document

    seen = []
    for i, (source, name) in enumerate(zip(sources, names, strict=True)):
        pixels, from_exif = open_image(source, int(max_megapixels * 1e6))
        size = (pixels.shape[1], pixels.shape[0])
        seen.append(look(pixels, cameras.of(i if cameras.differ else 0, size, name) or from_exif, name=name))
    matches = match_views(seen[0], seen[1])
    words = None if matches.pose is None else describe(matches.pose)
    return document(matches, {"model": MODEL}) | {"words": words}


@lru_cache(maxsize=1)
def _read(source: Path, max_megapixels: float) -> Picture:
    """A picture as the commands read it; the last one is kept, as its preview is asked for next."""
    return _developed(source, max_megapixels)


def _developed(source: Path, max_megapixels: float) -> Picture:
    files = Files(max_megapixels=max_megapixels)
    if not is_raw(source):
        return files.read(source)
    from n3net.raw.photo import RawPhoto

    return RawPhoto(source, files.max_pixels).develop(8)


@lru_cache(maxsize=1)
def _kept(work: Work) -> Work:
    """The same settings again have their networks already."""
    return work


@lru_cache(maxsize=6)
def _network(weights: str | None, photograph: bool, gray: bool) -> Any:
    """The default networks, ready to run; those of previews, whose other settings change all the time."""
    from n3net.models.preparing import prepare
    from n3net.restoration import denoising, photographs, upscaling

    if weights == upscaling.DEFAULT:
        return prepare(upscaling.upscaler_for(None))
    return prepare((photographs.photo_denoiser_for if photograph else denoising.denoiser_for)(weights, gray))


def _upscaled(part: Picture, work: Upscale) -> tuple[Any, str, float]:
    from n3net.restoration.upscaling import DEFAULT, upscale

    out = upscale(part.pixels, work.factor, _network(DEFAULT, False, False), peak=part.peak)
    return out, f"x{work.factor:g}", work.factor


def _denoised(part: Picture, picture: Picture, place: tuple[slice, slice], work: Denoise) -> tuple[Any, str]:
    from n3net.restoration.denoising import denoise, is_gray, noise_levels
    from n3net.restoration.photographs import denoise_photograph

    camera, weights, why = work.choose(picture)
    why = f"{why}, " if why else ""
    net = _network(weights, camera, part.pixels.ndim == 2 or is_gray(part.pixels))
    if camera:
        result = denoise_photograph(part.pixels, net, peak=part.peak, strength=work.strength)
        return result.pixels, f"{why}σ {np.median(result.noise):.1f} estimated here"
    if work.sigma is not None:
        return denoise(part.pixels, work.sigma, net, peak=part.peak, strength=work.strength), f"σ {work.sigma:g}"
    height, width = picture.pixels.shape[:2]
    rows, cols = (
        _wider(at, side, max(0, (SAMPLE - (at.stop - at.start)) // 2))
        for at, side in zip(place, (height, width), strict=True)
    )
    levels = noise_levels(np.ascontiguousarray(picture.pixels[rows, cols]), picture.peak)
    note = f"{why}σ {' '.join(f'{level:.1f}' for level in levels)} estimated here"
    return denoise(part.pixels, levels, net, peak=part.peak, strength=work.strength), note


def _preview_raw(source: Path, work: Work, box: Box, max_megapixels: float) -> Preview:
    """A part of the mosaic is denoised, all of it is developed."""
    from n3net.io.orientation import TURNS
    from n3net.raw.photo import RawPhoto
    from n3net.restoration.raw import denoise_photo

    if not isinstance(work, Denoise):
        raise UserError("a raw file of a camera; only 'n3net denoise' takes them")
    photo = RawPhoto(source, Files(max_megapixels=max_megapixels).max_pixels)
    height, width = photo.mosaic.shape
    turn: Callable[[Any], Any] = TURNS.get(photo.flip, lambda pixels: pixels)
    places = (
        np.broadcast_to(np.arange(height)[:, None], photo.mosaic.shape),
        np.broadcast_to(np.arange(width), photo.mosaic.shape),
    )
    tall, wide = turn(places[0]).shape
    rows, cols = _inside(box[1], box[3], tall), _inside(box[0], box[2], wide)
    part = []
    for place, side in zip(places, photo.mosaic.shape, strict=True):
        there = turn(place)[rows, cols]
        first, last = int(there.min()) // 2, int(there.max()) // 2 + 1
        part.append(_wider(slice(first, last), side // 2, MARGIN))
    levels, note = raw_levels(photo, work.noise)
    denoise_photo(photo, levels, part=(part[0], part[1]), strength=work.strength)
    pixels = shown(photo.develop(8, work.auto_bright))
    return Preview(np.ascontiguousarray(pixels[rows, cols]), note)


def _upright(picture: Picture) -> Picture:
    from n3net.io.orientation import upright

    exif = picture.metadata.exif
    return replace(picture, pixels=upright(picture.pixels, exif), alpha=None, metadata=Metadata())


def _channels(values: npt.NDArray[np.float32], channels: int) -> npt.NDArray[np.float32]:
    """(H, W) or (H, W, 3) -> (H, W, channels)."""
    from n3net.imaging.color import LUMA

    if values.ndim == 3 and channels == 1:
        return (values @ np.asarray(LUMA, np.float32))[..., None]
    return values if values.ndim == 3 else np.repeat(values[..., None], channels, 2)


def _inside(start: int, length: int, side: int) -> slice:
    """A range of pixels moved, or cut, to where there are some."""
    length = min(max(length, 1), side)
    start = min(max(start, 0), side - length)
    return slice(start, start + length)


def _wider(part: slice, side: int, by: int) -> slice:
    return slice(max(part.start - by, 0), min(part.stop + by, side))


def _in_words(call: Callable[[], Any]) -> Any:
    """The result; not enough memory is a message, not an error of the program."""
    try:
        return call()
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        raise UserError("out of memory; close other programs, or use a smaller image") from None
