"""Whether noise is told apart, counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from n3net.evaluation import choice
from n3net.evaluation.images import image_set


def test_choice_counts_what_was_chosen_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One picture: sky and texture; a choice that is always white is wrong for cameras, and costs something."""

    y, x = np.mgrid[:96, :128]
    gray = np.where(y < 50, 0.35 + 0.4 * x / 128, 0.3 + 0.05 * np.sin(x / 2) * np.sin(y / 3))
    pixels = (255 * np.stack([gray, 0.9 * gray, 0.8 * gray], -1)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    images, steps = image_set(tmp_path), []
    rows = choice.evaluate(images, [10], harmless=1, progress=steps.append)
    assert len(rows) == len(steps) == choice.count(images, [10], [], 1)
    results = {r["noise"]: r for r in choice.report(rows)["results"]}
    assert results["white, gray, σ 10"]["right"] == results["white, colour, σ 10"]["right"] == 1
    assert results["none"]["least"] > 35
    assert "| white, colour, σ 10 | 1 | 1 | 0.000 |" in choice.markdown(choice.report(rows))
    monkeypatch.setattr("n3net.restoration.denoising.weights_for", lambda image: ("color", ""))
    rows = choice.evaluate(images, [], harmless=0)
    assert [(row.right, row.loss != 0) for row in rows] == [(False, True)] * 2
