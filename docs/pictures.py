"""Makes the pictures of docs/gallery.md and docs/fast.md.

    python docs/pictures.py                      # all of them, into docs/images; a few minutes
    python docs/pictures.py denoised-color cells # some of them
    python docs/pictures.py --inputs FOLDER      # only what the commands of the gallery work on

A picture of the gallery is what the commands above it write: this script runs each block of the page in a folder with
the inputs, and takes the file with the picture's name. Photographs are scikit-image's, all free to use.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

DOCS = Path(__file__).parent
WIDEST = 1400  # pixels of a picture on a page
BLOCK = re.compile(
    r"```\n(?P<commands>.*?)```\n+!\[[^\]]*\]\(images/(?P<stem>[\w-]+)\.(?P<suffix>png|jpg)\)", re.DOTALL
)


def inputs(folder: Path) -> None:
    """The files that the gallery's commands read."""
    import skimage.data

    from n3net.imaging.resizing import resize
    from n3net.noise.sensor import NoiseLevel
    from n3net.raw.camera import Camera, photograph

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)

    def save(name: str, pixels: np.ndarray, **options: int) -> None:
        Image.fromarray(np.rint(np.clip(pixels, 0, 255)).astype(np.uint8)).save(folder / name, **options)

    for name, picture, sigma in (("camera", skimage.data.camera(), 25), ("cat", skimage.data.cat(), 50)):
        save(f"{name}.png", picture)
        save(f"noisy-{name}.png", picture + rng.normal(0, sigma, picture.shape))
    coffee = np.asarray(skimage.data.coffee()[:300, 100:500] / 255, np.float32)
    noisy, clean = photograph(coffee, Camera(smooth=0.1, smooth_colors=2, quality=92), NoiseLevel(4e-3, 1.5e-4), rng)
    save("phone.jpg", 255 * noisy, quality=95)
    save("phone-clean.png", 255 * clean)
    astronaut = skimage.data.astronaut()
    original = astronaut[30:270, 90:390]
    save("original.png", original)
    save("small.png", resize(original, factor=1 / 3))
    write_dng(folder / "night.dng", astronaut[:300, 60:460] / 255, 0.008, 0.00005, rng)
    for name, angle, place in (("left", -4.0, (-0.45, 0.0, 0.0)), ("right", 5.0, (0.5, -0.1, 0.35))):
        save(f"{name}.jpg", room(angle, place) + rng.normal(0, 3, (480, 640, 3)), quality=95)


def write_dng(path: Path, picture: np.ndarray, a: float, b: float, rng: np.random.Generator) -> None:
    """A picture as a sensor would have seen it, with noise of variance a y + b, behind a filter of red, green, blue."""
    import tifffile

    linear = np.where(picture <= 0.04045, picture / 12.92, ((picture + 0.055) / 1.055) ** 2.4)
    mosaic = linear[..., 1].copy()
    mosaic[::2, ::2], mosaic[1::2, 1::2] = linear[::2, ::2, 0], linear[1::2, 1::2, 2]
    mosaic += np.sqrt(a * mosaic + b) * rng.standard_normal(mosaic.shape)
    black, white = 512, 16383
    values = np.clip(np.rint(mosaic * (white - black) + black), 0, white).astype(np.uint16)
    to_camera = (3.2406, -1.5372, -0.4986, -0.9689, 1.8758, 0.0415, 0.0557, -0.204, 1.057)  # from XYZ: linear sRGB
    tags = [
        *((33421, 3, 2, (2, 2), True), (33422, 1, 4, bytes([0, 1, 1, 2]), True)),
        *((50706, 1, 4, bytes([1, 4, 0, 0]), True), (50708, 2, 0, "simulated", True)),
        *((50714, 3, 1, black, True), (50717, 4, 1, white, True)),
        (50721, 10, 9, tuple(n for value in to_camera for n in (round(10000 * value), 10000)), True),
        *((50728, 5, 3, (1, 1, 1, 1, 1, 1), True), (50778, 3, 1, 21, True)),
    ]
    with tifffile.TiffWriter(path) as file:
        file.write(values, photometric=32803, extratags=tags, metadata=None)


