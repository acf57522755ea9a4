"""A task and a model that live outside of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import n3net
from n3net.errors import UserError
from n3net.models import create
from n3net.tasks import task_class

MODULE = """
import torch
from dataclasses import dataclass
from n3net.models import Model, create, register
from n3net.tasks import Task


class Line(Model):
    purpose = "lines"

    def __init__(self, slope: float = 0.5) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor(slope))

    def forward(self, x):
        return self.slope * x

    def example(self, generator):
        return self(torch.rand(3, generator=generator))


register("my-line", Line, "a line through the origin")


@dataclass(frozen=True)
class Options:
    slope: float = 3.0


class Fit(Task):
    Options = Options
    metric = "closeness"

    def __init__(self, options, model, seed):
        self.options, self.model = options, model

    items_per_epoch = validation_count = 4

    def build_model(self):
        return create(**self.model)

    def item(self, number, rng):
        x = rng.standard_normal(8).astype("float32")
        return {"x": x, "y": x * self.options.slope}

    def loss(self, model, batch):
        return (model(batch["x"]) - batch["y"]).square().mean(), {}

    def validate(self, model, index, rng):
        return {"closeness": -abs(float(model.slope) - self.options.slope)}
"""

COMMAND = [
    *(
        "n3net",
        "train",
        "config.yaml",
        "--runs",
        "runs",
        "data.train=[train]",
        "data.validation=[check]",
        "data.root=.",
    ),
    *("steps=2", "batch_size=1", "model.depth=2", "model.features=4", "data.crop=40"),
]
CONFIG = """
task: {place}
model: {{name: my-line}}
data: {{slope: 3.0}}
steps: 60
batch_size: 4
ema: 0
optimizer: {{name: adam, lr: 0.2, weight_decay: 0}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lines_of_mine.py").write_text(MODULE)
    (tmp_path / "config.yaml").write_text(CONFIG.format(place="lines_of_mine.py:Fit"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_trains_and_its_weights_name_their_module(folder: Path) -> None:
    """In a process of its own, as the command does; one that has not imported the module is told what to do."""
    pytest.importorskip("lightning_fabric")
    command = [sys.executable, "-m", "n3net", "train", "config.yaml", "--runs", "runs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    weights = next(folder.glob("runs/**/weights.safetensors"))
    with pytest.raises(UserError, match=r"'my-line'.*comes from the module 'lines_of_mine': import that first"):
        n3net.load(weights)
    task_class("lines_of_mine.py:Fit")
    assert abs(n3net.load(weights).slope.item() - 3) < 0.2
    with pytest.raises(UserError, match="no option 'slop'"):
        create("my-line", slop=1.0)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("sharpen", "expected gaussian"),
        ("missing.py:Fit", "there is no such file"),
        ("no_such_module_here:Fit", "cannot be imported"),
        ("json:loads", "expected a subclass of n3net.tasks.Task"),
        ("json:nothing", "cannot be imported"),
    ],
)
def test_what_is_no_task_is_refused(place: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        task_class(place)


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """examples/speckle.py as a module beside the config, from the program rather than ``python -m``."""
    pytest.importorskip("lightning_fabric")
    source = Path(__file__).parents[2] / "examples"
    (tmp_path / "speckle.py").write_text((source / "speckle.py").read_text())
    for folder in ("train", "check"):
        (tmp_path / folder).mkdir()
        pixels = np.random.default_rng(0).integers(0, 255, (30, 30), np.uint8)
        Image.fromarray(pixels).resize((70, 70)).save(tmp_path / folder / "a.png")
    program = f"import sys; sys.path[:] = filter(None, sys.path); sys.argv = {COMMAND}; import n3net.cli as c; c.main()"
    config = (source / "speckle.yaml").read_text().replace("examples/speckle.py", "speckle")
    (tmp_path / "config.yaml").write_text(config)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    weights = tmp_path / "runs" / "weights.safetensors"
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"'speckle'.*entry point of the group n3net\.models"):
        n3net.load(weights)
    info = tmp_path / "speckle-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: speckle\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[n3net.models]\nspeckle-net = speckle\n\n[n3net.tasks]\nspeckle = speckle:Speckle\n"
    )
    out = n3net.load(weights)(torch.rand(1, 1, 30, 40))
    assert out.shape == (1, 1, 30, 40)
    assert task_class("speckle").__name__ == "Speckle"
    boards = list((tmp_path / "runs").glob("tensorboard/*"))
    if boards:  # where TensorBoard is installed
        assert b"noisy, denoised, clean" in boards[0].read_bytes()
