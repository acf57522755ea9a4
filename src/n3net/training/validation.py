"""Scores of a network on the images that it does not learn from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from n3net.tasks import Task
from n3net.tasks.data import VALIDATION, generator
from n3net.training.company import gathered


@torch.no_grad()
def validate(task: Task, model: nn.Module, seed: int, rank: int = 0, world: int = 1) -> dict[str, float]:
    """Mean scores over all images of validation; each process does its share of them."""
    sums: dict[str, float] = {}
    count = task.validation_count
    model.eval()
    for index in range(rank, count, world):
        for name, value in task.validate(model, index, generator(seed, VALIDATION, 0, index)).items():
            sums[name] = sums.get(name, 0.0) + value / count
    parts = gathered(sums, world)
    return {name: sum(part.get(name, 0.0) for part in parts) for part in parts for name in part}


@torch.no_grad()
def pictures(task: Task, model: nn.Module, seed: int) -> dict[str, Tensor]:
    """What the first of them shows, for people to look at, see :meth:`n3net.tasks.Task.show`."""
    return task.show(model, 0, generator(seed, VALIDATION, 0, 0)) if task.validation_count else {}
