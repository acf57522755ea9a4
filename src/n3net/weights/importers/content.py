"""What an importer makes of a file, and what importers have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from n3net.errors import UserError

State = dict[str, Tensor]
Kind = Literal["torch", "matlab", "caffe"]


@dataclass(frozen=True)
class Imported:
    """A file of another program under our names.

    Args:
        name, config: of our model.
        state: its tensors, all of them.
        source: what the file is, for people.
        licence: of the weights.
        training: what is known of it, such as ``sigma`` or ``factors``.
    """

    name: str
    config: dict[str, Any]
    state: State
    source: str
    licence: str
    training: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Importer:
    """Knows the files of one program.

    Args:
        kind: of file; decides what ``recognize`` is given: a state dict, what :mod:`.matlab` reads, or :mod:`.caffe`.
        models: that it makes, by name.
        origin: where such files are found.
        recognize: the content of a file and its name -> what it is, or None if it is something else.
    """

    kind: Kind
    models: tuple[str, ...]
    origin: str
    recognize: Callable[[Any, str], Imported | None]


def level_in(name: str) -> dict[str, Any]:
    """The noise level that a file's name tells, as ``sigma``, if it does."""
    found = re.search(r"(?:sigma|std|noise)[=_-]?(\d+)", name, re.IGNORECASE)
    return {"sigma": float(found[1])} if found else {}


def from_matlab(weight: NDArray[Any]) -> Tensor:
    """Weights of a convolution as MATLAB has them, (rows, columns, in[, out]) -> (out, in, rows, columns)."""
    full = np.reshape(weight, weight.shape + (1,) * (4 - weight.ndim))
    return tensor(full).permute(3, 2, 0, 1).contiguous()


def tensor(array: NDArray[Any]) -> Tensor:
    """An array as a tensor of its own, float32."""
    return torch.from_numpy(np.array(array, np.float32, order="C"))


def check_size(path: Path, limit: int) -> None:
    """Refuse a file that is larger than any that is known."""
    size = path.stat().st_size
    if size > limit:
        raise UserError(f"{path}: refused: {size} bytes, where no file of weights that n3net knows has over {limit}")
