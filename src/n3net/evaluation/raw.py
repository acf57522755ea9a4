"""Simulated raw data: pictures turned back into the mosaic of a sensor, with noise of three known levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from n3net.errors import UserError
from n3net.evaluation.images import ImageSet
from n3net.evaluation.methods import Method, in_tiles, method
from n3net.evaluation.names import split_label
from n3net.evaluation.restoration import RULES, Case, Level, Row, full_report, measure
from n3net.noise.sensor import NoiseLevel, Stabilizer, heteroscedastic
from n3net.raw.simulation import LEVELS, SCENE
from n3net.weights.record import recorded_range

PROTOCOL = {
    "images": f"RGB c in [0, 1] -> {SCENE.factor} c^{SCENE.exponent}, red divided by {SCENE.gains[0]} and blue by "
    f"{SCENE.gains[1]}, Bayer array RGGB; denoised as four planes of half the height and width",
    "noise": "Gaussian of variance a y + b, clipped to [0, 1]; "
    + "; ".join(f"{name}: a = {level.a:g}, b = {level.b:g}" for name, level in LEVELS.items()),
    "seed": "torch Generator of (seed, image number): the same noise for every model",
    "psnr": "of the mosaic, linear values, output clipped to [0, 1] and not rounded; mean over images of dB",
    "ssim": "of the planes; Gaussian window 11 x 11, sigma 1.5, windows inside the image; mean over planes and images",
    **RULES,
}


def raw_method(name: str) -> Method:
    """A method by name: ``noisy``, ``bm3d`` or ``bm3d-package`` on stabilised values, or weights.

    ``LABEL=NAME`` gives it another name in tables.
    """
    label, name = split_label(name)
    label = label or name
    if name == "noisy":
        return Method(label, lambda noisy, level: noisy)
    if name in ("bm3d", "bm3d-package"):
        return Method(label, _stabilized(method(name)))
    from n3net.models.preparing import prepare
    from n3net.models.raw import RawDenoiser
    from n3net.weights.store import load_for

    model = load_for(name, RawDenoiser)
    net: Any = prepare(model)

    def run(noisy: Tensor, level: NoiseLevel) -> Tensor:
        a, b = level.a, level.b
        ends = (lambda x: net.told(x, a, b)), (lambda out, told: net.finish(out, told, a, b))
        return torch.cat([in_tiles(net.net, plane[None], *ends) for plane in noisy])

    found = recorded_range(model.record, "log_a")
    known = (10 ** found[0], 10 ** found[1]) if found else None
    return Method(label, run, None, known, model.record["digest"])


def _stabilized(white: Method) -> Callable[[Tensor, NoiseLevel], Tensor]:
    """The algebraic inverse is used: where values are cut off at black it is better than the unbiased one."""

    def run(noisy: Tensor, level: NoiseLevel) -> Tensor:
        scale = Stabilizer.of(noisy, level.a, level.b)
        planes = [white.run(plane[None], 255 * float(scale.sigma)) for plane in scale.forward(noisy)]
        return scale.inverse(torch.cat(planes))

    return run


def evaluate(
    methods: Sequence[Method],
    images: ImageSet,
    names: Sequence[str],
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda what: None,
    **kept: Any,
) -> list[Row]:
    """Denoise all images with all methods.

    Args:
        methods: see :func:`raw_method`.
        images: developed pictures.
        names: of levels, see :data:`n3net.raw.simulation.LEVELS`.
        seed: of the noise.
        progress: called after each image and method.
        kept: pictures to keep, see :func:`n3net.evaluation.restoration.measure`.
    """
    for name in names:
        if name not in LEVELS:
            raise UserError(f"level: expected {', '.join(LEVELS)}, got {name!r}")
    rows = []
    for name in names:
        cases = _cases(images, LEVELS[name], seed)
        rows += measure(
            methods, images.name, Level("a", LEVELS[name].a, LEVELS[name]), cases, progress=progress, **kept
        )
    return rows


def _cases(images: ImageSet, level: NoiseLevel, seed: int) -> Iterator[Case]:
    for index, path in enumerate(images.paths):
        rgb = images.read(index, 3).permute(1, 2, 0).numpy()  # (H, W, 3)
        rgb = rgb[: rgb.shape[0] // 2 * 2, : rgb.shape[1] // 2 * 2]
        if min(rgb.shape[:2]) < 22:
            raise UserError(f"{path}: {rgb.shape[1]} x {rgb.shape[0]} pixels are too few, SSIM needs 22 each way")
        mosaic = SCENE.bayer(rgb)
        planes = np.stack([mosaic[row::2, column::2] for row in (0, 1) for column in (0, 1)])  # (4, H / 2, W / 2)
        clean = torch.from_numpy(planes)
        generator = torch.Generator().manual_seed(1_000_003 * seed + index)
        yield Case(path.name, clean, heteroscedastic(clean, level.a, level.b, generator).clamp(0, 1))


def report(rows: Sequence[Row], methods: Sequence[Method], seed: int) -> dict[str, Any]:
    """All that was measured and how, for a JSON file; ``means`` are those over the levels."""
    content = full_report("raw", {**PROTOCOL, "seed_value": seed}, rows, methods)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in content["results"]:
        groups.setdefault((result["model"], result["dataset"]), []).append(result)
    content["means"] = [
        {"model": model, "dataset": dataset}
        | {key: sum(r[key] for r in group) / len(group) for key in ("psnr", "ssim")}
        for (model, dataset), group in groups.items()
    ]
    return content


def markdown_means(means: Sequence[Mapping[str, Any]]) -> str:
    """Means over the levels as a Markdown table."""
    lines = ["| model | data | mean PSNR (dB) | mean SSIM |", "|---|---|---|---|"]
    lines += [f"| {m['model']} | {m['dataset']} | {m['psnr']:.2f} | {m['ssim']:.4f} |" for m in means]
    return "\n".join(lines)
