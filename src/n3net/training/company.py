"""The processes of a run: how they start, who they are, and whether all of them have the same files before them."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from n3net.errors import UserError
from n3net.training import checkpoint, require
from n3net.training.config import Config, seconds

PATIENCE = 30.0  # seconds that a shared directory may take to show a file of another host


def fabric_of(config: Config) -> Any:
    """The devices and processes that a config asks for, or those that torchrun has started."""
    devices, nodes = config.devices, config.nodes
    if "LOCAL_WORLD_SIZE" in os.environ:  # started by torchrun
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    strategy: Any = "auto"
    try:
        if devices * nodes > 1:
            wait = timedelta(seconds=seconds(config.timeout))
            strategy = require("lightning_fabric.strategies").DDPStrategy(timeout=wait)
        return require("lightning_fabric").Fabric(
            accelerator=config.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            precision=config.precision,
        )
    except (ValueError, RuntimeError) as error:
        raise UserError(f"accelerator, devices, nodes or precision: {error}") from error


def gathered(value: Any, world: int) -> list[Any]:
    """What each process has, in the order of their ranks."""
    if world == 1:
        return [value]
    values: list[Any] = [None] * world
    dist.all_gather_object(values, value)
    return values


def taking_part(fabric: Any, batch_size: int, unit: str) -> str:
    """How many processes, on which hosts and devices, in a line."""
    kind = str(fabric.device)
    name = f" ({torch.cuda.get_device_name(fabric.device)})" if kind.startswith("cuda") else ""
    hosts = gathered((platform.node() or "this machine", kind + name), fabric.world_size)
    count = Counter(host for host, _ in hosts)
    devices = {host: ", ".join(sorted({d for h, d in hosts if h == host})) for host in count}
    where = "; ".join(f"{host}: {number} on {devices[host]}" for host, number in count.items())
    share = batch_size / fabric.world_size
    each = f", {share:g} of the {batch_size} {unit} of a step each" if fabric.world_size > 1 else ""
    return f"{fabric.world_size} process{'es' if fabric.world_size > 1 else ''} ({where}){each}"


def same_checkpoint(
    directory: Path, rank: int, world: int, patience: float = PATIENCE
) -> tuple[dict[str, Any] | None, list[Path]]:
    """The newest whole checkpoint, the same for all processes; as :func:`n3net.training.checkpoint.latest`.

    The first process says which one it is. Another one that does not see it yet looks again for some time, and is told
    if that does not help: its host has an old copy of the directory, or another directory.
    """
    content, broken = checkpoint.latest(directory)
    wanted = gathered(_identity(content), world)[0]
    until = time.monotonic() + patience
    while rank > 0 and _identity(content) != wanted and time.monotonic() < until:
        time.sleep(0.2)
        content, broken = checkpoint.latest(directory)
    seen = gathered((platform.node(), _identity(content)), world)
    for other, (host, found) in enumerate(seen):
        if found != wanted:
            raise UserError(
                f"{directory}: process {other} on {host} finds {_said(found)}, process 0 on {seen[0][0]} "
                f"{_said(wanted)}; --runs has to be one directory that all hosts share"
            )
    return content, broken


def _identity(content: dict[str, Any] | None) -> tuple[int, float] | None:
    """Step and clock: no two checkpoints have both the same."""
    return None if content is None else (content["state"]["step"], content["state"]["elapsed"])


def _said(identity: tuple[int, float] | None) -> str:
    return "no checkpoint" if identity is None else f"that of step {identity[0]} after {identity[1]:.1f} s"
