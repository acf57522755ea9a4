"""Networks that only run: as ``n3net denoise`` has them, and as PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from n3net.bench.harness import Round
from n3net.bench.measure import ratio
from n3net.models import create, fold_batch_norm
from n3net.models.preparing import prepare
from n3net.restoration.running import run
from n3net.restoration.tiles import Part

SIZE = 512


def n3net_over_folded(size: int = SIZE) -> Round:
    return ratio("N3Net", denoising(create("n3net"), size), "DnCNN-17", forward(folded(create("dncnn-17")), size))


def n3net_over_plain(size: int = SIZE) -> Round:
    plain = create("dncnn-17").eval()
    return ratio("N3Net", denoising(create("n3net"), size), "DnCNN-17", forward(plain, size, last=False))


def dncnn_over_folded(size: int = SIZE) -> Round:
    net = create("dncnn-17")
    return ratio("n3net", forward(prepare(net), size), "PyTorch", forward(folded(net), size))


def n3net_over_dncnn(size: int = SIZE) -> Round:
    nets = [forward(prepare(create(name)), size) for name in ("n3net", "dncnn-17")]
    return ratio("N3Net", nets[0], "DnCNN-17", nets[1])


def ffdnet_over_torch(size: int = SIZE) -> Round:
    net = create("ffdnet", channels=3)
    return ratio("n3net", forward(prepare(net), size), "PyTorch", forward(folded(net), size))


def folded(net: nn.Module) -> Any:
    """By PyTorch alone, as fast as it is with little effort: batch norm folded, channels last."""
    return _last(fold_batch_norm(net))


def forward(net: Any, size: int | tuple[int, int], last: bool = True) -> Callable[[], object]:
    """A denoiser on an image that lies ready."""
    height, width = (size, size) if isinstance(size, int) else size
    x = torch.rand(1, net.channels, height, width)
    x = _last(x) if last else x

    def call() -> object:
        with torch.no_grad():
            return net(x, 25.0)

    return call


def denoising(model: nn.Module, size: int) -> Callable[[], object]:
    """What ``n3net denoise`` does between an image that has been read and one that is to be written."""
    net = prepare(model)
    image = np.random.default_rng(0).random((size, size, 1), np.float32)
    out = np.empty_like(image)

    def write(part: Part, values: Any) -> None:
        out[part] = values

    return lambda: run(net, (size, size), lambda part: [image[part]], write)


def _last(part: Any) -> Any:
    return part.to(memory_format=torch.channels_last)
