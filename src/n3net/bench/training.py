"""Training steps: of ``n3net train gray`` as its config runs them, and of bare networks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from PIL import Image
from torch import nn

from n3net.bench import naive
from n3net.bench.harness import Round, Sample
from n3net.bench.made_up import picture, temporary_folder
from n3net.bench.measure import peak_memory, ratio
from n3net.checking import from_mapping
from n3net.models import DnCNN, N3Net
from n3net.tasks.gaussian import GaussianDenoising
from n3net.training.config import load

CROP = 80


def over_torch(crop: int = CROP) -> Round:
    return ratio("n3net", config_step(crop), "PyTorch", config_step(crop, "winograd=false"))


def over_naive(crop: int = CROP) -> Round:
    then = config_step(crop, "winograd=false", "channels_last=false", task=_Of2018)
    return ratio("n3net", config_step(crop), "2018 way", then)


def n3net_over_dncnn() -> Round:
    return ratio("N3Net", bare_step(N3Net()), "DnCNN-17", bare_step(DnCNN()))


def n3net_over_dncnn_memory() -> Round:
    setup = "from n3net.bench.training import bare_step, DnCNN, N3Net\nstep = bare_step({}())"

    def one_round() -> Sample:
        a, b = (peak_memory(setup.format(name), "step(); step()") for name in ("N3Net", "DnCNN"))
        return Sample(a / b, {"N3Net (MiB)": a, "DnCNN-17 (MiB)": b})

    return one_round


class _Of2018(GaussianDenoising):
    """The task with a network whose blocks compute the way of 2018."""

    def build_model(self) -> nn.Module:
        model = super().build_model()
        naive.replace_blocks(model.net)  # type: ignore[arg-type]
        return model


def config_step(crop: int, *overrides: str, task: type[GaussianDenoising] = GaussianDenoising) -> Callable[[], None]:
    """A step of the trainer itself on a batch of made-up images: loss, gradient, optimizer, averaged weights."""
    from n3net.training.company import fabric_of
    from n3net.training.loop import Trainer

    folder = temporary_folder()
    for name in ("train.png", "validation.png"):
        Image.fromarray(picture(120, 160, 1)).save(folder / name)
    places = [f"data.root={folder}", "data.train=[train.png]", "data.validation=[validation.png]"]
    config = load("gray", [*places, f"data.crop={crop}", "accelerator=cpu", *overrides])
    run = folder / "run"
    run.mkdir()
    work = task(from_mapping(task.Options, config.data, "data"), config.model, config.seed)
    trainer = Trainer(config, run, fabric_of(config), work)
    batch = trainer._batch(0)
    return lambda: trainer._step(batch, 0.5)


def bare_step(net: nn.Module) -> Callable[[], None]:
    """A step with Adam, in the default layout, with PyTorch's convolutions."""
    x = torch.rand(8, 1, 80, 80)
    optimizer = torch.optim.Adam(net.parameters(), 1e-4)

    def step() -> None:
        optimizer.zero_grad()
        (net(x) - x).square().mean().backward()
        optimizer.step()

    return step
