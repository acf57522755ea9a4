"""Learning rates."""

from __future__ import annotations

import math

from n3net.training.config import ScheduleConfig

CYCLE_START = 1 / 25  # of the peak, where a one-cycle schedule begins


def learning_rate(schedule: ScheduleConfig, peak: float, fraction: float) -> float:
    """The learning rate after a fraction of the run, 0 to 1.

    >>> f'{learning_rate(ScheduleConfig("exponential", final=1e-8), 1e-2, 0.5):.1e}'
    '1.0e-05'
    """
    fraction = min(max(fraction, 0.0), 1.0)
    warmup, final = schedule.warmup, schedule.final
    if schedule.name == "one-cycle":
        if fraction < warmup:
            return _cosine(peak * CYCLE_START, peak, fraction / warmup)
        return _cosine(peak, final, (fraction - warmup) / (1 - warmup))
    climb = min(fraction / warmup, 1.0) if warmup else 1.0
    if schedule.name == "exponential":
        return climb * math.exp((1 - fraction) * math.log(peak) + fraction * math.log(final))
    if schedule.name == "cosine":
        return climb * _cosine(peak, final, fraction)
    if schedule.name == "steps":
        return climb * peak * schedule.drop ** math.floor(fraction / schedule.every + 1e-9)
    return climb * peak


def _cosine(start: float, end: float, fraction: float) -> float:
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * fraction))
