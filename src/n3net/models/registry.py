"""All models by name: what they are, which row of the paper's tables they stand for, how they are built.

A new model is a class in a file of its own and one entry in ``MODELS``. Its settings stand in the class alone: what it
is built from says what they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import entry_points
from typing import Any, get_type_hints

import torch
from torch import nn

from n3net.checking import convert, nearest
from n3net.errors import UserError
from n3net.models.builders import (
    alone,
    denoising,
    denoising_nn3d,
    photo_cbdnet,
    read_options,
    upscaling_edsr,
    upscaling_mdsr,
    within,
)
from n3net.models.cnnet import CNNet, CorrespondenceN3Net
from n3net.models.denoiser import Denoiser
from n3net.models.dncnn import DnCNN
from n3net.models.ffdnet import FFDNet
from n3net.models.interface import Model, Recipe
from n3net.models.memnet import MemNet
from n3net.models.n3net import N3Net
from n3net.models.nlnet import NLNet
from n3net.models.raw import RawDenoiser
from n3net.models.red30 import RED30
from n3net.models.unlnet import UNLNet
from n3net.models.upscaler import Upscaler

# Largest value of an integer in a config, so that a file's config cannot ask for a network without end.
LIMITS = {"depth": 256, "stages": 32, "window": 255, "patch_size": 255, "stride": 255, "fold": 8}
LIMIT = 1024
MOST_LAYERS = 512


@dataclass(frozen=True)
class Entry:
    """One model of the registry.

    Args:
        build: gives the model; its keyword arguments, which have types and defaults, are the model's config.
        summary: what it is, in a line.
        paper: where the paper reports it.
        config: where it differs from the builder's defaults.
    """

    build: Callable[..., Model]
    summary: str
    paper: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)


N3NET, DNCNN = within(Denoiser, N3Net), within(Denoiser, DnCNN)
RAW_N3NET, MEMNET = within(RawDenoiser, N3Net), within(Upscaler, MemNet)
FFDNET, UNLNET, NLNET = denoising(FFDNet, noise_map=True), denoising(UNLNet, noise_map=True), denoising(NLNet)
VDSR = {"depth": 20, "norm": False}  # a DnCNN of 20 layers, without batch norm (Kim et al. 2016)

MODELS: dict[str, Entry] = {
    "n3net": Entry(N3NET, "N3Net, 3 x DnCNN-6 and two N3 blocks", "Table 1 ours full, Tables 2 and 3"),
    "n3net-fast": Entry(
        N3NET,
        "N3Net at half resolution, pixels of 2 x 2 as channels: 2 x DnCNN-8 and one N3 block",
        "not in the paper",
        {"fold": 2, "stages": 2, "depth": 8, "block_channels": 16, "k": 4, "patch_size": 6, "stride": 3},
    ),
    "n3net-light": Entry(N3NET, "2 x DnCNN-6 and one N3 block", "Table 1 ours light; supplement", config={"stages": 2}),
    "dncnn-17": Entry(DNCNN, "DnCNN of 17 layers, the baseline", "Table 1 (i), Table 3"),
    "dncnn-18": Entry(DNCNN, "DnCNN as deep as N3Net", "Table 1 (ii)", config={"depth": 18}),
    "dncnn-6": Entry(DNCNN, "one local network of N3Net", "supplement, 1 x DnCNN", config={"depth": 6}),
    "knn-input": Entry(
        N3NET,
        "hard KNN blocks that match noisy patches",
        "Table 1 (iii)",
        config={"rule": "hard", "match_on": "input"},
    ),
    "knn-denoised": Entry(
        N3NET,
        "hard KNN blocks that match patches of a DnCNN-17's output",
        "Table 1 (iv)",
        config={"rule": "hard", "match_on": "denoised"},
    ),
    "concrete": Entry(N3NET, "Concrete blocks with an annealing net", "Table 1 (v)", config={"rule": "concrete"}),
    "dncnn-6x2": Entry(N3NET, "2 x DnCNN-6 without a block", "supplement, 2 x DnCNN", config={"stages": 2, "k": 0}),
    "knn-light": Entry(
        N3NET,
        "2 x DnCNN-6 and one hard KNN block on noisy patches",
        "supplement, 2 x DnCNN, KNN block",
        config={"stages": 2, "rule": "hard", "match_on": "input"},
    ),
    "ffdnet": Entry(FFDNET, "FFDNet (Zhang et al. 2018), half resolution and a noise map", "Table 3"),
    "red30": Entry(within(Denoiser, RED30), "RED30 (Mao et al. 2016), 30 layers of 128 features", "Table 3"),
    "nlnet": Entry(NLNET, "NLNet (Lefkimmiatis 2017), 5 stages on groups of 8 patches", "Table 3"),
    "unlnet": Entry(UNLNET, "UNLNet (Lefkimmiatis 2018), NLNet that is told the noise level", "Table 3"),
    "nn3d": Entry(denoising_nn3d, "a DnCNN and a non-local filter in turns (Cruz et al. 2018)", "Table 3"),
    "cbdnet": Entry(photo_cbdnet, "CBDNet (Guo et al. 2019), estimates the noise and removes it", "Table 4"),
    "n3net-sets": Entry(alone(CorrespondenceN3Net), "CNNet with an N3 block, for correspondences", "Table 6"),
    "cnnet": Entry(alone(CNNet), "CNNet (Yi et al. 2018), the baseline", "Table 6"),
    "raw-n3net": Entry(RAW_N3NET, "N3Net for raw data, told a and b of its noise", "Table 4"),
    "raw-dncnn": Entry(within(RawDenoiser, DnCNN), "DnCNN for raw data, told a and b of its noise", "Table 4"),
    "n3net-dnd": Entry(
        RAW_N3NET,
        "the 2018 program's network for raw data, 3 x DnCNN-9 of 128 features",
        "Table 4",
        {"stabilize": False, "depth": 9, "features": 128, "block_channels": 32, "k": 3},
    ),
    "n3net-sr": Entry(
        within(Upscaler, N3Net), "N3Net for super-resolution, 3 x VDSR-7 and two N3 blocks", "Table 5", {"depth": 7}
    ),
    "vdsr": Entry(within(Upscaler, DnCNN), "VDSR of 20 layers, the baseline of super-resolution", "Table 5", VDSR),
    "memnet": Entry(MEMNET, "MemNet (Tai et al. 2017), 6 blocks of 6 units, 80 layers", "Table 5"),
    "memnet-10": Entry(
        MEMNET,
        "MemNet, 10 blocks of 10 units, 212 layers",
        "not in the paper",
        {"blocks": 10, "units": 10},
    ),
    "mdsr": Entry(upscaling_mdsr, "MDSR (Lim et al. 2017), colour, x2, x3 and x4 in one", "Table 5"),
    "mdsr-baseline": Entry(upscaling_mdsr, "MDSR of 16 blocks", "not in the paper", {"blocks": 16}),
    "edsr": Entry(upscaling_edsr, "EDSR (Lim et al. 2017), colour, for one factor", "not in the paper"),
    "edsr-baseline": Entry(
        upscaling_edsr,
        "EDSR of 16 blocks of 64 features",
        "not in the paper",
        {"blocks": 16, "features": 64, "scale": 1.0},
    ),
}

ALIASES = {"dncnn": "dncnn-17", "n3net-full": "n3net"}


def register(name: str, model: type[Model], summary: str, **config: Any) -> None:
    """Add a model of your own, which :func:`create`, training and files of weights then know by its name.

    Args:
        name: of its own.
        model: its class; the keyword arguments of ``__init__``, with types and defaults, are its settings.
        summary: what it is, in a line.
        config: where it differs from the class's defaults.
    """
    if name in MODELS and MODELS[name].build.__qualname__ != _builder_name(model):
        raise ValueError(f"there is a model {name!r} already; choose another name")
    build = alone(model)
    build.__module__, build.__qualname__ = model.__module__, _builder_name(model)
    MODELS[name] = Entry(build, summary, "", config)


def is_known(name: str) -> bool:
    """Whether there is a model of this name, in this package or in an installed one.

    A package offers its models as entry points of the group ``n3net.models``: the name of a model, and the module that
    registers it, which is imported when the model is first asked for.
    """
    for point in entry_points(group="n3net.models", name=name) if name not in MODELS else ():
        try:
            point.load()
        except (ImportError, AttributeError) as error:
            raise UserError(f"the model {name!r} is in {point.value}, which cannot be imported ({error})") from error
    return name in MODELS


def _builder_name(model: type[Model]) -> str:
    return f"{model.__module__}.{model.__qualname__}"


def create(name: str, **overrides: Any) -> Model:
    """A model by name, freshly initialised, in training mode.

    Args:
        name: one of ``MODELS``.
        overrides: of its config, e.g. ``channels=3``, ``noise_map=True``, ``k=4``, ``options="reference-2018"``.

    Example:
        >>> model = create("n3net", k=4)
        >>> model.recipe.config["k"], model.recipe.config["stages"]
        (4, 3)
    """
    name = ALIASES.get(name, name)
    if not is_known(name):
        raise UserError(f"there is no model {name!r}{nearest(name, MODELS)} ('n3net models' tells more)")
    entry = MODELS[name]
    config = full_config(name, **overrides)
    try:
        model = entry.build(**config)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error
    model.recipe = Recipe(name, config)
    return model


def count_parameters(model: nn.Module) -> int:
    """How many numbers its parameters hold, those of a frozen guide included."""
    return sum(p.numel() for p in model.parameters())


def describe(name: str) -> dict[str, Any]:
    """One line of the registry: name, task, parameters, the paper's row, what it is, and its config."""
    with torch.device("meta"):
        model = create(name)
    entry = MODELS[ALIASES.get(name, name)]
    return {
        "name": model.recipe.name,
        "task": model.purpose,
        "parameters": count_parameters(model),
        "paper": entry.paper,
        "summary": entry.summary,
        "config": model.recipe.config,
    }


