"""Telling right from wrong correspondences (Sec. 5.5 of the paper)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from n3net.correspondence import geometry
from n3net.correspondence.inputs import features
from n3net.correspondence.losses import balanced_cross_entropy, essential_loss, match_weights
from n3net.correspondence.matchfile import Pair, PairFile
from n3net.correspondence.metrics import FAILURE, average_precision, mean_accuracy, pair_error, precision, recall
from n3net.correspondence.synthetic import Poses, rotation_about, synthetic_pair
from n3net.errors import UserError
from n3net.models import create
from n3net.models.cnnet import CNNet
from n3net.tasks import Task, build, training_root
from n3net.tasks.data import Batch, choose, stack

LEAST = 8  # matches that a pose is computed from
AXIS = np.array([0.0, 0.0, 1.0])  # of a camera
MIRROR = np.diag([-1.0, 1.0, 1.0])


@dataclass(frozen=True)
class CorrespondenceOptions:
    """The section ``data`` of a config.

    Args:
        train, validation: files of matches (``.pairs``), below ``root``.
        root: where they are; by default ``$N3NET_DATA``, else the current folder.
        synthetic: share of the training pairs that are made up, see :mod:`n3net.correspondence.synthetic`.
        outliers: of made up pairs, the ends of a range of shares.
        poses: an .npz of real camera pairs for them, below ``root``; by default they are made up, too.
        matches: of a training pair; larger ones are thinned at random.
        turn: largest angle in degrees by which each image of a pair is turned at random about its axis; pairs are also
            mirrored. 0 for neither.
        blind: share of the training pairs whose ratios and mutual flags are taken away.
        threshold: squared symmetric epipolar distance below which a training match is right. Where few are right, many
            of those below the usual threshold lie beside their line by chance.
        wrong: share of the wrong matches in the classification loss; more than half for networks that keep less.
        essential_weight: of the essential loss.
        essential_after: training pairs that are seen before it begins.
        validation_pairs: how many of the validation pairs are used, evenly chosen; 0 for all.
        validation_synthetic: made up pairs, of 90 % outliers, to validate on beside them.
        choose_by: the score that decides which weights are best: mAP at 20 degrees of poses without RANSAC as in the
            paper's program, which stays near 0 until nearly all kept matches are right, or average precision.
    """

    train: list[str]
    validation: list[str]
    root: str | None = None
    synthetic: float = 0.0
    outliers: tuple[float, float] = (0.0, 0.95)
    poses: str | None = None
    matches: int = 2000
    turn: float = 0.0
    blind: float = 0.0
    threshold: float = geometry.CORRECT_BELOW
    wrong: float = 0.5
    essential_weight: float = 0.1
    essential_after: int = 0
    validation_pairs: int = 0
    validation_synthetic: int = 0
    choose_by: Literal["map20", "ap"] = "map20"

    def __post_init__(self) -> None:
        for name in ("synthetic", "blind", "wrong"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected a share, 0 to 1, got {getattr(self, name)}")
        if not 0 <= self.outliers[0] <= self.outliers[1] < 1:
            raise ValueError(f"outliers: expected two shares below 1, the smaller first, got {self.outliers}")
        if self.matches < LEAST:
            raise ValueError(f"matches: expected at least {LEAST}, got {self.matches}")
        for name in ("validation_pairs", "validation_synthetic"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected 0 or more, got {getattr(self, name)}")
        if not self.train and self.synthetic < 1:
            raise ValueError("train: expected files of matches, or synthetic: 1 to do without")


class Correspondences(Task):
    """Matches of image pairs, photographed or made up; balanced cross entropy, and the essential matrix."""

    Options = CorrespondenceOptions
    unit = "pairs"

    def __init__(self, options: CorrespondenceOptions, model: dict[str, Any], seed: int) -> None:
        self.options, self.seed, self.model = options, seed, dict(model)
        self.metric = options.choose_by
        root = training_root(options.root)
        self.train = _Joined([PairFile(root / place) for place in options.train])
        validation = _Joined([PairFile(root / place) for place in options.validation])
        shared = {f.path.resolve() for f in self.train.files} & {f.path.resolve() for f in validation.files}
        if shared:
            raise UserError(f"data.validation: {min(shared)} is also a training file")
        self.poses = None if options.poses is None else Poses(root / options.poses)
        count = min(options.validation_pairs or len(validation), len(validation))
        self.validation = [validation[i * len(validation) // count] for i in range(count)]
        with torch.device("meta"):
            self.template: CNNet = build(self.model, CNNet)  # says what its input is

    @property
    def items_per_epoch(self) -> int:
        return max(len(self.train), 1)

    def build_model(self) -> nn.Module:
        return create(**self.model)

    def item(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        o = self.options
        if rng.random() < o.synthetic:
            pair = synthetic_pair(rng, o.matches, o.outliers, self.poses)
        else:
            pair = thinned(self.train[choose(self.seed, number, len(self.train))], o.matches, rng)
        if o.turn:
            pair = turned(pair, rng, math.radians(o.turn))
        if rng.random() < o.blind:
            pair = replace(pair, ratio=None, mutual=None)
        e = geometry.essential(*pair.pose)
        weight = o.essential_weight if number >= o.essential_after else 0.0
        return {
            "matches": features(pair, self.template).numpy(),
            "labels": geometry.labels(e, pair.x0, pair.x1, o.threshold),
            "essential": e,
            "essential_weight": np.float32(weight),
        }

    def collate(self, items: list[dict[str, Any]]) -> Batch:
        """Sets of unequal size are padded to the largest; ``mask`` is true where there is a match."""
        size = max(len(item["labels"]) for item in items)
        batch = stack([{key: item[key] for key in ("essential", "essential_weight")} for item in items])
        batch["essential"] = batch["essential"].float()  # not every device has float64
        batch["mask"] = torch.stack([torch.arange(size) < len(item["labels"]) for item in items])  # (B, N)
        for key in ("matches", "labels"):
            batch[key] = nn.utils.rnn.pad_sequence([torch.from_numpy(item[key]) for item in items], batch_first=True)
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        matches, labels, mask = batch["matches"], batch["labels"], batch["mask"]
        logits = model(matches, None if bool(mask.all()) else mask).float()  # (B, N)
        loss = balanced_cross_entropy(logits, labels, mask, self.options.wrong).mean()
        # The same figures in all processes, even where the essential loss begins in the middle of a batch.
        figures = {"essential": loss.new_zeros(())} if self.options.essential_weight else {}
        if bool(batch["essential_weight"].any()):
            errors = essential_loss(matches, match_weights(logits, mask), batch["essential"])
            figures["essential"] = (batch["essential_weight"] * errors).mean()
            loss = loss + figures["essential"]
        with torch.no_grad():
            kept = (logits >= 0) & mask
            right = (kept & labels).sum()
            figures |= {"precision": right / kept.sum().clamp(min=1), "recall": right / labels.sum().clamp(min=1)}
        return loss, {name: figure.detach() for name, figure in figures.items()}

    @property
    def validation_count(self) -> int:
        return len(self.validation) + self.options.validation_synthetic

    def validate(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, float]:
        synthetic = index >= len(self.validation)
        pair = synthetic_pair(rng, 2000, 0.9, self.poses) if synthetic else self.validation[index]
        scores = pair_scores(model, pair)
        # Means are over all items; what one kind does not have counts 0 there, so both are scaled to their own mean.
        if synthetic:
            return {"ap90": scores["ap"] * self.validation_count / self.options.validation_synthetic}
        return {name: value * self.validation_count / len(self.validation) for name, value in scores.items()}

    def card(self) -> dict[str, Any]:
        options = asdict(self.options)
        del options["root"]
        return {"pairs": len(self.train), **options}


class _Joined:
    """The pairs of several files, one after the other."""

    def __init__(self, files: list[PairFile]) -> None:
        self.files = files
        self.ends = np.cumsum([len(file) for file in files])

    def __len__(self) -> int:
        return int(self.ends[-1]) if self.files else 0

    def __getitem__(self, index: int) -> Pair:
        which = int(np.searchsorted(self.ends, index, side="right"))
        file = self.files[which]
        return file[index - int(self.ends[which]) + len(file)]


def thinned(pair: Pair, count: int, rng: np.random.Generator) -> Pair:
    """At most ``count`` of the matches, chosen at random."""
    if len(pair) <= count:
        return pair
    kept = rng.permutation(len(pair))[:count]
    ratio = None if pair.ratio is None else pair.ratio[kept]
    mutual = None if pair.mutual is None else pair.mutual[kept]
    return replace(pair, x0=pair.x0[kept], x1=pair.x1[kept], ratio=ratio, mutual=mutual)


def turned(pair: Pair, rng: np.random.Generator, largest: float) -> Pair:
    """Both images turned about their axes, by an angle they share and by one of each, and mirrored or not."""
    together = rng.uniform(-largest, largest)
    flip = MIRROR if rng.integers(2) else np.eye(3)
    turns = [flip @ rotation_about(AXIS, together + rng.uniform(-0.2, 0.2) * largest) for _ in range(2)]
    x0, x1 = (x @ turn[:2, :2].T.astype(np.float32) for x, turn in zip((pair.x0, pair.x1), turns, strict=True))
    rotation, translation = pair.pose
    return replace(pair, x0=x0, x1=x1, rotation=turns[1] @ rotation @ turns[0].T, translation=turns[1] @ translation)


def pair_scores(model: nn.Module, pair: Pair) -> dict[str, float]:
    """Of a model's logits: average precision, precision, recall, and mAP at 20 degrees of the pose without RANSAC."""
    device = next(model.parameters()).device
    x = features(pair, model)[None].to(device)  # (1, N, C)
    with torch.no_grad():
        logits = model(x).float()
        e = geometry.weighted_eight_point(x[..., :2], x[..., 2:4], match_weights(logits))[0].cpu().numpy()
    scores = logits[0].cpu().numpy()
    kept, right = scores >= 0, geometry.labels(geometry.essential(*pair.pose), pair.x0, pair.x1)
    error = pair_error(*FAILURE)
    if kept.sum() >= LEAST:
        found = geometry.recover_pose(e, pair.x0[kept], pair.x1[kept])
        error = pair_error(*geometry.pose_error(*found, *pair.pose))
    return {
        "map20": mean_accuracy(error, 20),
        "ap": float(np.nan_to_num(average_precision(scores, right))),
        "precision": precision(kept, right),
        "recall": float(np.nan_to_num(recall(kept, right))),
    }
