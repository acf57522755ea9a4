"""All models by name: what they are, which row of the paper's tables they stand for, how they are built.

A new model is one builder, whose keyword arguments are the model's config, and one line in ``MODELS``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_type_hints

import torch
from torch import nn

from n3net.checking import convert, from_mapping, nearest
from n3net.errors import UserError
from n3net.models.cbdnet import CBDNet
from n3net.models.cnnet import CNNet, CorrespondenceN3Net
from n3net.models.denoiser import Denoiser
from n3net.models.dncnn import DnCNN
from n3net.models.edsr import FACTORS, MDSR
from n3net.models.ffdnet import FFDNet
from n3net.models.memnet import MemNet
from n3net.models.n3net import N3Net
from n3net.models.nlnet import NLNet
from n3net.models.nn3d import NN3D
from n3net.models.raw import RawDenoiser
from n3net.models.red30 import RED30
from n3net.models.unlnet import UNLNet
from n3net.models.upscaler import ColorUpscaler, Upscaler
from n3net.nn import PRESETS, N3Options
from n3net.selection import Rule

# Largest value of an integer in a config, so that a file's config cannot ask for a network without end.
LIMITS = {"depth": 256, "stages": 32, "window": 255, "patch_size": 255, "stride": 255}
LIMIT = 1024
MOST_LAYERS = 512

Options = str | dict[str, Any] | N3Options


@dataclass(frozen=True)
class Recipe:
    """The name and the full config that :func:`create` built a model from; every model carries its own."""

    name: str
    config: dict[str, Any]  # JSON types only


@dataclass(frozen=True)
class Entry:
    """One model of the registry.

    Args:
        build: a function of keyword arguments with types and defaults, which are the model's config.
        summary: what it is, in a line.
        paper: where the paper reports it.
        task: what it is for.
        config: where it differs from the builder's defaults.
    """

    build: Callable[..., nn.Module]
    summary: str
    paper: str = ""
    task: str = "denoising"
    config: Mapping[str, Any] = field(default_factory=dict)


def denoising_n3net(
    *,
    channels: int = 1,
    noise_map: bool = False,
    relative: bool = False,
    stages: int = 3,
    depth: int = 6,
    features: int = 64,
    block_channels: int = 8,
    k: int = 7,
    patch_size: int = 10,
    stride: int = 5,
    window: int = 15,
    options: Options = "paper",
    rule: Rule = "continuous",
    match_on: Literal["embedding", "input", "denoised"] = "embedding",
    first_norm: bool = True,
) -> nn.Module:
    """N3Net and its ablations; see :class:`n3net.models.N3Net`."""
    net = N3Net(
        channels + noise_map,
        channels,
        stages=stages,
        depth=depth,
        features=features,
        block_channels=block_channels,
        k=k,
        patch_size=patch_size,
        stride=stride,
        window=window,
        options=_options(options),
        rule=rule,
        match_on=match_on,
        first_norm=first_norm,
    )
    return Denoiser(net, channels, noise_map, relative)


def denoising_dncnn(
    *,
    channels: int = 1,
    noise_map: bool = False,
    relative: bool = False,
    depth: int = 17,
    features: int = 64,
    first_norm: bool = True,
    norm: bool = True,
) -> nn.Module:
    """DnCNN; see :class:`n3net.models.DnCNN`."""
    net = DnCNN(channels + noise_map, channels, depth, features, first_norm=first_norm, norm=norm)
    return Denoiser(net, channels, noise_map, relative)


def denoising_ffdnet(
    *, channels: int = 1, depth: int | None = None, features: int | None = None, norm: bool = True
) -> nn.Module:
    """FFDNet; see :class:`n3net.models.FFDNet`."""
    return Denoiser(FFDNet(channels, depth, features, norm), channels, True)


def denoising_red30(
    *, channels: int = 1, noise_map: bool = False, depth: int = 30, features: int = 128, skip_every: int = 2
) -> nn.Module:
    """RED30; see :class:`n3net.models.RED30`."""
    return Denoiser(RED30(channels + noise_map, channels, depth, features, skip_every), channels, noise_map)


def denoising_nn3d(
    *,
    channels: int = 1,
    depth: int = 17,
    features: int = 64,
    first_norm: bool = True,
    norm: bool = True,
    rounds: int = 2,
    group: int = 32,
    patch_size: int = 10,
    stride: int = 5,
    window: int = 15,
) -> nn.Module:
    """NN3D on a DnCNN that is told the noise level; see :class:`n3net.models.NN3D`."""
    base = Denoiser(DnCNN(channels + 1, channels, depth, features, first_norm=first_norm, norm=norm), channels, True)
    net = NN3D([base], rounds, group=group, patch_size=patch_size, stride=stride, window=window)
    return Denoiser(net, channels, True)


def denoising_nlnet(
    *, channels: int = 1, patch_size: int | None = None, stages: int = 5, group: int = 8, radius: int = 15
) -> nn.Module:
    """NLNet for one noise level; see :class:`n3net.models.NLNet`."""
    return Denoiser(NLNet(channels, patch_size, stages, group, radius), channels)


def denoising_unlnet(
    *,
    channels: int = 1,
    patch_size: int | None = None,
    filters: int | None = None,
    stages: int = 5,
    group: int = 8,
    radius: int = 15,
) -> nn.Module:
    """UNLNet; see :class:`n3net.models.UNLNet`."""
    return Denoiser(UNLNet(channels, patch_size, filters, stages, group, radius), channels, True)


def photo_cbdnet(*, features: int = 64) -> nn.Module:
    """CBDNet, which finds out the noise level of colour photographs itself; see :class:`n3net.models.CBDNet`."""
    return Denoiser(CBDNet(features), 3)


def raw_n3net(
    *,
    stabilize: bool = True,
    stages: int = 3,
    depth: int = 6,
    features: int = 64,
    block_channels: int = 8,
    k: int = 7,
    patch_size: int = 10,
    stride: int = 5,
    window: int = 15,
    options: Options = "paper",
    first_norm: bool = True,
) -> nn.Module:
    """N3Net that is told the noise level (a, b) of raw data; see :class:`n3net.models.raw.RawDenoiser`."""
    settings = {**locals(), "options": _options(options)}
    del settings["stabilize"]
    return RawDenoiser(N3Net(3, 1, **settings), stabilize)


def raw_dncnn(*, stabilize: bool = True, depth: int = 17, features: int = 64, first_norm: bool = True) -> nn.Module:
    """DnCNN that is told the noise level (a, b) of raw data."""
    return RawDenoiser(DnCNN(3, 1, depth, features, first_norm=first_norm), stabilize)


def correspondence_cnnet(
    *, features: int = 128, depth: int = 12, ratio: bool = False, mutual: bool = False
) -> nn.Module:
    """CNNet; see :class:`n3net.models.CNNet`."""
    return CNNet(features, depth, ratio=ratio, mutual=mutual)


def correspondence_n3net(
    *,
    features: int = 128,
    depth: int = 12,
    k: int = 3,
    options: Options = "paper",
    block_features: int = 128,
    ratio: bool = False,
    mutual: bool = False,
) -> nn.Module:
    """N3Net for correspondences; see :class:`n3net.models.CorrespondenceN3Net`."""
    return CorrespondenceN3Net(
        features, depth, k, options=_options(options), block_features=block_features, ratio=ratio, mutual=mutual
    )


def upscaling_n3net(
    *,
    stages: int = 3,
    depth: int = 7,
    features: int = 64,
    block_channels: int = 8,
    k: int = 7,
    patch_size: int = 10,
    stride: int = 5,
    window: int = 15,
    options: Options = "paper",
    norm: bool = True,
    unit: float = 1.0,
) -> nn.Module:
    """N3Net of VDSRs, which are DnCNNs of another depth; see :class:`n3net.models.N3Net` and ``Upscaler``."""
    settings = {**locals(), "options": _options(options)}
    del settings["unit"]
    return Upscaler(N3Net(**settings), unit)


def upscaling_vdsr(*, depth: int = 20, features: int = 64, norm: bool = False, unit: float = 1.0) -> nn.Module:
    """VDSR (Kim et al. 2016): a DnCNN of 20 layers, without batch norm; see ``Upscaler`` for ``unit``."""
    return Upscaler(DnCNN(depth=depth, features=features, norm=norm), unit)


def upscaling_memnet(*, blocks: int = 6, units: int = 6, features: int = 64, unit: float = 1.0) -> nn.Module:
    """MemNet for super-resolution; see :class:`n3net.models.MemNet`, and ``Upscaler`` for ``unit``."""
    return Upscaler(MemNet(blocks, units, features), unit)


def upscaling_mdsr(*, blocks: int = 80, features: int = 64, scale: float = 1.0) -> nn.Module:
    """MDSR for the factors 2, 3 and 4; see :class:`n3net.models.MDSR`."""
    return ColorUpscaler(MDSR(FACTORS, blocks, features, scale=scale))


def upscaling_edsr(*, factor: int = 2, blocks: int = 32, features: int = 256, scale: float = 0.1) -> nn.Module:
    """EDSR for one factor; see :class:`n3net.models.MDSR`."""
    return ColorUpscaler(MDSR((factor,), blocks, features, pre_blocks=0, scale=scale))


MODELS: dict[str, Entry] = {
    "n3net": Entry(denoising_n3net, "N3Net, 3 x DnCNN-6 and two N3 blocks", "Table 1 ours full, Tables 2 and 3"),
    "n3net-light": Entry(
        denoising_n3net, "2 x DnCNN-6 and one N3 block", "Table 1 ours light; supplement", config={"stages": 2}
    ),
    "dncnn-17": Entry(denoising_dncnn, "DnCNN of 17 layers, the baseline", "Table 1 (i), Table 3"),
    "dncnn-18": Entry(denoising_dncnn, "DnCNN as deep as N3Net", "Table 1 (ii)", config={"depth": 18}),
    "dncnn-6": Entry(denoising_dncnn, "one local network of N3Net", "supplement, 1 x DnCNN", config={"depth": 6}),
    "knn-input": Entry(
        denoising_n3net,
        "hard KNN blocks that match noisy patches",
        "Table 1 (iii)",
        config={"rule": "hard", "match_on": "input"},
    ),
    "knn-denoised": Entry(
        denoising_n3net,
        "hard KNN blocks that match patches of a DnCNN-17's output",
        "Table 1 (iv)",
        config={"rule": "hard", "match_on": "denoised"},
    ),
    "concrete": Entry(
        denoising_n3net, "Concrete blocks with an annealing net", "Table 1 (v)", config={"rule": "concrete"}
    ),
    "dncnn-6x2": Entry(
        denoising_n3net, "2 x DnCNN-6 without a block", "supplement, 2 x DnCNN", config={"stages": 2, "k": 0}
    ),
    "knn-light": Entry(
        denoising_n3net,
        "2 x DnCNN-6 and one hard KNN block on noisy patches",
        "supplement, 2 x DnCNN, KNN block",
        config={"stages": 2, "rule": "hard", "match_on": "input"},
    ),
    "ffdnet": Entry(denoising_ffdnet, "FFDNet (Zhang et al. 2018), half resolution and a noise map", "Table 3"),
    "red30": Entry(denoising_red30, "RED30 (Mao et al. 2016), 30 layers of 128 features", "Table 3"),
    "nlnet": Entry(denoising_nlnet, "NLNet (Lefkimmiatis 2017), 5 stages on groups of 8 patches", "Table 3"),
    "unlnet": Entry(denoising_unlnet, "UNLNet (Lefkimmiatis 2018), NLNet that is told the noise level", "Table 3"),
    "nn3d": Entry(denoising_nn3d, "a DnCNN and a non-local filter in turns (Cruz et al. 2018)", "Table 3"),
    "cbdnet": Entry(photo_cbdnet, "CBDNet (Guo et al. 2019), estimates the noise and removes it", "Table 4", "photo"),
    "n3net-sets": Entry(
        correspondence_n3net, "CNNet with an N3 block, for correspondences", "Table 6", "correspondence"
    ),
    "cnnet": Entry(correspondence_cnnet, "CNNet (Yi et al. 2018), the baseline", "Table 6", "correspondence"),
    "raw-n3net": Entry(raw_n3net, "N3Net for raw data, told a and b of its noise", "Table 4", "raw"),
    "raw-dncnn": Entry(raw_dncnn, "DnCNN for raw data, told a and b of its noise", "Table 4", "raw"),
    "n3net-dnd": Entry(
        raw_n3net,
        "the 2018 program's network for raw data, 3 x DnCNN-9 of 128 features",
        "Table 4",
        "raw",
        {"stabilize": False, "depth": 9, "features": 128, "block_channels": 32, "k": 3},
    ),
    "n3net-sr": Entry(
        upscaling_n3net, "N3Net for super-resolution, 3 x VDSR-7 and two N3 blocks", "Table 5", "super-resolution"
    ),
    "vdsr": Entry(upscaling_vdsr, "VDSR of 20 layers, the baseline of super-resolution", "Table 5", "super-resolution"),
    "memnet": Entry(
        upscaling_memnet, "MemNet (Tai et al. 2017), 6 blocks of 6 units, 80 layers", "Table 5", "super-resolution"
    ),
    "memnet-10": Entry(
        upscaling_memnet,
        "MemNet, 10 blocks of 10 units, 212 layers",
        "not in the paper",
        "super-resolution",
        {"blocks": 10, "units": 10},
    ),
    "mdsr": Entry(
        upscaling_mdsr, "MDSR (Lim et al. 2017), colour, x2, x3 and x4 in one", "Table 5", "super-resolution"
    ),
    "mdsr-baseline": Entry(upscaling_mdsr, "MDSR of 16 blocks", "not in the paper", "super-resolution", {"blocks": 16}),
    "edsr": Entry(
        upscaling_edsr, "EDSR (Lim et al. 2017), colour, for one factor", "not in the paper", "super-resolution"
    ),
    "edsr-baseline": Entry(
        upscaling_edsr,
        "EDSR of 16 blocks of 64 features",
        "not in the paper",
        "super-resolution",
        {"blocks": 16, "features": 64, "scale": 1.0},
    ),
}

ALIASES = {"dncnn": "dncnn-17", "n3net-full": "n3net"}


def create(name: str, **overrides: Any) -> nn.Module:
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
    if name not in MODELS:
        raise UserError(f"there is no model {name!r}{nearest(name, MODELS)} ('n3net models' tells more)")
    entry = MODELS[name]
    config = full_config(name, **overrides)
    try:
        model = entry.build(**config)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error
    model.recipe = Recipe(name, config)  # type: ignore[assignment]
    return model


def count_parameters(model: nn.Module) -> int:
    """How many numbers its parameters hold, those of a frozen guide included."""
    return sum(p.numel() for p in model.parameters())


def describe(name: str) -> dict[str, Any]:
    """One line of the registry: name, task, parameters, the paper's row, what it is, and its config."""
    with torch.device("meta"):
        model = create(name)
    entry = MODELS[ALIASES.get(name, name)]
    recipe: Any = model.recipe
    return {
        "name": recipe.name,
        "task": entry.task,
        "parameters": count_parameters(model),
        "paper": entry.paper,
        "summary": entry.summary,
        "config": recipe.config,
    }


