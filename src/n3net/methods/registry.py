"""Methods that learn nothing, by name: wherever weights are asked for, these names are understood, too.

A new method is one new file and one line in ``METHODS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from n3net.errors import UserError
from n3net.methods.bm3d import BM3D
from n3net.methods.enlarging import Enlarger
from n3net.methods.selfex import selfex
from n3net.methods.twsc import TWSC
from n3net.methods.wsdsr import wsdsr
from n3net.models.denoiser import Denoiser


@dataclass(frozen=True)
class Baseline:
    """One method.

    Args:
        build: number of channels -> what stands in the place of a trained model: a Denoiser or an Enlarger.
        summary: what it is, in a line.
        paper: where the paper reports it.
        task: what it is for, in the words of :mod:`n3net.models.registry`.
    """

    build: Callable[[int], nn.Module]
    summary: str
    paper: str
    task: str = "denoising"


METHODS = {
    "bm3d": Baseline(
        lambda channels: Denoiser(BM3D(channels), channels, noise_map=True),
        "BM3D (Dabov et al. 2007), groups of similar patches in a 3-D transform",
        "Tables 3 and 4",
    ),
    "twsc": Baseline(
        lambda channels: Denoiser(TWSC(), channels),
        "TWSC (Xu et al. 2018), sparse groups of similar patches, for photographs",
        "Table 4",
    ),
    "selfex": Baseline(
        lambda channels: Enlarger(selfex),
        "SelfEx (Huang et al. 2015) without planes, our version: details from larger patches of the image",
        "Table 5",
        "super-resolution",
    ),
    "wsd-sr": Baseline(
        lambda channels: Enlarger(wsdsr),
        "WSD-SR (Cruz et al. 2018), our version: Wiener filters along groups, and back-projection",
        "Table 5",
        "super-resolution",
    ),
}


def find(name: object, task: str, channels: int) -> Any:
    """The method of a name for images of so many channels, None where there is none.

    Raises:
        UserError: it is for something else.
    """
    if not isinstance(name, str) or name not in METHODS or Path(name).is_file():
        return None
    entry = METHODS[name]
    if entry.task != task:
        raise UserError(f"{name}: a method for {entry.task}, which is not for {task}")
    return entry.build(channels).eval()
