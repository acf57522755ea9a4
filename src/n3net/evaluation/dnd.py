"""The Darmstadt Noise Dataset (Plötz & Roth 2017): its files in, bundles for its site out.

``DIR/info.mat`` and ``DIR/images_raw/0001.mat`` ... or ``DIR/images_srgb/0001.mat`` ... are MATLAB 7.3 files, which are
HDF5 files with transposed arrays. The clean images are the benchmark's secret: what is written here is measured by its
site. A bundle is one MATLAB file for each image with its denoised crops, as the benchmark's public kit writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from n3net.errors import UserError
from n3net.evaluation.paper import TABLE4
from n3net.noise.sensor import NoiseLevel

Floats = npt.NDArray[np.float32]
Kind = Literal["raw", "srgb"]

VERSION = "1.0"  # of the evaluation, which bundles name
VARIABLE = {"raw": "Inoisy", "srgb": "InoisySRGB"}  # in the files of images


@dataclass(frozen=True)
class Box:
    """A part of an image that is measured.

    Args:
        rows, columns: where it is.
        sigma_srgb: standard deviation of its noise after development, values up to 1.
    """

    rows: slice
    columns: slice
    sigma_srgb: float


@dataclass(frozen=True)
class DarmstadtImage:
    """What the benchmark says of one image.

    Args:
        number: from 1 on.
        level: of the raw noise.
        pattern: colours of the filter array, row by row, such as ``"RGGB"``; empty where the file does not say.
        boxes: parts that are measured, twenty of them.
    """

    number: int
    level: NoiseLevel
    pattern: str
    boxes: tuple[Box, ...]

    @property
    def name(self) -> str:
        return f"{self.number:04d}.mat"


def read_info(directory: Path) -> list[DarmstadtImage]:
    """All images of the benchmark."""
    path = directory / "info.mat"
    with _opened(path) as file:
        info = file["info"]
        count = info["boundingboxes"].shape[1]
        return [_entry(info, index) for index in range(count)]


def _entry(info: Any, index: int) -> DarmstadtImage:
    def of(name: str) -> Any:
        return info[info[name][0, index]]

    boxes = np.asarray(of("boundingboxes")).T  # (boxes, 4): first row, first column, last row, last column, from 1 on
    sigma_srgb = np.asarray(of("sigma_srgb")).ravel()
    level = of("nlf")
    return DarmstadtImage(
        index + 1,
        NoiseLevel(float(level["a"][0, 0]), float(level["b"][0, 0])),
        _pattern(of("camera")) if "camera" in info else "",
        tuple(
            Box(slice(int(b[0]) - 1, int(b[2])), slice(int(b[1]) - 1, int(b[3])), float(sigma_srgb[i]))
            for i, b in enumerate(boxes)
        ),
    )


def _pattern(camera: Any) -> str:
    """Of the colour filter array: 1 is red, 2 green, 3 blue."""
    if "pattern" not in camera:
        return ""
    numbers = np.asarray(camera["pattern"]).T.astype(int).ravel()
    if sorted(numbers) != [1, 2, 2, 3]:
        raise ValueError(f"a colour filter array {numbers}")
    return "".join("RGB"[number - 1] for number in numbers)


def read_image(directory: Path, entry: DarmstadtImage, kind: Kind) -> Floats:
    """A noisy image, (H, W) raw or (H, W, 3), values up to 1."""
    path = directory / f"images_{kind}" / entry.name
    with _opened(path) as file:
        image = np.asarray(file[VARIABLE[kind]], np.float32).T
    if image.ndim != (2 if kind == "raw" else 3):
        raise UserError(f"{path}: expected {'(H, W)' if kind == 'raw' else '(H, W, 3)'}, got shape {image.shape}")
    height, width = image.shape[:2]
    for box in entry.boxes:
        rows, columns = box.rows, box.columns
        if not (0 <= rows.start < rows.stop <= height and 0 <= columns.start < columns.stop <= width):
            raise UserError(f"{path}: a bounding box lies outside its {width} x {height} pixels")
    return np.ascontiguousarray(image)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of the benchmark, and what can be wrong with it as a message."""
    try:
        import h5py
    except ImportError:
        raise UserError("the Darmstadt Noise Dataset needs h5py and SciPy: pip install 'n3net[dnd]'") from None
    if not path.is_file():
        raise UserError(f"{path}: no such file; the benchmark's archive has it")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError, ValueError, IndexError, TypeError) as error:
        raise UserError(f"{path}: not a file of the Darmstadt Noise Dataset ({error})") from None


