"""What the types of the public names say to whoever uses them: mypy checks it (`make types`), nobody runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy.typing as npt
import torch
from torch import Tensor

import n3net
import n3net.models
import n3net.nn
import n3net.weights
from n3net.correspondence.estimators import Pose
from n3net.correspondence.matching import Matches
from n3net.models import Denoiser, Model
from n3net.nn import N3Block, N3Block1d, N3Block2d, N3Options


def uses(image: npt.NDArray[Any]) -> None:
    assert_type(n3net.__version__, str)
    assert_type(n3net.select(torch.zeros(4), 2, 0.1, rule="hard"), Tensor)
    assert_type(n3net.denoise(image, 25, model="gray"), npt.NDArray[Any])
    assert_type(n3net.upscale(image, 2), npt.NDArray[Any])
    assert_type(n3net.match("left.jpg", Path("right.jpg")), Matches)
    assert_type(n3net.match(image, image).pose, Pose | None)

    for block in (N3Block(8), N3Block1d(8), N3Block2d(8, options=N3Options(distance="squared"))):
        assert_type(block.out_channels, int)
    assert_type(n3net.nn.from_2018({}), dict[str, Tensor])

    network = n3net.load("gray")
    assert_type(network, Model)
    assert isinstance(network, Denoiser)
    assert_type(n3net.models.create("n3net", channels=3), Model)
    assert_type(n3net.weights.save("x.safetensors", network), Path)

    n3net.select(torch.zeros(4), 2, rule="soft")  # type: ignore[arg-type]
    n3net.denoise("photo.png")  # type: ignore[arg-type]
    n3net.upscale(image)  # type: ignore[call-arg]
