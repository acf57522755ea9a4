"""What a training run is: a small YAML file, ``key=value`` from the command line, and the types that check both."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from n3net.checking import from_mapping, named, nearest, shown
from n3net.errors import UserError
from n3net.io.files import opened

MAX_BYTES, MAX_DEPTH, MAX_NAME = 100_000, 50, 200  # of a file, of its brackets, of a name
# Also of numbers with thousands of digits, dates that are none, and brackets within brackets within brackets.
NOT_YAML = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
LENGTHS = ("epochs", "steps", "budget")  # a run's length is given by one of them; the one that is given last counts


@dataclass(frozen=True)
class OptimizerConfig:
    """How gradients become steps.

    Args:
        name: Adam and SGD add the weight decay to the gradient, AdamW takes it from the weights; ``muon`` is
            :class:`~n3net.training.optimizer.Muon`.
        lr: peak learning rate.
        betas: of Adam.
        momentum: of SGD and Muon.
        weight_decay: on the weights of convolutions and linear layers and the scale of batch norms, nothing else; of
            these, Muon's matrices do not decay.
        clip: largest gradient, or null.
        clip_by: ``norm`` of the whole gradient; or ``value``, each entry to at most ``clip / lr`` as VDSR does.
    """

    name: Literal["adam", "adamw", "sgd", "muon"] = "adam"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = 0.9
    weight_decay: float = 1e-4
    clip: float | None = None
    clip_by: Literal["norm", "value"] = "norm"

    def __post_init__(self) -> None:
        _require(self.lr > 0, "lr", "a positive number", self.lr)
        _require(self.weight_decay >= 0, "weight_decay", "0 or more", self.weight_decay)
        _require(self.clip is None or self.clip > 0, "clip", "a positive number or null", self.clip)


@dataclass(frozen=True)
class ScheduleConfig:
    """The learning rate as a function of the fraction of the run that has passed.

    Args:
        name: ``exponential`` and ``cosine`` fall from the peak to ``final``; ``one-cycle`` climbs during ``warmup``
            from ``lr / 25`` and falls in a cosine; ``steps`` multiplies by ``drop`` every ``every`` of the run.
        final: learning rate at the end.
        warmup: fraction of the run during which the rate climbs, on a line from 0, or as ``one-cycle`` does.
        drop, every: of ``steps``.
    """

    name: Literal["constant", "exponential", "cosine", "one-cycle", "steps"] = "cosine"
    final: float = 1e-6
    warmup: float = 0.0
    drop: float = 0.1
    every: float = 0.25

    def __post_init__(self) -> None:
        _require(self.final >= 0, "final", "0 or more", self.final)
        _require(self.name != "exponential" or self.final > 0, "final", "more than 0, to decay to", self.final)
        _require(0 <= self.warmup < 1, "warmup", "a fraction of the run, 0 <= warmup < 1", self.warmup)
        _require(0 < self.every <= 1, "every", "a fraction of the run, 0 < every <= 1", self.every)


@dataclass(frozen=True)
class Config:
    """A training run.

    Args:
        task: a name of :data:`n3net.tasks.TASKS`, or a class of your own, see :func:`n3net.tasks.task_class`.
        model: ``name`` and options for :func:`n3net.models.create`.
        data: the task's own options, see its ``Options``.
        epochs, steps, budget: length of the run, one of the three; a budget is time of training such as ``3h``.
        batch_size: items of a step, over all processes together.
        seed: of initialisation, crops and noise.
        optimizer, schedule: see there.
        start: from ``random`` weights, with every DnCNN as the ``identity`` on the channels that it skips, or from
            trained weights by name or path.
        ema: decay of the exponential moving average of the weights, which is validated and exported; 0 for none.
        freeze_norms: fraction of the run after which norms no longer use the statistics of each batch but those that
            were gathered, averaged as the weights are: from then on it trains what will be used. 1 for never.
        precision: ``32-true`` or ``bf16-mixed``, or what else Lightning Fabric knows but ``16-mixed``.
        accelerator, devices, nodes: of Lightning Fabric.
        timeout: how long a process waits for the others before it gives up, when a host or a link is lost.
        channels_last: memory layout of images.
        winograd: on CPUs, wide 3 x 3 convolutions by :mod:`n3net.kernel.convolution`, best with ``channels_last``.
        workers: threads that prepare batches.
        log_every: steps between two lines of the log.
        validate_every, save_every: ``10m``, or a number of steps; validation 0 for never before the end.
        explode: stop when the loss is this many times its running mean.
        licence: of the weights, written into their file.
    """

    task: str
    model: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)
    epochs: float | None = None
    steps: int | None = None
    budget: str | None = None
    batch_size: int = 32
    seed: int = 0
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    start: str = "random"
    ema: float = 0.999
    freeze_norms: float = 1.0
    precision: str = "32-true"
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1
    timeout: str = "10m"
    channels_last: bool = False
    winograd: bool = False
    workers: int = 1
    log_every: int = 10
    validate_every: int | str = "15m"
    save_every: int | str = "5m"
    explode: float = 100.0
    licence: str = "not stated"

    def __post_init__(self) -> None:
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"length of the run: give one of {', '.join(LENGTHS)}, got {given or 'none'}")
        for name in ("batch_size", "workers", "log_every", "devices", "nodes"):
            _require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("epochs", "steps"):
            value = getattr(self, name)
            _require(value is None or 0 < value <= 1e12, name, "more than 0 and at most 1e12", value)
        _require(self.explode > 1, "explode", "more than 1", self.explode)
        _require(0 <= self.ema < 1, "ema", "a decay of at least 0 and less than 1", self.ema)
        _require(0 <= self.freeze_norms <= 1, "freeze_norms", "a fraction of the run, 0 to 1", self.freeze_norms)
        _require(0 <= self.seed < 2**63, "seed", "0 to 2^63 - 1", self.seed)
        _require("name" in self.model, "model", "a name and options, such as {name: n3net, k: 7}", self.model)
        half = self.precision in ("16", "16-mixed")
        _require(not half, "precision", "bf16-mixed, as 16-mixed scales the gradients it clips", self.precision)
        for name in ("budget", "validate_every", "save_every", "timeout"):
            value = getattr(self, name)
            if isinstance(value, str):
                try:
                    value = seconds(value)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
            least = 0 if name == "validate_every" else 1e-9
            _require(value is None or value >= least, name, "more than 0", value)


def load(source: str, overrides: list[str] | tuple[str, ...] = ()) -> Config:
    """A config by name or path, with ``key=value`` laid over it."""
    content = read(source)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise UserError(f"{shown(override)}: expected key=value, such as optimizer.lr=1e-3")
        try:
            value: Any = _parse(text) if text else None
        except NOT_YAML:
            wanted = "expected a value in YAML, such as 3, name or [a, b]"
            raise UserError(f"{named(key)}: {wanted}, got {shown(text)}") from None
        for part in reversed(key.strip().split(".")):
            value = {part: value}
        content = merge(content, value)
    return from_mapping(Config, content)


def read(source: str) -> dict[str, Any]:
    """The mapping of a config file and of the files it is based on."""
    return _read(_locate(source, None), ())


def names() -> list[str]:
    """The configs that come with the package; files that begin with ``_`` are only there to be based on."""
    return sorted(path.stem for path in _packaged().glob("[!_]*.yaml"))


def merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Two nested mappings, the second laid over the first; of epochs, steps and budget the last one stays.

    Single options of a block change those of the preset that is named below them.
    """
    from n3net.nn import PRESETS

    out = dict(under)
    if any(over.get(name) is not None for name in LENGTHS):
        out.update({name: None for name in LENGTHS if name in out})
    for key, value in over.items():
        old = out.get(key)
        if key == "options" and isinstance(old, str) and old in PRESETS:
            old = dataclasses.asdict(PRESETS[old])
        out[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def to_mapping(config: Any) -> dict[str, Any]:
    """A dataclass as nested mappings of plain values, without the keys that are null."""
    return {k: v for k, v in dataclasses.asdict(config).items() if v is not None}


def dump(config: Config) -> str:
    """A config as YAML."""
    text: str = _yaml().safe_dump(_plain(to_mapping(config)), sort_keys=False, default_flow_style=None)
    return text


def seconds(text: str) -> float:
    """Seconds of a time such as ``90s``, ``15m``, ``3h``, ``1h30m`` or ``2d``.

    >>> seconds("1h30m")
    5400.0
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smhd])", text)
    if not parts or re.sub(r"(\d+(?:\.\d+)?)\s*([smhd])", "", text).strip():
        raise ValueError(f"expected a time such as 90s, 15m, 3h or 1h30m, got {text!r}")
    return float(sum(float(number) * units[unit] for number, unit in parts))


def _require(condition: bool, name: str, expected: str, value: object) -> None:
    if not condition:
        raise ValueError(f"{name}: expected {expected}, got {shown(value)}")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _packaged() -> Path:
    return Path(str(resources.files("n3net"))) / "configs"


def _locate(source: str, beside: Path | None) -> Path:
    if len(source) > MAX_NAME:
        raise UserError(f"{shown(source)}: too long for the name of a config")
    path = Path(source)
    if beside is not None and not path.is_absolute():
        path = beside / path
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise UserError(f"{source}: there is no such file")
        return path
    packaged = _packaged() / f"{source}.yaml"
    if packaged.is_file():
        return packaged
    raise UserError(f"{source}: neither a .yaml file nor a config of n3net{nearest(source, names())}")


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path in seen:
        raise UserError(f"{path}: is based on itself")
    try:
        with opened(path) as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise UserError(f"{path}: more than {MAX_BYTES} bytes, too many for a config")
        content = _parse(text.decode()) or {}
    except NOT_YAML as error:
        raise UserError(f"{path}: not valid YAML: {error or type(error).__name__}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected keys and values, got {shown(content)}")
    base = content.pop("base", None)
    return content if base is None else merge(_read(_locate(str(base), path.parent), (*seen, path)), content)


def _parse(text: str) -> Any:
    """A document of plain values. Those that are repeated by name (& and *) could be without end, and are refused."""
    yaml, depth = _yaml(), 0
    for character in text:  # before YAML's parser, which takes quadratic time for them
        depth += (character in "[{") - (character in "]}")
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} brackets within brackets")
    try:
        if any(isinstance(event, yaml.events.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError("values that refer to others (*name) are not supported, write them out")
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _yaml() -> Any:
    from n3net.training import require

    return require("yaml")
