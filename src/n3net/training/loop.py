"""The training loop: batches in, weights out, and no step lost when it is stopped."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from n3net.checking import from_mapping
from n3net.errors import UserError
from n3net.io.files import writing
from n3net.nn.convolutions import accelerate
from n3net.tasks import Task, task_class
from n3net.tasks.data import TRAINING, Batch, Prefetcher, generator
from n3net.training.company import fabric_of, taking_part
from n3net.training.config import Config, dump, seconds
from n3net.training.export import export
from n3net.training.guards import first_not_finite, on_signals, only_one
from n3net.training.optimizer import Average, build_optimizer
from n3net.training.progress import Reporter
from n3net.training.resuming import Keeper
from n3net.training.schedule import learning_rate
from n3net.training.start import start_from
from n3net.training.state import Length, Pace
from n3net.training.sync import synchronize
from n3net.training.validation import pictures, validate

NETWORK = 3  # stream of the random numbers that are drawn inside a network
SMOOTHING = 0.98  # of the figures that are shown
SETTLED = 20  # steps after which a loss can be called exploded


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
    """Takes the steps of a run, and says when it is saved (:class:`Keeper`), validated, exported and reported."""

    def __init__(self, config: Config, run: Path, fabric: Any, task: Task) -> None:
        self.config, self.run, self.fabric, self.task = config, run, fabric, task
        self.rank, self.world = fabric.global_rank, fabric.world_size
        torch.manual_seed(config.seed)
        self.net = task.build_model()
        before = start_from(config.start, self.net)
        if config.channels_last and not config.winograd:  # the kernel takes weights as they are
            self.net = self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = Average(self.net, config.ema)
        if config.winograd:
            accelerate(self.net, norms=self.world == 1)  # those of several processes share their statistics
        if self.world > 1:
            synchronize(self.net)
        self.model, self.optimizer = fabric.setup(self.net, build_optimizer(self.net, config.optimizer))
        self.average.model.to(fabric.device)
        self.keeper = Keeper(run, config, fabric, self.net, self.average, self.optimizer, before)
        self.state, notes = self.keeper.resume()
        self.reporter = Reporter(run, config, task.unit, self.state.step, self.rank, self.world)
        for note in [taking_part(fabric, config.batch_size, task.unit), *notes]:
            self.reporter.say(note)
        self.length, self.pace, self.stopped_by = Length(config, task), Pace(), 0
        self.marks = {"save": time.monotonic(), "validate": time.monotonic()}

    # The run as a whole

    def run_to_end(self) -> Outcome:
        state, weights = self.state, self.run / "weights.safetensors"
        if self._complete() and weights.is_file():
            self.reporter.say(
                f"this run is complete after {state.step} steps: {weights}; "
                "to train on, make it longer (steps=, epochs= or --budget)"
            )
            self.reporter.close()
            return Outcome(state.step, state.scores)
        if self.fabric.is_global_zero:
            with writing(self.run / "config.yaml", force=True) as file:
                file.write(dump(self.config).encode())
        batches = Prefetcher(self._batch, state.step, self.config.workers)
        try:
            with on_signals(self._on_signal):
                iterator = iter(batches)
                while True:
                    fraction, save, check, stop = self._agree()
                    finished = fraction >= 1 and not stop
                    if (check or finished) and state.validated != state.step:
                        self._validate()
                    if save or finished or stop:
                        self.keeper.save(state)
                    if stop:
                        self.reporter.say(f"stopped at step {state.step}; the same command goes on from there")
                        return Outcome(state.step, state.scores, stop)
                    if finished:
                        break
                    start = time.perf_counter()
                    self._step(next(iterator), fraction)
                    took = time.perf_counter() - start
                    state.elapsed += took
                    self.pace.add(took)
                    self._report(fraction, batches.waited)
        finally:
            batches.close()
            self.reporter.close()
        self._export(weights)
        self.reporter.say(f"done after {state.step} steps: {weights}")
        return Outcome(state.step, state.scores)

    def _complete(self) -> bool:
        """Whether an earlier attempt came to the end; all processes read the same checkpoint."""
        return self.length.fraction(self.state) >= 1 and self.state.validated == self.state.step

    def _on_signal(self, number: int) -> None:
        self.stopped_by = number

    def _agree(self) -> tuple[float, bool, bool, int]:
        """What all processes do next: fraction of the run that has passed, save?, validate?, stopped by a signal?"""
        first = self.rank == 0
        wishes = [
            min(self.length.fraction(self.state), 1.0) if first else 0.0,
            float(first and self._due("save", self.config.save_every)),
            float(first and self._due("validate", self.config.validate_every)),
            float(self.stopped_by),
        ]
        if self.world > 1:
            wishes = self.fabric.all_reduce(torch.tensor(wishes, dtype=torch.float64), reduce_op="max").tolist()
        return wishes[0], bool(wishes[1]), bool(wishes[2]), int(wishes[3])

    def _due(self, what: str, every: int | str) -> bool:
        if self.pace.steps == 0 or every == 0:
            return False
        if isinstance(every, int):
            return self.state.step % every == 0
        if time.monotonic() - self.marks[what] < seconds(every):
            return False
        self.marks[what] = time.monotonic()
        return True

    def _validate(self) -> None:
        """Scores of the averaged weights; the best so far are exported."""
        state, start = self.state, time.monotonic()
        scores = validate(self.task, self.average.model, self.config.seed, self.rank, self.world)
        self.reporter.validated(state.step, scores, time.monotonic() - start)
        if self.reporter.shows_pictures:
            self.reporter.picture(state.step, pictures(self.task, self.average.model, self.config.seed))
        state.validated, state.scores = state.step, scores
        score = scores.get(self.task.metric, -math.inf)
        if score > state.best:
            state.best = score
            self._export(self.run / "best.safetensors")

    def _export(self, path: Path) -> None:
        if self.fabric.is_global_zero:
            export(path, self.average.model, self.config, self.task, self.state, self.keeper.before)

    def _report(self, fraction: float, waited: float) -> None:
        left = self.length.left(self.state, self.pace)
        self.reporter.stepped(self.state, self.pace, fraction, left, waited)

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
        return (
            f"stopped at step {self.state.step}: {problem}{where}; {self.keeper.said()} in {self.run}. "
            "Try a lower optimizer.lr or optimizer.clip, or a longer schedule.warmup"
        )
