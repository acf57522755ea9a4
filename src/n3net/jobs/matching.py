"""Pairs of photographs in, matches, poses and pictures out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3net.errors import UserError
from n3net.jobs.operation import Operation
from n3net.jobs.records import Record
from n3net.jobs.work import Progress, digest_of

if TYPE_CHECKING:
    from n3net.correspondence.intrinsics import Cameras
    from n3net.correspondence.matching import Matches, Seen

REMEMBERED = 64  # images whose keypoints are not computed again for the next pair


@dataclass(frozen=True)
class ImagePair:
    """Two images by name, the directory that these are relative to, and the path of the outputs without ending."""

    images: tuple[str, str]
    base: Path
    target: Path

    @property
    def name(self) -> str:
        return " ".join(self.images)

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.base / self.images[0], self.base / self.images[1]

    def done(self, picture: bool = False) -> bool:
        """Whether the JSON file is there, which is written last, and with ``picture`` that, too."""
        suffixes = (".json", ".png") if picture else (".json",)
        return all(self.file(suffix).exists() for suffix in suffixes)

    def file(self, suffix: str) -> Path:
        """The output of an ending."""
        return self.target.with_name(self.target.name + suffix)


@dataclass(frozen=True)
class Match(Operation[ImagePair]):
    """Matches two photographs.

    Args:
        model: weights by name or file.
        estimator, threshold, mutual, device: see :func:`n3net.correspondence.matching.match_views`.
        limit: keypoints of an image, at most.
        cameras: of the images.
        picture: whether matches are drawn.
        many: whether there are many pairs, of which less is said each.
        max_pixels: larger images are refused.
    """

    model: str | None
    estimator: str
    threshold: float
    limit: int
    mutual: bool
    cameras: Cameras
    device: str = "cpu"
    picture: bool = False
    max_pixels: int = 50_000_000
    many: bool = False

    what = "pairs"
    less_memory = "try fewer keypoints (--limit)"

    def __getstate__(self) -> dict[str, Any]:
        """The settings; the network is loaded again in another process."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def settings(self) -> dict[str, Any]:
        from n3net.correspondence.filtering import MODEL

        return {
            "model": self.model or MODEL,
            "digest": digest_of(self._net),
            "estimator": self.estimator,
            "threshold": self.threshold,
            "limit": self.limit,
            "mutual": self.mutual,
            "cameras": [
                *(f"{path}, sha256 {_digest(path)}" for path in self.cameras.files),
                *self.cameras.focal,
                *(f"{angle:g} degrees" for angle in self.cameras.fov),
            ],
        }

    def weights(self) -> dict[str, str]:
        from n3net.correspondence.filtering import MODEL

        return {self.model or MODEL: digest_of(self._net)}

    def begin(self) -> None:
        from n3net.correspondence.estimators import check
        from n3net.models.preparing import check_device

        check_device(self.device)
        check(self.estimator)
        self._net  # noqa: B018

    def inputs(self, job: ImagePair) -> list[Path]:
        return list(job.paths)

    def output(self, job: ImagePair) -> Path:
        return job.file(".json")

    def do(self, job: ImagePair, force: bool, progress: Progress) -> Record:
        from n3net.correspondence.matching import match_views
        from n3net.correspondence.results import document, save_json, save_npz

        start = time.perf_counter()
        seen = [
            self._seen(path, name, i if self.cameras.differ else 0)
            for i, (path, name) in enumerate(zip(job.paths, job.images, strict=True))
        ]
        matches = match_views(
            seen[0],
            seen[1],
            self._net,
            estimator=self.estimator,
            threshold=self.threshold,
            mutual=self.mutual,
            device=self.device,
        )
        save_npz(job.file(".npz"), matches, force=True)
        if self.picture:
            self._draw(job, matches)
        save_json(job.file(".json"), document(matches, self.settings), force=True)
        return self._record(job, matches, time.perf_counter() - start)

    def _record(self, job: ImagePair, matches: Matches, seconds: float) -> Record:
        from n3net.correspondence.results import describe, describe_fully

        counts = f"{len(matches.kept)} matches, {int(matches.kept.sum())} kept, {int(matches.inliers.sum())} agree"
        more = [*self._about_cameras(matches)]
        if matches.pose is not None:
            words = [describe(matches.pose)] if self.many else describe_fully(matches.pose)
            more += [f"  pose: {words[0]}", *(f"      {line}" for line in words[1:])]
        more += [f"  note: {note}" for note in matches.result.notes]
        scoring = f", {matches.seconds['scoring']:.2f} s of them scoring"
        return Record(
            job.name,
            str(job.target.parent),
            note=counts,
            seconds=seconds,
            settings=self.digest,
            weights=digest_of(self._net),
            more="\n".join([scoring, *more]),
        )

    def _about_cameras(self, matches: Matches) -> list[str]:
        """Where the cameras are known from; not again for each of many pairs where a person said it."""
        if self.many and self.cameras.given:
            return []
        sources = [view.camera.source for view in matches.views]
        if sources[0] == sources[1]:
            return [f"  cameras: {sources[0]}"]
        return [f"  camera of {view.name}: {view.camera.source}" for view in matches.views]

    @cached_property
    def _net(self) -> Any:
        from n3net.correspondence.filtering import filter_network

        return filter_network(self.model)

    @cached_property
    def _seen(self) -> Callable[[Path, str, int], Seen]:
        """Keypoints of an image, remembered for the next pair."""
        from n3net.correspondence.matching import look, open_image

        @lru_cache(REMEMBERED)
        def see(path: Path, name: str, which: int) -> Seen:
            try:
                pixels, from_exif = open_image(path, self.max_pixels)
            except UserError as error:
                raise UserError(f"{path}: {error}") from None
            size = (pixels.shape[1], pixels.shape[0])
            return look(pixels, self.cameras.of(which, size, name) or from_exif, self.limit, name)

        return see

    def _draw(self, job: ImagePair, matches: Matches) -> None:
        from n3net.correspondence.matching import open_image
        from n3net.correspondence.picture import draw
        from n3net.io.files import writing

        sheet = draw(matches, *(open_image(path, self.max_pixels)[0] for path in job.paths))
        with writing(job.file(".png"), force=True) as file:
            sheet.save(file, "PNG")


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
