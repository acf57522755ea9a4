"""The weights that a run gives, with the record of how they were trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from n3net.tasks import Task
from n3net.training.config import Config, to_mapping
from n3net.training.state import State
from n3net.weights import save


def export(
    path: Path, model: nn.Module, config: Config, task: Task, state: State, before: dict[str, Any] | None
) -> None:
    """Write a file of weights; its record has the scores of the last validation, and ``before`` if there is one."""
    settings = to_mapping(config)
    settings["data"] = {key: value for key, value in settings["data"].items() if key != "root"}
    training = {
        "task": config.task,
        "data": task.card(),
        "steps": state.step,
        "items": state.step * config.batch_size,
        "hours": round(state.elapsed / 3600, 3),
        "validation": {name: round(value, 4) for name, value in state.scores.items()},
        "config": settings,
    }
    if before:
        training["before"] = before
    save(path, model, {"training": training, "licence": config.licence})
