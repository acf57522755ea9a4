"""Matches of any matcher: a network scores them, those with a logit of at least 0 are kept, and a pose fits to them."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from n3net.correspondence.estimators import AGREES_WITHIN, MINIMUM, Pose, estimate, judge
from n3net.correspondence.inputs import features
from n3net.correspondence.matchfile import Pair
from n3net.models.cnnet import CNNet
from n3net.weights.store import load_for

Array = npt.NDArray[Any]

MODEL = "match"  # name of the weights that are used by default
FEWEST = 8  # matches that a network can tell anything about: fewer determine no essential matrix
FARTHEST = 20  # coordinates beyond it, 87 degrees off the axis, are taken for an accident
TRUSTED, TRUSTED_SHARE = 20, 0.1  # inliers, and their share of the kept, below which a pose comes with a warning


@dataclass(frozen=True)
class Filtered:
    """What became of N matches.

    Args:
        scores: (N,) logits; 0 where there were too few matches to score, -infinity for those that are no numbers.
        kept: (N,) bool.
        pose: that of the kept matches, or None.
        notes: in words, what a person should know about them.
        seconds: of scoring and of the pose.
    """

    scores: npt.NDArray[np.float32]
    kept: npt.NDArray[np.bool_]
    pose: Pose | None
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def filter_network(model: str | Path | nn.Module | None = None) -> CNNet:
    """A network for matches: itself, by name or file, or the default one."""
    net: CNNet = load_for(MODEL if model is None else model, CNNet)
    return net


def score(pair: Pair, model: CNNet, device: str | torch.device = "cpu") -> npt.NDArray[np.float32]:
    """Logits of the matches, (N,); -infinity for those that are no numbers, 0 if fewer than 8 are.

    A network that looks at ratio and mutual has learned to do without both, not without one: if one is not known, the
    other is not used. The network itself stays as it is and where it is.
    """
    if model.ratio and model.mutual and (pair.ratio is None or pair.mutual is None):
        pair = replace(pair, ratio=None, mutual=None)
    scores = np.full(len(pair), -np.inf, np.float32)
    usable = finite(pair)
    if usable.sum() < FEWEST:
        scores[usable] = 0
        return scores
    if any(part.training for part in model.modules()) or next(model.parameters()).device != torch.device(device):
        model = copy.deepcopy(model).to(device).eval()
    x = features(pair, model)[torch.from_numpy(usable)].to(device)  # (n, C)
    with torch.inference_mode():
        logits: Array = model(x[None])[0].float().cpu().numpy()
    scores[usable] = np.where(np.isfinite(logits), logits, -np.inf)
    return scores


def finite(pair: Pair) -> npt.NDArray[np.bool_]:
    """Matches whose coordinates are numbers that a camera can see, (N,)."""
    with np.errstate(invalid="ignore"):
        usable = np.all(np.abs(np.hstack([pair.x0, pair.x1])) <= FARTHEST, axis=1)
    return np.asarray(usable if pair.ratio is None else usable & np.isfinite(pair.ratio))


def pose_of(pair: Pair, kept: Array, estimator: str = "ransac", threshold: float = AGREES_WITHIN) -> Pose | None:
    """The pose of the kept matches, each counted once however often it is there; None where they do not suffice."""
    points = np.hstack([pair.x0, pair.x1])[kept]  # (n, 4)
    distinct, back = np.unique(points, axis=0, return_inverse=True)
    if len(distinct) < MINIMUM:
        return None
    x0, x1 = distinct[:, :2], distinct[:, 2:]
    pose = estimate(x0, x1, estimator, threshold)
    if pose is None or not pose.inliers.any():
        return None
    pose = judge(pose, x0, x1)
    inliers = np.zeros(len(pair), bool)
    inliers[np.flatnonzero(kept)] = pose.inliers[back.ravel()]
    return replace(pose, inliers=inliers)


def filter_pair(
    pair: Pair,
    model: str | Path | nn.Module | None = None,
    *,
    estimator: str = "ransac",
    threshold: float = AGREES_WITHIN,
    mutual: bool = False,
    device: str | torch.device = "cpu",
) -> Filtered:
    """Score the matches of a pair, keep the good ones, with ``mutual`` only if they are mutual, estimate the pose."""
    net = filter_network(model)
    start = time.perf_counter()
    scores = score(pair, net, device)
    scored = time.perf_counter()
    kept = scores >= 0
    if mutual and pair.mutual is not None:
        kept &= pair.mutual
    pose = pose_of(pair, kept, estimator, threshold)
    seconds = {"scoring": scored - start, "pose": time.perf_counter() - scored}
    return Filtered(scores, kept, pose, tuple(_notes(pair, kept, pose)), seconds)


def _notes(pair: Pair, kept: Array, pose: Pose | None) -> list[str]:
    notes = []
    usable = finite(pair)
    count = int(usable.sum())
    if count < len(pair):
        notes.append(f"{len(pair) - count} matches are not numbers, or lie beyond what a camera sees, and are rejected")
    if count == 0:
        return [*notes, "there are no matches"]
    if count < FEWEST:
        notes.append(f"only {count} matches, fewer than {FEWEST}: too few to tell right from wrong, all are kept")
    if pose is None:
        return [*notes, f"no pose: it takes {MINIMUM} different matches that agree, {int(kept.sum())} were kept"]
    if pose.motion == "rotation":
        notes.append(
            "the camera turned but did not move, or the images are the same: the translation is not determined"
        )
    if pose.motion == "plane":
        notes.append("nearly all matches lie on a plane: a second pose may fit as well as the one that is given")
    inliers = int(pose.inliers.sum())
    if inliers < max(TRUSTED, TRUSTED_SHARE * int(kept.sum())):
        notes.append(f"only {inliers} of {int(kept.sum())} kept matches agree with the pose: do not rely on it")
    return notes