def room(angle: float, place: tuple[float, float, float]) -> np.ndarray:
    """Pictures on the walls of a room, seen by a camera of 640 x 480 pixels and a focal length of 600 of them."""
    import cv2
    import skimage.data

    k = np.array([[600, 0, 319.5], [0, 600, 239.5], [0, 0, 1.0]])
    turn = np.radians(angle)
    rotation = np.array([[np.cos(turn), 0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0, np.cos(turn)]])
    surfaces = [  # texture, then its upper left corner, its side to the right and its side down
        (np.tile(skimage.data.brick(), (2, 3)), (-6, -3, 8), (12, 0, 0), (0, 5.5, 0)),
        (np.tile(skimage.data.gravel(), (2, 3)), (-6, 2, 8), (12, 0, 0), (0, 0, -6)),
        (skimage.data.coffee(), (-3.4, -1.8, 5.2), (2.5, 0, 1.2), (0, 1.8, 0)),
        (skimage.data.astronaut(), (0.9, -1.7, 6.0), (2.2, 0, -0.9), (0, 2.2, 0)),
        (skimage.data.cat(), (-1.1, -0.2, 4.0), (1.9, 0, 0.3), (0, 1.25, 0.2)),
    ]
    seen = np.zeros((480, 640, 3), np.float32)
    for texture, corner, right, down in surfaces:
        color = np.dstack([texture] * 3) if texture.ndim == 2 else texture
        h, w = color.shape[:2]
        corners = np.array([corner, np.add(corner, right), np.add(corner, np.add(right, down)), np.add(corner, down)])
        points = (corners - place) @ rotation.T @ k.T
        pixels = np.float32(points[:, :2] / points[:, 2:])
        warp = cv2.getPerspectiveTransform(np.float32([(0, 0), (w, 0), (w, h), (0, h)]), pixels)
        covered = cv2.warpPerspective(np.ones((h, w), np.float32), warp, (640, 480))[..., None]
        seen = seen * (1 - covered) + cv2.warpPerspective(color.astype(np.float32), warp, (640, 480)) * covered
    return seen


def gallery(only: list[str]) -> None:
    """Runs the blocks of the gallery, and puts what they draw into docs/images."""
    blocks = [b for b in BLOCK.finditer((DOCS / "gallery.md").read_text()) if not only or b["stem"] in only]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs(folder)
        for block in blocks:
            for line in block["commands"].replace("\\\n", " ").splitlines():
                print(f"$ {line}", flush=True)
                subprocess.run(here(line), shell=True, cwd=folder, check=True)
            keep(Image.open(folder / f"{block['stem']}.png"), DOCS / "images" / f"{block['stem']}.{block['suffix']}")


def here(line: str) -> str:
    """A command of the page as one of this interpreter and this repository."""
    line = re.sub(r"^n3net\b", f"{sys.executable} -m n3net", line)
    return re.sub(r"^python (?=examples/)", f"{sys.executable} {DOCS.parent}/", line)


def keep(picture: Image.Image, path: Path) -> None:
    if picture.width > WIDEST:
        picture = picture.resize((WIDEST, round(picture.height * WIDEST / picture.width)), Image.Resampling.LANCZOS)
    picture.convert("RGB").save(path, **({"quality": 85} if path.suffix == ".jpg" else {"optimize": True}))
    print(f"wrote {path}")


