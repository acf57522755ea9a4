"""Whether `n3net denoise` tells white noise from that of cameras, and what a wrong choice costs.

Where it chooses right, its result is that of the right weights by hand; only where it does not are both computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from n3net.evaluation.images import ImageSet
from n3net.evaluation.metrics import psnr
from n3net.io import read_image

Eight = npt.NDArray[np.uint8]

CLEAN, COMPRESSED = "none", "none, JPEG of quality 75"
PROTOCOL = {
    "white": "white Gaussian noise, rounded and clipped to 8 bits; right is any weights but photo",
    "simulated": "n3net.raw.camera, any camera and any of its noise levels; right is photo",
    "photographs": "the noisy ones of pairs, each as it is and cut into squares; right is photo",
    "none": "the picture itself: nothing is right or wrong; PSNR is against the picture as it was",
    "loss": "PSNR by hand minus PSNR of the choice, mean over all cases, those chosen right with 0",
}


@dataclass(frozen=True)
class Row:
    """One picture with one kind of noise.

    Args:
        noise: its name.
        image: of the picture.
        right: whether the choice was right, None where there is no noise.
        loss: dB below the right weights.
        noisy, psnr: before and after, of what has no noise; nan for the others.
    """

    noise: str
    image: str
    right: bool | None
    loss: float = 0.0
    noisy: float = float("nan")
    psnr: float = float("nan")


@dataclass(frozen=True)
class _Case:
    noise: str
    image: str
    noisy: Eight
    clean: Eight
    camera: bool | None


def evaluate(
    images: ImageSet,
    sigmas: Sequence[float],
    photographs: Sequence[tuple[Path, Path]] = (),
    *,
    side: int = 256,
    harmless: int = 10,
    seed: int = 0,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Row]:
    """Let it choose for all images.

    Args:
        images: without noise, for white noise and simulated cameras.
        sigmas: of white noise.
        photographs: pairs, see :func:`n3net.evaluation.real.pairs`.
        side: of the squares that photographs are cut into.
        harmless: images whose result without noise is looked at.
        seed: of the noise.
        progress: called after each case.
    """
    from n3net.restoration.denoising import PHOTO, denoise, weights_for

    rows = []
    for case in _cases(images, sigmas, photographs, side, harmless, seed):
        chosen = weights_for(case.noisy)[0]
        if case.camera is None:
            after = denoise(case.noisy, model=_network(chosen))
            rows.append(Row(case.noise, case.image, None, 0.0, _psnr(case.noisy, case.clean), _psnr(after, case.clean)))
        elif (chosen == PHOTO) == case.camera:
            rows.append(Row(case.noise, case.image, True))
        else:
            right = PHOTO if case.camera else "gray" if case.noisy.ndim == 2 else "color"
            by_hand, out = (_psnr(denoise(case.noisy, model=_network(name)), case.clean) for name in (right, chosen))
            rows.append(Row(case.noise, case.image, False, by_hand - out))
        progress(f"{case.noise} {case.image}")
    return rows


def report(rows: Sequence[Row]) -> dict[str, Any]:
    """All that was measured and how, for a JSON file."""
    results = []
    for noise in dict.fromkeys(row.noise for row in rows):
        group = [row for row in rows if row.noise == noise]
        result: dict[str, Any] = {"noise": noise, "n": len(group)}
        if group[0].right is None:
            result |= {"noisy": _mean(row.noisy for row in group), "psnr": _mean(row.psnr for row in group)}
            result |= {"least": min(row.psnr for row in group)}
        else:
            result |= {"right": sum(bool(row.right) for row in group), "loss": _mean(row.loss for row in group)}
        results.append(result)
    return {"task": "choice", "protocol": PROTOCOL, "results": results, "images": [asdict(row) for row in rows]}


def markdown(content: dict[str, Any]) -> str:
    """The report as tables."""
    told = [r for r in content["results"] if "right" in r]
    lines = ["| noise | chosen right | of | loss (dB) |", "|---|---|---|---|"]
    lines += [f"| {r['noise']} | {r['right']} | {r['n']} | {r['loss']:.3f} |" for r in told]
    quiet = [r for r in content["results"] if "right" not in r]
    if quiet:
        lines += ["", "| noise | images | PSNR before (dB) | after | least |", "|---|---|---|---|---|"]
        lines += [f"| {r['noise']} | {r['n']} | {r['noisy']:.2f} | {r['psnr']:.2f} | {r['least']:.2f} |" for r in quiet]
    return "\n".join(lines)


def count(images: ImageSet, sigmas: Sequence[float], photographs: Sequence[Any], harmless: int) -> int:
    """Cases, about: photographs are cut into squares, as many as they have."""
    return len(images.paths) * (2 * len(sigmas) + 2) + 5 * len(photographs) + 2 * min(harmless, len(images.paths))


def _cases(
    images: ImageSet,
    sigmas: Sequence[float],
    photographs: Sequence[tuple[Path, Path]],
    side: int,
    harmless: int,
    seed: int,
) -> Iterator[_Case]:
    from n3net.raw.camera import compress, draw_camera, draw_level, photograph

    for index, path in enumerate(images.paths):
        for channels, name in ((1, "gray"), (3, "colour")):
            clean = images.pixels(index, channels)
            for sigma in sigmas:
                rng = np.random.default_rng([seed, index, channels, round(1000 * sigma)])
                noisy = _eight(clean + rng.normal(0, sigma, clean.shape))
                yield _Case(f"white, {name}, σ {sigma:g}", path.name, noisy, clean, False)
        rng = np.random.default_rng([seed, index])
        rgb = clean.astype(np.float32) / np.float32(255)
        noisy, developed = (_eight(255 * p) for p in photograph(rgb, draw_camera(rng), draw_level(rng), rng))
        yield _Case("simulated camera, colour", path.name, noisy, developed, True)
        yield _Case("simulated camera, gray", path.name, _eight(noisy.mean(-1)), _eight(developed.mean(-1)), True)
        if index < harmless:
            yield _Case(CLEAN, path.name, clean, clean, None)
            yield _Case(COMPRESSED, path.name, compress(clean, 75, True), clean, None)
    for pair in photographs:
        noisy, clean = (read_image(path).pixels for path in pair)
        yield _Case("photographs", pair[0].name, noisy, clean, True)
        height, width = (n // side for n in noisy.shape[:2])
        for place in [(i, j) for i in range(height) for j in range(width)]:
            part = tuple(slice(n * side, (n + 1) * side) for n in place)
            yield _Case(f"photographs, squares of {side}", pair[0].name, noisy[part], clean[part], True)


@cache
def _network(name: str) -> Any:
    from n3net.models.preparing import prepare
    from n3net.weights import load

    return prepare(load(name), "cpu")


def _eight(values: npt.NDArray[Any]) -> Eight:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _psnr(image: Eight, truth: Eight) -> float:
    a, b = (torch.from_numpy(pixels.astype(np.float32)) for pixels in (image, truth))
    return psnr(a, b, 255)


def _mean(values: Any) -> float:
    return float(np.mean(list(values)))
