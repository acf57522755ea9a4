"""How models are built from classes: keyword arguments, with types and defaults, in, a model out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from torch import nn

from n3net.checking import from_mapping
from n3net.errors import UserError
from n3net.models.cbdnet import CBDNet
from n3net.models.denoiser import Denoiser
from n3net.models.dncnn import DnCNN
from n3net.models.edsr import FACTORS, MDSR
from n3net.models.interface import Model
from n3net.models.nn3d import NN3D
from n3net.models.upscaler import ColorUpscaler
from n3net.nn import PRESETS, N3Options

ENDS = ("in_channels", "out_channels")

Options = str | dict[str, Any] | N3Options


def within(head: type[Model], net: type[nn.Module]) -> Callable[..., Model]:
    """A builder of a network within a model: its keyword arguments are those of both, but for what goes in and out."""
    own = {name: p for name, p in _parameters(head).items() if name != "net"}
    inner = {name: p for name, p in _parameters(net).items() if name not in (*ENDS, "backend")}

    def build(**settings: Any) -> Model:
        mine = {name: settings.get(name, p.default) for name, p in own.items()}
        its = {name: settings.get(name, p.default) for name, p in inner.items()}
        if "options" in its:
            its["options"] = read_options(its["options"])
        ends = dict(zip(ENDS, head.ends(**mine), strict=True)) if ENDS[0] in _parameters(net) else {}
        return head(net(**ends, **its), **mine)  # type: ignore[call-arg]

    build.__signature__ = inspect.Signature([*own.values(), *inner.values()])  # type: ignore[attr-defined]
    return build


def alone(model: type[Model]) -> Callable[..., Model]:
    """A builder of a model that is a network by itself."""
    parameters = _parameters(model)

    def build(**settings: Any) -> Model:
        if "options" in settings:
            settings["options"] = read_options(settings["options"])
        return model(**settings)

    build.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return build


def denoising(net: type[nn.Module], noise_map: bool = False) -> Callable[..., Model]:
    """A builder of a denoiser whose network has ``channels`` itself; its keyword arguments are the network's."""
    parameters = _parameters(net)

    def build(**settings: Any) -> Model:
        return Denoiser(net(**settings), settings["channels"], noise_map)

    build.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return build


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
) -> Model:
    """NN3D on a DnCNN that is told the noise level; see :class:`n3net.models.NN3D`."""
    base = Denoiser(DnCNN(channels + 1, channels, depth, features, first_norm=first_norm, norm=norm), channels, True)
    net = NN3D([base], rounds, group=group, patch_size=patch_size, stride=stride, window=window)
    return Denoiser(net, channels, True)


def photo_cbdnet(*, features: int = 64) -> Model:
    """CBDNet, which finds out the noise level of colour photographs itself; see :class:`n3net.models.CBDNet`."""
    return Denoiser(CBDNet(features), 3)


def upscaling_mdsr(*, blocks: int = 80, features: int = 64, scale: float = 1.0) -> Model:
    """MDSR for the factors 2, 3 and 4; see :class:`n3net.models.MDSR`."""
    return ColorUpscaler(MDSR(FACTORS, blocks, features, scale=scale))


def upscaling_edsr(*, factor: int = 2, blocks: int = 32, features: int = 256, scale: float = 0.1) -> Model:
    """EDSR for one factor; see :class:`n3net.models.MDSR`."""
    return ColorUpscaler(MDSR((factor,), blocks, features, pre_blocks=0, scale=scale))


def read_options(options: Options) -> N3Options:
    """Options of blocks: as they are, of a preset by name, or from their values."""
    if isinstance(options, N3Options):
        return options
    if isinstance(options, str):
        if options not in PRESETS:
            raise UserError(f"options: there is no preset {options!r}; the presets are {', '.join(PRESETS)}")
        return PRESETS[options]
    return from_mapping(N3Options, options, "options")


def _parameters(kind: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """Those of a class, with their types, as keywords."""
    hints = {**get_type_hints(kind.__init__), "options": Options}
    found = list(inspect.signature(kind).parameters.values())
    return {p.name: p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]) for p in found}