def denoise_boxes(
    image: Floats, entry: DarmstadtImage, kind: Kind, model: torch.nn.Module, device: str = "cpu"
) -> list[Floats]:
    """The denoised parts of an image, each colour of the filter array apart."""
    from n3net.restoration.denoising import denoise
    from n3net.restoration.raw import denoise_plane

    crops = []
    for box in entry.boxes:
        noisy = image[box.rows, box.columns]
        if kind == "srgb":
            out = denoise(np.ascontiguousarray(noisy), 255 * box.sigma_srgb, model, device=device)
        else:
            out = np.empty_like(noisy)
            for place in ((slice(row, None, 2), slice(column, None, 2)) for row in (0, 1) for column in (0, 1)):
                out[place] = denoise_plane(np.ascontiguousarray(noisy[place]), entry.level, model, device=device)
        crops.append(out.clip(0, 1))
    return crops


def write_bundle(path: Path, crops: list[Floats], kind: Kind, force: bool = False) -> None:
    """The file of one image for the benchmark's site."""
    try:
        from scipy.io import savemat
    except ImportError:
        raise UserError("bundles need SciPy: pip install 'n3net[dnd]'") from None
    from n3net.io.files import writing

    cells = np.empty(len(crops), object)
    cells[:] = crops
    with writing(path, force) as file:
        savemat(file, {"Idenoised": cells, "israw": kind == "raw", "eval_version": VERSION})


def make_bundle(
    directory: Path,
    output: Path,
    kind: Kind,
    model: str | None = None,
    *,
    limit: int | None = None,
    force: bool = False,
    device: str = "cpu",
    progress: Callable[[str], None] = lambda what: None,
) -> int:
    """Denoise all images and write a bundle; the number of images.

    Args:
        directory: of the benchmark.
        output: directory to write to.
        kind: of the images.
        model: weights by name or file, by default ``"raw"`` or ``"color"``.
        limit: only the first images.
        force: replace what is there.
        device: where the network runs.
        progress: called after each image.
    """
    from n3net.io.files import refuse_existing
    from n3net.restoration.denoising import denoiser_for
    from n3net.restoration.raw import RAW, raw_denoiser_for

    entries = read_info(directory)[:limit]
    for entry in entries:
        refuse_existing(output / entry.name, force)
    net = raw_denoiser_for(model or RAW) if kind == "raw" else denoiser_for(model, gray=False)
    for entry in entries:
        crops = denoise_boxes(read_image(directory, entry, kind), entry, kind, net, device)
        write_bundle(output / entry.name, crops, kind, force)
        progress(entry.name)
    return len(entries)


WHY = (
    "Ours is a dash: the clean images are the benchmark's secret, and its site measures what "
    "'n3net eval dnd --data DIR -o BUNDLE' writes. On simulated raw data, 'n3net eval raw' measures here."
)


def table4() -> tuple[str, dict[str, Any]]:
    """The paper's Table 4 with dashes for ours and the reason, as Markdown and for JSON."""
    columns = ("Raw PSNR", "Raw SSIM", "sRGB PSNR", "sRGB SSIM")
    lines = [
        "**Table 4. Darmstadt Noise Dataset** (paper / ours)",
        "",
        f"| method | {' | '.join(columns)} |",
        "|---" * 5 + "|",
    ]
    for name, values in TABLE4.items():
        cells = [
            "–" if value is None else f"{value:.{4 if 'SSIM' in column else 2}f}"
            for value, column in zip(values, columns, strict=True)
        ]
        lines.append(f"| {name} | {' | '.join(f'{cell} / –' for cell in cells)} |")
    report = {
        "title": "Table 4",
        "paper": {name: dict(zip(columns, values, strict=True)) for name, values in TABLE4.items()},
        "results": [],
        "why": WHY,
    }
    return "\n".join([*lines, "", WHY]), report