def cells(path: Path) -> None:
    """Patches that overlap are made of the same cells: what is shared, for distances and for averages."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4.1), width_ratios=[1, 1, 0.9])
    blue, orange, green = "#2b6cb0", "#dd6b20", "#2f855a"
    for axis, title in ((left, "a patch is 2 x 2 cells"), (middle, "a pair of cells serves four pairs of patches")):
        axis.set(xlim=(-0.1, 8.1), ylim=(6.1, -0.1), aspect="equal", title=title)
        axis.axis("off")
        for x in range(8):
            for y in range(5):
                axis.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor="0.75", linewidth=0.8))

    def patch(axis: plt.Axes, x: float, y: float, color: str, cells: int = 2, **style: object) -> None:
        axis.add_patch(Rectangle((x, y), cells, cells, fill=False, edgecolor=color, linewidth=2.2, **style))

    def cell(axis: plt.Axes, x: int, y: int, color: str) -> None:
        axis.add_patch(Rectangle((x, y), 1, 1, facecolor=color, alpha=0.35))

    for x, y, color, name in ((1, 1, blue, "q"), (5, 3, orange, "p")):
        patch(left, x, y, color)
        for u in range(4):
            cell(left, x + u % 2, y + u // 2, color)
            left.text(x + u % 2 + 0.5, y + u // 2 + 0.5, f"{name}{u + 1}", ha="center", va="center", fontsize=10)
    left.text(4, 5.6, "d(q, p) = d(q1, p1) + d(q2, p2) + d(q3, p3) + d(q4, p4)", ha="center", fontsize=9)
    for x, y, color in ((2, 2, blue), (5, 3, orange)):
        cell(middle, x, y, color)
        for n, (dx, dy) in enumerate(((0, 0), (-1, 0), (0, -1), (-1, -1))):
            patch(middle, x + dx + 0.05 * n, y + dy + 0.05 * n, color, linestyle=["-", "--", "-.", ":"][n])
    middle.text(4, 5.6, "the same line: a query and one of its candidates", ha="center", fontsize=9)

    pixels, channels, slots, k = 25, 8, 224, 7  # of a cell; the paper's block
    counts = {"distances": 4 * slots * channels * pixels, "neighbours": 4 * k * slots * channels * pixels}
    for row, number in enumerate(counts.values()):
        right.barh(row - 0.19, number / pixels, 0.36, color=orange, label="patch by patch" if not row else None)
        right.barh(row + 0.19, number / pixels / 4, 0.36, color=green, label="cell by cell" if not row else None)
        for offset, value in ((-0.19, number / pixels), (0.19, number / pixels / 4)):
            right.text(value, row + offset, f" {value:,.0f}", va="center", fontsize=9)
    right.set(yticks=range(2), yticklabels=counts, title="multiplications for a pixel", xlim=(0, 66000))
    right.invert_yaxis()
    right.set_xticks([])
    right.spines[["top", "right", "bottom"]].set_visible(False)
    right.legend(frameon=False, fontsize=9, loc="upper right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def winograd(path: Path) -> None:
    """What Winograd's algorithm multiplies, and what stays in a cache."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyArrowPatch, Rectangle

    figure, axis = plt.subplots(figsize=(11, 3.4))
    axis.set(xlim=(0, 33), ylim=(8.6, -1.4), aspect="equal")
    axis.axis("off")
    grids = [  # where, how many a side, colour, title, below
        (0, 6, "#2b6cb0", "inputs", "6 x 6 x channels"),
        (9, 6, "#805ad5", "transformed", "mostly additions"),
        (18, 6, "#dd6b20", "times weights", "36 products, not 144"),
        (27, 4, "#2f855a", "outputs", "4 x 4: bias, ReLU, skip"),
    ]
    for x, n, color, title, below in grids:
        top = (6 - n) / 2
        for i in range(n * n):
            axis.add_patch(Rectangle((x + i % n, top + i // n), 1, 1, facecolor=color, alpha=0.4, edgecolor="white"))
        axis.text(x + n / 2, top - 0.35, title, ha="center", fontsize=11)
        axis.text(x + n / 2, top + n + 0.8, below, ha="center", fontsize=9.5)
    for x in (6.3, 15.3, 24.3):
        axis.add_patch(FancyArrowPatch((x, 3), (x + 2.4, 3), arrowstyle="-|>", mutation_scale=16, color="0.3"))
    axis.add_patch(Rectangle((8.3, -1.2), 16.6, 9.6, fill=False, linestyle="--", edgecolor="0.4"))
    axis.text(
        16.5, 8.15, "24 tiles at a time: never leaves the second-level cache", ha="center", fontsize=9.5, color="0.3"
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)


DRAWN: dict[str, Callable[[Path], None]] = {"cells": cells, "winograd": winograd}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of the pictures to make; all by default")
    parser.add_argument("--inputs", type=Path, metavar="FOLDER", help="only write the inputs of the gallery, there")
    arguments = parser.parse_args()
    if arguments.inputs:
        inputs(arguments.inputs)
        return
    for name, draw in DRAWN.items():
        if not arguments.names or name in arguments.names:
            draw(DOCS / "images" / f"{name}.png")
            print(f"wrote {DOCS / 'images' / name}.png")
    if set(arguments.names) - set(DRAWN) or not arguments.names:
        gallery([name for name in arguments.names if name not in DRAWN])


if __name__ == "__main__":
    main()