def full_config(name: str, **overrides: Any) -> dict[str, Any]:
    """The builder's defaults, the entry's config and the overrides, checked, in JSON types."""
    entry = MODELS[name]
    parameters = inspect.signature(entry.build).parameters
    hints = get_type_hints(entry.build)
    for key in overrides:
        if key not in parameters:
            raise UserError(f"{name} has no option {key!r}{nearest(key, parameters)}")
    config: dict[str, Any] = {}
    for key, parameter in parameters.items():
        value = convert({**entry.config, **overrides}.get(key, parameter.default), hints[key], f"{name}: {key}")
        if isinstance(value, int) and not isinstance(value, bool) and not 0 <= value <= LIMITS.get(key, LIMIT):
            raise UserError(f"{name}: {key}: expected 0 to {LIMITS.get(key, LIMIT)}, got {value}")
        config[key] = asdict(_options(value)) if key == "options" else value
    layers = config.get("stages", 1) * (config.get("depth") or 1)
    if layers > MOST_LAYERS:
        raise UserError(f"{name}: stages times depth: expected at most {MOST_LAYERS}, got {layers}")
    if config.get("channels", 1) not in (1, 3):
        raise UserError(f"{name}: channels: expected 1 (gray) or 3 (colour), got {config['channels']}")
    return config


def _options(options: Options) -> N3Options:
    if isinstance(options, N3Options):
        return options
    if isinstance(options, str):
        if options not in PRESETS:
            raise UserError(f"options: there is no preset {options!r}; the presets are {', '.join(PRESETS)}")
        return PRESETS[options]
    return from_mapping(N3Options, options, "options")
