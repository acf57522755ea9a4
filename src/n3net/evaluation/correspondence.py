"""The scoreboard for correspondences: how good kept matches and the poses from them are, on files of pairs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.correspondence.filtering import filter_network, finite, pose_of, score
from n3net.correspondence.geometry import essential, labels, pose_error
from n3net.correspondence.matchfile import SUFFIX, Pair, PairFile
from n3net.correspondence.metrics import (
    FAILURE,
    average_precision,
    pair_error,
    precision,
    recall,
)
from n3net.errors import UserError
from n3net.evaluation.names import MUTUAL, split_label, unique_names

Array = npt.NDArray[Any]

RATIO = 0.8  # of Lowe's test
CNNET = "match-cnnet"  # name of the weights that stand beside every model, if they are there
PROTOCOL = {
    "labels": "a match is right if its squared symmetric epipolar distance to the true pose is below 1e-4",
    "pose": "as 'n3net match' estimates it from the kept matches, each counted once: threshold 0.001 in calibrated "
    "coordinates, confidence 0.999; fewer than 5 different ones fail, and a camera that only turned has no translation",
    "error": "of a pair, in degrees: the larger of rotation and direction of translation (0 to 90, no sign, 90 where "
    "one of the two is zero); no pose: 180",
    "map": "acc(T): share of pairs with an error below T; mAP@5 = acc(5), mAP@10 = mean of acc(5), acc(10), "
    "mAP@20 = mean of acc(5), acc(10), acc(15), acc(20)",
    "auc": "area under acc(T) from 0 to 5, 10, 20 degrees, divided by that; not the same as mAP",
    "precision": "mean over pairs of the share of kept matches that are right, 0 where none is kept",
    "recall": "mean over pairs with right matches of the share of them that is kept",
    "average_precision": "mean over pairs with right matches of the area under precision over recall, by score",
    "interval": "95 %, percentile bootstrap over pairs, 10,000 draws; several weights of one label are averaged before",
    "seconds": "median over pairs, wall clock, of scoring and of the estimator",
}


@dataclass(frozen=True)
class Filter:
    """Something that scores matches and keeps some.

    Args:
        name: label in the tables, the weights as given by default; those of the same label, as of several seeds, are
            averaged.
        judge: from a pair and which of its matches are right, (N,), to scores and which are kept, (N,) each.
        needs: what a pair must have for it.
        weights, digest: of a network.
    """

    name: str
    judge: Callable[[Pair, Array], tuple[Array, Array]]
    needs: tuple[str, ...] = ()
    weights: str = ""
    digest: str | None = None


def _all(pair: Pair, right: Array) -> tuple[Array, Array]:
    return np.zeros(len(pair), np.float32), finite(pair)


def _ratio(pair: Pair, right: Array) -> tuple[Array, Array]:
    assert pair.ratio is not None
    return -pair.ratio, pair.ratio < RATIO


def _mutual(pair: Pair, right: Array) -> tuple[Array, Array]:
    assert pair.ratio is not None
    assert pair.mutual is not None
    return -pair.ratio - ~pair.mutual, (pair.ratio < RATIO) & pair.mutual


def _perfect(pair: Pair, right: Array) -> tuple[Array, Array]:
    return right.astype(np.float32), right


BASELINES = (
    Filter("all matches", _all),
    Filter(f"ratio test {RATIO}", _ratio, ("ratio",)),
    Filter("ratio + mutual", _mutual, ("ratio", "mutual")),
    Filter("perfect labels", _perfect),
)


def network(name: str) -> Filter:
    """Weights by name or file; ``NAME+mutual`` keeps mutual matches only, ``LABEL=NAME`` has another label."""
    label, given = split_label(name)
    source, mutual = given.removesuffix(MUTUAL), given.endswith(MUTUAL)
    net = filter_network(source)

    def judge(pair: Pair, right: Array) -> tuple[Array, Array]:
        scores = score(pair, net)
        kept = scores >= 0
        if mutual and pair.mutual is not None:
            kept &= pair.mutual
        return scores, kept

    return Filter(label or given, judge, ("mutual",) * mutual, source, net.record.get("digest"))


@dataclass(frozen=True)
class PairSet:
    """Pairs with known poses to measure on."""

    name: str
    pairs: PairFile
    chosen: tuple[int, ...]  # numbers of those that are measured

    def __len__(self) -> int:
        return len(self.chosen)

    def __iter__(self) -> Iterator[tuple[int, Pair]]:
        return ((number, self.pairs[number]) for number in self.chosen)


def pair_sets(paths: Sequence[Path], limit: int | None = None) -> list[PairSet]:
    """Files of pairs, and those in directories, by name; of each all pairs, or some, drawn always the same."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob(f"*{SUFFIX}"))
            if not inside:
                raise UserError(f"{path}: no files of matches (*{SUFFIX}) in it; 'n3net data' makes them")
            found += inside
        else:
            found.append(path)
    sets = []
    for path, name in zip(found, unique_names([path.absolute() for path in found]), strict=True):
        file = PairFile(path)
        if len(file) == 0:
            raise UserError(f"{path}: no pairs in it")
        drawn = np.random.default_rng(0).permutation(len(file))[:limit]
        sets.append(PairSet(name, file, tuple(sorted(drawn.tolist()))))
    return sets


