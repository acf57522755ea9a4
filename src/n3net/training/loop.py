"""The training loop: batches in, weights out, and no step lost when it is stopped."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from n3net.checking import from_mapping
from n3net.errors import UserError
from n3net.io.files import writing
from n3net.nn.convolutions import accelerate
from n3net.tasks import Task, task_class
from n3net.tasks.data import TRAINING, VALIDATION, Batch, Prefetcher, generator
from n3net.training import checkpoint, require
from n3net.training.company import same_checkpoint, taking_part
from n3net.training.config import Config, dump, seconds, to_mapping
from n3net.training.guards import first_not_finite, on_signals, only_one
from n3net.training.optimizer import Average, build_optimizer
from n3net.training.progress import Reporter, duration
from n3net.training.schedule import learning_rate
from n3net.training.start import start_from
from n3net.training.sync import synchronize

NETWORK = 3  # stream of the random numbers that are drawn inside a network
SMOOTHING = 0.98  # of the figures that are shown
SETTLED = 20  # steps after which a loss can be called exploded
FIXED = ("task", "model", "data", "seed", "batch_size", "start", "optimizer.name")  # cannot change within a run
FREE = ("data.root", "data.validation")  # but these may, and all that begin with them


@dataclass
class State:
    """What a checkpoint holds beside the tensors."""

    step: int = 0  # steps done
    elapsed: float = 0.0  # seconds of training, over all attempts; neither validation nor saving counts
    best: float = -math.inf
    means: dict[str, float] = field(default_factory=dict)  # smoothed loss and figures
    validated: int = -1  # the last step that was validated
    scores: dict[str, float] = field(default_factory=dict)  # of that step


@dataclass(frozen=True)
class Outcome:
    """How a call of :func:`train` ended: ``signal`` is None when the run is complete."""

    step: int
    scores: dict[str, float]
    signal: int | None = None


def train(config: Config, run: Path) -> Outcome:
    """Train, or continue to train, in the folder ``run``.

    The folder receives ``config.yaml``, ``checkpoints/``, ``log.jsonl``, ``tensorboard/``, ``best.safetensors``, the
    weights that validate best so far, and ``weights.safetensors`` at the end. Called again, it goes on from the last
    checkpoint.
    """
    run.mkdir(parents=True, exist_ok=True)
    with only_one(run):
        fabric = fabric_of(config)
        fabric.launch()
        kind = task_class(config.task)
        task = kind(from_mapping(kind.Options, config.data, "data"), config.model, config.seed)
        if config.batch_size < fabric.world_size:
            raise UserError(f"batch_size: {config.batch_size} items are too few for {fabric.world_size} processes")
        return Trainer(config, run, fabric, task).run_to_end()


class Trainer:
    def __init__(self, config: Config, run: Path, fabric: Any, task: Task) -> None:
        self.config, self.run, self.fabric, self.task = config, run, fabric, task
        self.rank, self.world = fabric.global_rank, fabric.world_size
        torch.manual_seed(config.seed)
        self.net = task.build_model()
        self.before = start_from(config.start, self.net)
        if config.channels_last:
            self.net = self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = Average(self.net, config.ema)
        if config.winograd:
            accelerate(self.net, norms=self.world == 1)  # those of several processes share their statistics
        if self.world > 1:
            synchronize(self.net)
        self.model, self.optimizer = fabric.setup(self.net, build_optimizer(self.net, config.optimizer))
        self.average.model.to(fabric.device)
        self.budget = None if config.budget is None else seconds(config.budget)
        self.total = _total_steps(config, task)
        self.state = State()
        notes = self._resume()
        self.reporter = Reporter(run, self.state.step, fabric.is_global_zero)
        for note in [taking_part(fabric, config.batch_size, task.unit), *notes]:
            self.reporter.say(note)
        self.session_step, self.session_seconds, self.stopped_by = self.state.step, 0.0, 0
        self.seconds_before = self.state.elapsed
        self.marks = {"save": time.monotonic(), "validate": time.monotonic()}

    # The run as a whole

    def run_to_end(self) -> Outcome:
        config, weights = self.config, self.run / "weights.safetensors"
        if self._complete() and weights.is_file():
            self.reporter.say(
                f"this run is complete after {self.state.step} steps: {weights}; "
                "to train on, make it longer (steps=, epochs= or --budget)"
            )
            self.reporter.close()
            return Outcome(self.state.step, self.state.scores)
        if self.fabric.is_global_zero:
            with writing(self.run / "config.yaml", force=True) as file:
                file.write(dump(config).encode())
        batches = Prefetcher(self._batch, self.state.step, config.workers)
        state = self.state
        try:
            with on_signals(self._on_signal):
                iterator = iter(batches)
                while True:
                    fraction, save, validate, stop = self._agree()
                    finished = fraction >= 1 and not stop
                    if (validate or finished) and state.validated != state.step:
                        self._validate()
                    if save or finished or stop:
                        self._save()
                    if stop:
                        self.reporter.say(f"stopped at step {self.state.step}; the same command goes on from there")
                        return Outcome(state.step, state.scores, stop)
                    if finished:
                        break
                    start = time.perf_counter()
                    self._step(next(iterator), fraction)
                    self.session_seconds += time.perf_counter() - start
                    self._report(fraction, batches.waited)
        finally:
            batches.close()
            self.reporter.close()
        if self.fabric.is_global_zero:
            self._export(weights, state.scores)
            self.reporter.say(f"done after {state.step} steps: {weights}")
        return Outcome(state.step, state.scores)

    def _complete(self) -> bool:
        """Whether an earlier attempt came to the end; all processes read the same checkpoint."""
        return self._fraction() >= 1 and self.state.validated == self.state.step

    def _on_signal(self, number: int) -> None:
        self.stopped_by = number

    def _elapsed(self) -> float:
        return self.seconds_before + self.session_seconds

    def _fraction(self) -> float:
        if self.budget is not None:
            return self._elapsed() / self.budget
        assert self.total is not None
        return self.state.step / self.total

    def _agree(self) -> tuple[float, bool, bool, int]:
        """What all processes do next: fraction of the run that has passed, save?, validate?, stopped by a signal?"""
        first = self.rank == 0
        wishes = [
            min(self._fraction(), 1.0) if first else 0.0,
            float(first and self._due("save", self.config.save_every)),
            float(first and self._due("validate", self.config.validate_every)),
            float(self.stopped_by),
        ]
        if self.world > 1:
            wishes = self.fabric.all_reduce(torch.tensor(wishes, dtype=torch.float64), reduce_op="max").tolist()
        return wishes[0], bool(wishes[1]), bool(wishes[2]), int(wishes[3])

    def _due(self, what: str, every: int | str) -> bool:
        if self.state.step == self.session_step or every == 0:
            return False
        if isinstance(every, int):
            return self.state.step % every == 0
        if time.monotonic() - self.marks[what] < seconds(every):
            return False
        self.marks[what] = time.monotonic()
        return True

    # One step

    @property
    def _share(self) -> range:
        """This process's items of a batch."""
        size = self.config.batch_size
        return range(self.rank * size // self.world, (self.rank + 1) * size // self.world)

    def _batch(self, step: int) -> Batch:
        """This process's share of the batch of a step."""
        size, share = self.config.batch_size, self._share
        items = [self.task.item(step * size + i, generator(self.config.seed, TRAINING, step, i)) for i in share]
        batch = self.task.collate(items)
        if not self.config.channels_last:
            return batch
        return {k: v.contiguous(memory_format=torch.channels_last) if v.dim() == 4 else v for k, v in batch.items()}

    def _step(self, batch: Batch, fraction: float) -> None:
        config, state = self.config, self.state
        rate = learning_rate(config.schedule, config.optimizer.lr, fraction)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        torch.manual_seed(int(generator(config.seed, NETWORK, state.step, self.rank).integers(2**62)))
        batch = {key: value.to(self.fabric.device, non_blocking=True) for key, value in batch.items()}
        self.model.train()
        if fraction >= config.freeze_norms:
            self.average.freeze_norms(self.net)
        loss, figures = self.task.loss(self.model, batch)
        part = len(self._share) * self.world / config.batch_size  # not all shares are equal
        self.fabric.backward(loss * part)
        norm = self._clip(rate)
        loss_value = float(self._mean(loss.detach() * part))
        problem = self._problem(loss_value, norm)
        if problem:
            raise UserError(self._diverged(problem, batch))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        state.step += 1
        self.average.update(self.net, state.step)
        values = {"loss": loss_value, **{name: float(self._mean(value * part)) for name, value in figures.items()}}
        for name, value in values.items():
            state.means[name] = SMOOTHING * state.means.get(name, value) + (1 - SMOOTHING) * value
        if state.step % config.log_every == 0:
            self.reporter.record(state.step, "train", {**values, "lr": rate, "gradient": norm})

    def _clip(self, rate: float) -> float:
        """Limit the gradient; its norm before that."""
        parameters = [p for p in self.net.parameters() if p.grad is not None]
        limit = self.config.optimizer.clip
        by_norm = limit is not None and self.config.optimizer.clip_by == "norm"
        norm = nn.utils.clip_grad_norm_(parameters, limit if limit is not None and by_norm else math.inf)
        if limit is not None and not by_norm:
            nn.utils.clip_grad_value_(parameters, limit / rate if rate else math.inf)
        return float(norm)

    def _mean(self, value: Tensor) -> Tensor:
        return self.fabric.all_reduce(value, reduce_op="mean") if self.world > 1 else value

    def _problem(self, loss: float, norm: float) -> str | None:
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        if not math.isfinite(norm):
            return f"the gradient's norm is {norm}"
        mean = self.state.means.get("loss", loss)
        if self.state.step >= SETTLED and loss > self.config.explode * mean:
            return f"the loss is {loss:.4g}, {loss / mean:.0f} times its running mean"
        return None

    def _diverged(self, problem: str, batch: Batch) -> str:
        where = first_not_finite(self.net, self.task, batch)
        kept, _ = checkpoint.latest(self.run / "checkpoints")
        last = f"the checkpoint of step {kept['state']['step']} is kept" if kept else "there is no checkpoint yet"
        return (
            f"stopped at step {self.state.step}: {problem}{where}; {last} in {self.run}. "
            "Try a lower optimizer.lr or optimizer.clip, or a longer schedule.warmup"
        )

    # Telling, testing, keeping

    def _report(self, fraction: float, waited: float) -> None:
        state = self.state
        done = state.step - self.session_step
        speed = done * self.config.batch_size / self.session_seconds
        waiting = waited / self.session_seconds
        if self.budget is not None:
            left = self.budget - self._elapsed()
        else:
            assert self.total is not None
            left = (self.total - state.step) * self.session_seconds / done
        figures = {name: f"{value:.4g}" for name, value in state.means.items()}
        figures |= {
            f"{self.task.unit}/s": f"{speed:.1f}" + (f" ({speed / self.world:.1f} each)" if self.world > 1 else ""),
            "waiting": f"{waiting:.1%}",
            "left": duration(max(left, 0.0)),
        }
        self.reporter.show(state.step, fraction, figures)
        if state.step % self.config.log_every == 0:
            self.reporter.record(state.step, "speed", {"items_per_second": speed, "waiting": waiting})

    @torch.no_grad()
    def _validate(self) -> None:
        """Mean scores of the averaged weights; the best so far are exported."""
        start = time.monotonic()
        sums: dict[str, float] = {}
        count = self.task.validation_count
        self.average.model.eval()
        for index in range(self.rank, count, self.world):
            rng = generator(self.config.seed, VALIDATION, 0, index)
            for name, value in self.task.validate(self.average.model, index, rng).items():
                sums[name] = sums.get(name, 0.0) + value / count
        if self.world > 1:
            parts: list[dict[str, float]] = [{} for _ in range(self.world)]
            torch.distributed.all_gather_object(parts, sums)
            sums = {name: sum(part.get(name, 0.0) for part in parts) for part in parts for name in part}
        self.reporter.record(self.state.step, "validation", sums)
        if self.reporter.shows_pictures and count:
            rng = generator(self.config.seed, VALIDATION, 0, 0)
            self.reporter.picture(self.state.step, self.task.show(self.average.model, 0, rng))
        text = "  ".join(f"{name} {value:.3f}" for name, value in sums.items())
        took = duration(time.monotonic() - start)
        self.reporter.say(f"step {self.state.step}  validation  {text}  ({took})")
        self.state.validated, self.state.scores = self.state.step, sums
        score = sums.get(self.task.metric, -math.inf)
        if score > self.state.best:
            self.state.best = score
            if self.fabric.is_global_zero:
                self._export(self.run / "best.safetensors", sums)

    def _save(self) -> None:
        self.state.elapsed = self._elapsed()
        if self.fabric.is_global_zero:
            content = {
                "state": dict(vars(self.state)),
                "config": to_mapping(self.config),
                "model": self.net.state_dict(),
                "average": self.average.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "before": self.before,
            }
            checkpoint.save(self.run / "checkpoints", self.state.step, content)
        self.fabric.barrier()

    def _resume(self) -> list[str]:
        """Continue from the last whole checkpoint, if there is one; what there is to say about it."""
        content, broken = same_checkpoint(self.run / "checkpoints", self.rank, self.world)
        notes = [f"{path}: truncated or damaged, the checkpoint before it is used" for path in broken]
        if content is None:
            return [*notes, "no whole checkpoint is left, starting from the beginning"] if broken else notes
        before, now = _settings(content["config"]), _settings(to_mapping(self.config))
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) == now.get(key):
                continue
            if (key in FIXED or key.partition(".")[0] in FIXED) and not key.startswith(FREE):
                raise UserError(
                    f"{self.run}: this run has {key} {before.get(key)!r}, which cannot become {now.get(key)!r}; "
                    "choose another folder with --runs"
                )
            notes.append(f"changed: {key} from {before.get(key)!r} to {now.get(key)!r}")
        self.net.load_state_dict(content["model"])
        self.average.model.load_state_dict(content["average"])
        settings = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(content["optimizer"])
        for group, setting in zip(self.optimizer.param_groups, settings, strict=True):
            group.update(setting)  # this config's, not those of the checkpoint
        self.state = State(**content["state"])
        self.before = content.get("before", self.before)
        notes.append(f"continuing {self.run} from step {self.state.step}, {duration(self.state.elapsed)} into it")
        return notes

    def _export(self, path: Path, scores: dict[str, float]) -> None:
        from n3net.weights import save

        config = to_mapping(self.config)
        config["data"] = {key: value for key, value in config["data"].items() if key != "root"}
        training = {
            "task": self.config.task,
            "data": self.task.card(),
            "steps": self.state.step,
            "items": self.state.step * self.config.batch_size,
            "hours": round(self._elapsed() / 3600, 3),
            "validation": {name: round(value, 4) for name, value in scores.items()},
            "config": config,
        }
        if self.before:
            training["before"] = self.before
        save(path, self.average.model, {"training": training, "licence": self.config.licence})


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """A config with its sections' keys in one mapping, such as ``optimizer.lr``."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= {f"{key}.{name}": v for name, v in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def fabric_of(config: Config) -> Any:
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


def _total_steps(config: Config, task: Task) -> int | None:
    if config.steps is not None:
        return config.steps
    if config.epochs is not None:
        return math.ceil(config.epochs * task.items_per_epoch / config.batch_size)
    return None
