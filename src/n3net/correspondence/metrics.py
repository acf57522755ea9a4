"""How good matches and poses are: the paper's mAP, the AUC of later papers, precision, recall, average precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DEGREES = (5, 10, 20)  # degrees
STEP = 5  # degrees between the accuracies that mAP averages
FAILURE = (180.0, 90.0)  # degrees of rotation and translation where there is no pose


def pair_error(rotation: float, translation: float) -> float:
    """The error of a pair in degrees: the worse of its rotation and of the direction of its translation."""
    return max(rotation, translation)


def mean_accuracy(error: float, threshold: int) -> float:
    """What a pair adds to mAP at a threshold; the mean over pairs is mAP.

    With acc(T) the share of pairs whose error is below T, mAP@5 = acc(5), mAP@10 = (acc(5) + acc(10)) / 2, and mAP@20
    is the mean of acc(5), acc(10), acc(15) and acc(20).

    Example:
        >>> mean_accuracy(7.0, 20)  # not below 5, but below 10, 15 and 20
        0.75
    """
    limits = np.arange(STEP, threshold + 1, STEP)
    return float((error < limits).mean())


def curve_area(error: float, threshold: int) -> float:
    """What a pair adds to AUC at a threshold; the mean over pairs is the area under acc(T) for T from 0, divided by T.

    It is the area under the step function. Programs that join its corners by straight lines give up to one pair's share
    more.

    Example:
        >>> curve_area(5.0, 20)
        0.75
    """
    return max(0.0, 1 - error / threshold)


def precision(kept: Array, labels: Array) -> float:
    """Share of the kept matches that are right; 0 where none is kept."""
    return float(labels[kept].mean()) if kept.any() else 0.0


def recall(kept: Array, labels: Array) -> float:
    """Share of the right matches that are kept; NaN where none is right."""
    return float(kept[labels].mean()) if labels.any() else float("nan")


def average_precision(scores: Array, labels: Array) -> float:
    """Mean over the right matches of the precision at their score; NaN where none is right. Equal scores go together.

    Example:
        >>> average_precision(np.array([3.0, 2.0, 1.0]), np.array([True, False, True])).__round__(4)
        0.8333
    """
    if not labels.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    scores, labels = scores[order], labels[order]
    right = np.cumsum(labels)
    last = np.append(np.flatnonzero(scores[1:] != scores[:-1]), len(scores) - 1)  # of each group of equal scores
    at, gained = right[last] / (last + 1), np.diff(right[last], prepend=0)
    return float((at * gained).sum() / right[-1])