@dataclass(frozen=True)
class Row:
    """One pair, one method, one estimator; angles in degrees."""

    model: str
    weights: str
    dataset: str
    estimator: str
    pair: int
    rotation: float
    translation: float
    matches: int
    kept: int
    inliers: int
    precision: float
    recall: float
    average_precision: float
    seconds_scoring: float
    seconds_pose: float

    @property
    def error(self) -> float:
        return pair_error(self.rotation, self.translation)


def evaluate(
    methods: Sequence[Filter],
    pairs: PairSet,
    estimators: Sequence[str],
    progress: Callable[[str], None] = lambda what: None,
) -> list[Row]:
    """Score all pairs, and estimate their poses, with all methods that need no more than a pair has."""
    rows: list[Row] = []
    for done, (number, pair) in enumerate(pairs, start=1):
        if pair.rotation is None or pair.translation is None:
            raise UserError(f"{pairs.pairs.path}: pair {number} has no pose to compare with")
        truth = (pair.rotation, pair.translation)
        right = labels(essential(*truth), pair.x0, pair.x1) & finite(pair)
        for method in methods:
            if all(getattr(pair, need) is not None for need in method.needs):
                start = time.perf_counter()
                scores, kept = method.judge(pair, right)
                seconds = time.perf_counter() - start
                known: dict[str, Any] = {
                    "model": method.name,
                    "weights": method.weights,
                    "dataset": pairs.name,
                    "pair": number,
                    "matches": len(pair),
                    "kept": int(kept.sum()),
                    "precision": precision(kept, right),
                    "recall": recall(kept, right),
                    "average_precision": average_precision(scores, right),
                    "seconds_scoring": seconds,
                }
                rows += [Row(**known, **_pose_figures(pair, kept, truth, name)) for name in estimators]
            progress(f"{pairs.name} {done}/{len(pairs)} {method.name}")
    return rows


def _pose_figures(pair: Pair, kept: Array, truth: tuple[Array, Array], estimator: str) -> dict[str, Any]:
    """The part of a row that depends on the estimator."""
    start = time.perf_counter()
    pose = pose_of(pair, kept, estimator)
    seconds = time.perf_counter() - start
    rotation, translation = FAILURE if pose is None else pose_error(pose.rotation, pose.translation, *truth)
    return {
        "estimator": estimator,
        "rotation": rotation,
        "translation": translation,
        "inliers": 0 if pose is None else int(pose.inliers.sum()),
        "seconds_pose": seconds,
    }
