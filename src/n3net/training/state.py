"""How far a run is, how long it will be, and how fast it goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from n3net.tasks import Task
from n3net.training.config import Config, seconds


@dataclass
class State:
    """What a checkpoint holds beside the tensors."""

    step: int = 0  # steps done
    elapsed: float = 0.0  # seconds of training, over all attempts; neither validation nor saving counts
    best: float = -math.inf
    means: dict[str, float] = field(default_factory=dict)  # smoothed loss and figures
    validated: int = -1  # the last step that was validated
    scores: dict[str, float] = field(default_factory=dict)  # of that step


@dataclass
class Pace:
    """The steps of this attempt, and the seconds that they took."""

    steps: int = 0
    seconds: float = 0.0

    def add(self, took: float) -> None:
        self.steps, self.seconds = self.steps + 1, self.seconds + took


class Length:
    """The length of a run: a number of steps, or seconds of training."""

    def __init__(self, config: Config, task: Task) -> None:
        self.seconds = None if config.budget is None else seconds(config.budget)
        self.steps = config.steps or 0
        if config.steps is None and config.epochs is not None:
            self.steps = math.ceil(config.epochs * task.items_per_epoch / config.batch_size)

    def fraction(self, state: State) -> float:
        """The part of the run that has passed; 1 and more at its end."""
        return state.step / self.steps if self.seconds is None else state.elapsed / self.seconds

    def left(self, state: State, pace: Pace) -> float:
        """Seconds to the end, at this pace."""
        if self.seconds is not None:
            return max(self.seconds - state.elapsed, 0.0)
        return (self.steps - state.step) * pace.seconds / pace.steps
