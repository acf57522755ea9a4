"""Batch norm folded into the convolutions before it, for inference."""

from __future__ import annotations

import copy
import itertools

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


def fold_batch_norm(model: nn.Module) -> nn.Module:
    """A copy of the model in eval mode, in which every batch norm that follows a convolution is part of it."""
    model = copy.deepcopy(model).eval()
    for sequence in [m for m in model.modules() if isinstance(m, nn.Sequential)]:
        layers = list(sequence)
        for i, (conv, norm) in enumerate(itertools.pairwise(layers)):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                sequence[i] = fuse_conv_bn_eval(conv, norm)
                sequence[i + 1] = nn.Identity()
    return model