def full_config(name: str, **overrides: Any) -> dict[str, Any]:
    """The builder's defaults, the entry's config and the overrides, checked, in JSON types."""
    entry = MODELS[name]
    parameters = inspect.signature(entry.build).parameters
    hints = {name: p.annotation for name, p in parameters.items()} | get_type_hints(entry.build)
    for key in overrides:
        if key not in parameters:
            raise UserError(f"{name} has no option {key!r}{nearest(key, parameters)}")
    config: dict[str, Any] = {}
    for key, parameter in parameters.items():
        value = convert({**entry.config, **overrides}.get(key, parameter.default), hints[key], f"{name}: {key}")
        if isinstance(value, int) and not isinstance(value, bool) and not 0 <= value <= LIMITS.get(key, LIMIT):
            raise UserError(f"{name}: {key}: expected 0 to {LIMITS.get(key, LIMIT)}, got {value}")
        config[key] = asdict(read_options(value)) if key == "options" else value
    layers = config.get("stages", 1) * (config.get("depth") or 1)
    if layers > MOST_LAYERS:
        raise UserError(f"{name}: stages times depth: expected at most {MOST_LAYERS}, got {layers}")
    if config.get("channels", 1) not in (1, 3):
        raise UserError(f"{name}: channels: expected 1 (gray) or 3 (colour), got {config['channels']}")
    return config
