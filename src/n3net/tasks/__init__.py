"""What networks are trained to do. A new task is one file with a :class:`Task` and one line in ``TASKS``."""

from __future__ import annotations

import importlib
import os
import sys
from abc import ABC, abstractmethod
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from n3net.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from n3net.models import Model
    from n3net.tasks.data import Batch

# Name in a config -> where its class is.
TASKS = {
    "gaussian": "n3net.tasks.gaussian:GaussianDenoising",
    "correspondence": "n3net.tasks.correspondence:Correspondences",
    "super-resolution": "n3net.tasks.superresolution:SuperResolution",
    "color-super-resolution": "n3net.tasks.color_superresolution:ColorSuperResolution",
    "raw": "n3net.tasks.raw:RawDenoising",
    "photo": "n3net.tasks.photo:PhotoDenoising",
}


class Task(ABC):
    """What the training loop asks of a task. Items and scores are pure functions of their arguments.

    Attributes:
        Options: a dataclass, the section ``data`` of a config.
        metric: which of the validation scores decides what is best; larger is better.
        unit: what the items are, for people.
    """

    Options: ClassVar[type]
    metric: str
    unit: ClassVar[str] = "items"

    @abstractmethod
    def __init__(self, options: Any, model: dict[str, Any], seed: int) -> None:
        """From the sections ``data`` and ``model`` of a config."""

    @property
    @abstractmethod
    def items_per_epoch(self) -> int:
        """Items of an epoch."""

    @abstractmethod
    def build_model(self) -> nn.Module:
        """The network, freshly initialised."""

    @abstractmethod
    def item(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        """The training item of this number, counted from 0 over the whole run, with random numbers of its own."""

    def collate(self, items: list[dict[str, Any]]) -> Batch:
        """A batch of items; by default they have equal shapes and are stacked."""
        from n3net.tasks.data import stack

        return stack(items)

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, a mean over the items of a batch, and figures to show beside it."""

    @property
    @abstractmethod
    def validation_count(self) -> int:
        """Items to validate on."""

    @abstractmethod
    def validate(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, float]:
        """Scores of a model in eval mode on a validation item; their means over all items are reported."""

    def show(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, Tensor]:
        """Pictures of a validation item for TensorBoard by name, (C, H, W) in [0, 1]; by default none.

        The random numbers are those of :meth:`validate`.
        """
        return {}

    def card(self) -> dict[str, Any]:
        """What a file of weights says of the data they were trained on."""
        return {}


def build(settings: dict[str, Any], *kinds: type[Model]) -> Any:
    """The network of a config's section ``model``, if it is of a kind that the task can use."""
    from n3net.models import MODELS, create, describe

    model = create(**settings)
    if not isinstance(model, kinds):
        purpose = kinds[0].purpose
        known = ", ".join(name for name in MODELS if describe(name)["task"] == purpose)
        raise UserError(f"model: {settings['name']} is not for {purpose}; {known} are")
    return model


def task_class(name: str) -> type[Task]:
    """The class of a task: a name of ``TASKS`` or of an installed package, or ``module:Class`` or ``file.py:Class``.

    A package offers tasks as entry points of the group ``n3net.tasks``. The module or file of a config is run.
    """
    installed = {point.name: point.value for point in entry_points(group="n3net.tasks")}
    place = TASKS.get(name) or installed.get(name, name)
    source, colon, attribute = place.rpartition(":")
    if not colon:
        known = " or ".join([*TASKS, *installed])
        raise UserError(f"task: expected {known}, or module:Class or file.py:Class of your own, got {name!r}")
    try:
        module = _run_file(Path(source)) if source.endswith(".py") else _import(source, own=place == name)
        found = getattr(module, attribute)
    except (ImportError, AttributeError, OSError) as error:
        raise UserError(f"task: {name}: cannot be imported ({error})") from error
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise UserError(f"task: {name}: expected a subclass of n3net.tasks.Task, got {found!r}")
    return found


def _import(name: str, own: bool) -> ModuleType:
    """A module; one's own may lie in the current folder, whichever way the program was started."""
    if own and not {"", os.getcwd()} & {*sys.path}:
        sys.path.append(os.getcwd())
    return importlib.import_module(name)


def _run_file(path: Path) -> ModuleType:
    """The module of a file, which can be imported by its name from then on, as other processes do."""
    if not path.is_file():
        raise UserError(f"task: {path}: there is no such file")
    sys.path.insert(0, str(path.resolve().parent))
    return importlib.import_module(path.stem)


def training_root(root: str | None) -> Path:
    """The folder that data paths start from: the config's, or ``$N3NET_DATA``, or the current one."""
    return Path(root or os.environ.get("N3NET_DATA") or ".").expanduser()
