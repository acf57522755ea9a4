"""What can be measured: trained networks by name or file, and methods that learn nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from n3net.errors import UserError
from n3net.evaluation.names import BEST, split_label
from n3net.methods.registry import METHODS, find
from n3net.weights.record import recorded_range

Run = Callable[[Tensor, Any], Tensor]


@dataclass(frozen=True)
class Method:
    """A way to remove noise, or to upscale.

    Args:
        name: in tables.
        run: an image (C, H, W) and how much has been done to it -> the restored image. That is a noisy image and sigma
            in gray levels, a raw image and its noise level, or a small image and the factor.
        channels: that it works on, None if any.
        trained_for: noise levels or factors it was trained for, lowest and highest, None if that is not known or any.
        digest: of the weights.
    """

    name: str
    run: Run
    channels: int | None = None
    trained_for: tuple[float, float] | None = None
    digest: str | None = None


def method(name: str) -> Method:
    """A method by name: of :data:`CLASSICAL` or :mod:`n3net.methods`, or what :func:`n3net.load` takes.

    With ``+best`` behind it, the mean of eight orientations, as ``n3net denoise --best`` has it.
    """
    label, name = split_label(name)
    label = label or name
    if name.endswith(BEST):
        one = method(name.removesuffix(BEST))
        return replace(one, name=label, run=_all_ways(one.run))
    if name in CLASSICAL:
        return Method(label, CLASSICAL[name]())
    if name in METHODS:
        return Method(label, _learns_nothing(name))
    from n3net.models import Denoiser
    from n3net.models.preparing import prepare
    from n3net.weights.store import load_for

    model = load_for(name, Denoiser)
    net: Any = prepare(model)

    def run(noisy: Tensor, sigma: float) -> Tensor:
        return in_tiles(net.net, noisy, lambda x: net.told(x, sigma), net.finish)

    return Method(label, run, model.channels, trained_for(model.record), model.record["digest"])


def in_tiles(
    net: torch.nn.Module,
    image: Tensor,
    told: Callable[[Tensor], Tensor],
    finish: Callable[[Tensor, Tensor], Tensor],
    tile: int | None = None,
) -> Tensor:
    """An image (C, H, W) through a network, as the commands do it: in parts where it is large."""
    from n3net.restoration.running import Array, run
    from n3net.restoration.tiles import Part

    pixels = image.permute(1, 2, 0).numpy()  # (H, W, C)
    out = np.empty(pixels.shape, np.float32)

    def write(part: Part, values: Array) -> None:
        out[part] = values

    run(net, pixels.shape[:2], lambda part: [pixels[part]], write, told=told, finish=finish, tile=tile)
    return torch.from_numpy(out).permute(2, 0, 1).contiguous()


def trained_for(record: dict[str, Any]) -> tuple[float, float] | None:
    """Lowest and highest noise level that a training record names."""
    return recorded_range(record, "sigma")


def _all_ways(run: Run) -> Run:
    """The mean over an image in four turns, and mirrored."""

    def mean(noisy: Tensor, sigma: Any) -> Tensor:
        total = torch.zeros_like(noisy)
        for turns in range(4):
            for axes in ((), (2,)):
                out = run(noisy.rot90(turns, (1, 2)).flip(axes).contiguous(), sigma)
                total += out.flip(axes).rot90(-turns, (1, 2))
        return total / 8

    return mean


def _noisy() -> Run:
    return lambda noisy, sigma: noisy


def _learns_nothing(name: str) -> Run:
    """A method of :mod:`n3net.methods`, gray or colour as the image is."""

    def run(noisy: Tensor, sigma: float) -> Tensor:
        model: Any = find(name, "denoising", len(noisy))
        return in_tiles(model.net, noisy, lambda x: model.told(x, sigma), model.finish)

    return run


def _bm3d_package() -> Run:
    """The authors' program, to compare ours with."""
    try:
        import bm3d
    except ImportError as error:
        raise UserError(
            "bm3d-package: needs the package bm3d (for non-commercial use): pip install 'n3net[bm3d]'"
        ) from error

    def run(noisy: Tensor, sigma: float) -> Tensor:
        pixels = noisy.numpy().transpose(1, 2, 0).astype(np.float64)
        call = bm3d.bm3d_rgb if pixels.shape[2] == 3 else bm3d.bm3d
        out = call(pixels if pixels.shape[2] == 3 else pixels[..., 0], sigma / 255)
        return torch.from_numpy(np.atleast_3d(out).transpose(2, 0, 1).astype(np.float32))

    return run


def _nlm() -> Run:
    """Non-local means (Buades et al. 2005), 7 x 7 patches in 23 x 23 pixels, h = 0.55 σ: good on BSDS500 val."""
    try:
        from skimage.restoration import denoise_nl_means
    except ImportError as error:
        raise UserError("nlm: needs scikit-image: pip install 'n3net[nlm]'") from error

    def run(noisy: Tensor, sigma: float) -> Tensor:
        pixels = noisy.numpy().transpose(1, 2, 0)
        s = sigma / 255
        out = denoise_nl_means(
            pixels, patch_size=7, patch_distance=11, h=0.55 * s, sigma=s, fast_mode=True, channel_axis=-1
        )
        return torch.from_numpy(np.asarray(out, dtype=np.float32).reshape(pixels.shape).transpose(2, 0, 1).copy())

    return run


CLASSICAL: dict[str, Callable[[], Run]] = {"noisy": _noisy, "nlm": _nlm, "bm3d-package": _bm3d_package}
