"""What the networks see of matches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from n3net.correspondence.matchfile import Pair


def features(pair: Pair, model: Any) -> Tensor:
    """The input of a model for the matches of a pair, (N, C): x0, y0, x1, y1, and what the model's options add.

    Matches without a ratio count as of ratio 1, and those without word on mutuality as not mutual: in training,
    too, some sets come without.
    """
    columns: list[Any] = [pair.x0, pair.x1]
    if model.ratio:
        columns.append(np.ones((len(pair), 1)) if pair.ratio is None else pair.ratio[:, None])
    if model.mutual:
        columns.append(np.zeros((len(pair), 1)) if pair.mutual is None else pair.mutual[:, None])
    return torch.from_numpy(np.hstack(columns).astype(np.float32))
