"""Reports as pages."""

from __future__ import annotations

import torch

from n3net.evaluation.html import interesting_crop


def test_the_crop_is_where_outputs_differ() -> None:
    clean = torch.zeros(1, 100, 120)
    other = clean.clone()
    other[:, 60:80, 90:110] = 1
    left, top, side = interesting_crop([clean, other], clean, 40)
    assert side == 40
    assert left <= 90 <= 110 <= left + side
    assert top <= 60 <= 80 <= top + side
