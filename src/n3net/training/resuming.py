"""What is kept of a run, and how it goes on from there: bit by bit as if it had never been stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from n3net.errors import UserError
from n3net.training import checkpoint
from n3net.training.company import same_checkpoint
from n3net.training.config import Config, to_mapping
from n3net.training.optimizer import Average
from n3net.training.progress import duration
from n3net.training.state import State

FIXED = ("task", "model", "data", "seed", "batch_size", "start", "optimizer.name")  # cannot change within a run
FREE = ("data.root", "data.validation")  # but these may, and all that begin with them


class Keeper:
    """Saves what changes while a run goes on, and brings it back.

    Args:
        run: folder of the run.
        config: its settings.
        fabric: its processes; the first of them writes.
        before: training record of the weights that the run started from, if it did from some.
    """

    def __init__(
        self,
        run: Path,
        config: Config,
        fabric: Any,
        net: nn.Module,
        average: Average,
        optimizer: torch.optim.Optimizer,
        before: dict[str, Any] | None,
    ) -> None:
        self.run, self.config, self.fabric = run, config, fabric
        self.net, self.average, self.optimizer, self.before = net, average, optimizer, before
        self.folder = run / "checkpoints"

    def save(self, state: State) -> None:
        if self.fabric.is_global_zero:
            content = {
                "state": dict(vars(state)),
                "config": to_mapping(self.config),
                "model": self.net.state_dict(),
                "average": self.average.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "before": self.before,
            }
            checkpoint.save(self.folder, state.step, content)
        self.fabric.barrier()

    def resume(self) -> tuple[State, list[str]]:
        """Continue from the last whole checkpoint, if there is one; the state, and what there is to say about it."""
        content, broken = same_checkpoint(self.folder, self.fabric.global_rank, self.fabric.world_size)
        notes = [f"{path}: truncated or damaged, the checkpoint before it is used" for path in broken]
        if content is None:
            return State(), [*notes, "no whole checkpoint is left, starting from the beginning"] if broken else notes
        notes += self._changes(_settings(content["config"]), _settings(to_mapping(self.config)))
        self.net.load_state_dict(content["model"])
        self.average.model.load_state_dict(content["average"])
        settings = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(content["optimizer"])
        for group, setting in zip(self.optimizer.param_groups, settings, strict=True):
            group.update(setting)  # this config's, not those of the checkpoint
        self.before = content.get("before", self.before)
        state = State(**content["state"])
        return state, [*notes, f"continuing {self.run} from step {state.step}, {duration(state.elapsed)} into it"]

    def said(self) -> str:
        """Which checkpoint a run that fails leaves behind."""
        kept, _ = checkpoint.latest(self.folder)
        return f"the checkpoint of step {kept['state']['step']} is kept" if kept else "there is no checkpoint yet"

    def _changes(self, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
        """What has changed in the config, in words; a UserError if it must not."""
        notes = []
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) == now.get(key):
                continue
            if (key in FIXED or key.partition(".")[0] in FIXED) and not key.startswith(FREE):
                raise UserError(
                    f"{self.run}: this run has {key} {before.get(key)!r}, which cannot become {now.get(key)!r}; "
                    "choose another folder with --runs"
                )
            notes.append(f"changed: {key} from {before.get(key)!r} to {now.get(key)!r}")
        return notes


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """A config with its sections' keys in one mapping, such as ``optimizer.lr``."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= {f"{key}.{name}": v for name, v in value.items()} if isinstance(value, dict) else {key: value}
    return flat
