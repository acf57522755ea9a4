"""What tests of training share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from runs import TINY


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As many threads as in the processes of :func:`start`: another number rounds differently."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training and validation images, and a tiny config."""
    root = tmp_path_factory.mktemp("training")
    rng = np.random.default_rng(0)
    for name, count in (("train", 3), ("validation", 2)):
        (root / name).mkdir()
        for i in range(count):
            small = rng.integers(0, 256, (6, 7, 3), dtype=np.uint8)
            Image.fromarray(small).resize((28, 24), Image.Resampling.BICUBIC).save(root / name / f"{i}.png")
    (root / "tiny.yaml").write_text(TINY + f"base: {root / 'root.yaml'}\n")
    (root / "root.yaml").write_text(f"data: {{root: {root}}}\n")
    return root
