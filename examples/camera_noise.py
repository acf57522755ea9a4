"""The noise that the network `photo` is trained on: what it looks like, and how it compares with that of real cameras.

    python examples/camera_noise.py                        # writes camera_noise.jpg, of scikit-image's astronaut
    python examples/camera_noise.py --simulate photos/     # strength and correlations of noise simulated on photographs
    python examples/camera_noise.py --measure CC15/        # those of real noise: pairs NAME_real and NAME_mean

The last two look at the flatter half of each picture, so that what they measure is noise.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from n3net.evaluation.real import pairs
from n3net.imaging.comparison import Panel, side_by_side
from n3net.noise.sensor import NoiseLevel
from n3net.raw.camera import Camera, draw_camera, draw_level, photograph

NAMES = ["R σ", "G σ", "B σ", *(f"{c}{lag}" for c in "RGB" for lag in (1, 2, 3, 4)), "R, G", "B, G"]


def show(path: Path) -> None:
    """A part of a photograph as a camera would have taken it, at three noise levels, enlarged."""
    import skimage.data

    picture = np.asarray(skimage.data.astronaut()[60:200, 150:290] / 255, np.float32)
    camera = Camera(smooth=0.1, smooth_colors=2, quality=92)
    panels = [Panel("without noise", photograph(picture, camera, NoiseLevel(0, 0), np.random.default_rng(0))[0])]
    for a in (4e-4, 2e-3, 1e-2):
        noisy, clean = photograph(picture, camera, NoiseLevel(a, (3 * a) ** 2), np.random.default_rng(0))
        panels.append(Panel(f"a = {a:g}: sigma {255 * (noisy - clean).std():.1f}", noisy))
    enlarged = [replace(p, pixels=np.rint(255 * p.pixels).astype(np.uint8).repeat(3, 0).repeat(3, 1)) for p in panels]
    side_by_side(enlarged).save(path, quality=88)
    print(f"wrote {path}")


def figures(noisy: np.ndarray, clean: np.ndarray) -> list[float]:
    """Standard deviations in gray levels, correlations 1 to 4 pixels away, and those of red and blue with green."""
    window = np.lib.stride_tricks.sliding_window_view(np.pad(clean.mean(-1), 4, mode="reflect"), (9, 9))
    texture = window.std((-1, -2))
    flat = texture <= np.median(texture)  # (H, W)
    d = noisy - clean
    d = (d - d[flat].mean(0)) / d[flat].std(0)
    near = []
    for c in range(3):
        for lag in (1, 2, 3, 4):
            across = (d[:, lag:, c] * d[:, :-lag, c])[flat[:, lag:] & flat[:, :-lag]].mean()
            down = (d[lag:, :, c] * d[:-lag, :, c])[flat[lag:] & flat[:-lag]].mean()
            near.append((across + down) / 2)
    shared = [(d[flat][:, c] * d[flat][:, 1]).mean() for c in (0, 2)]
    return [*(noisy - clean)[flat].std(0), *near, *shared]


def read(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"), np.float32)


def tell(rows: list[list[float]]) -> None:
    print(f"{len(rows)} pictures: mean, and 5, 25, 50, 75 and 95 % of the pictures below")
    for name, values in zip(NAMES, np.array(rows).T, strict=True):
        spread = " ".join(f"{q:6.2f}" for q in np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95]))
        print(f"{name:5} {values.mean():6.2f}   {spread}")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--simulate", type=Path, metavar="DIR", help="a directory of photographs with little noise")
parser.add_argument("--measure", type=Path, metavar="DIR", help="a directory of pairs NAME_real and NAME_mean")
arguments = parser.parse_args()
if arguments.measure:
    tell([figures(read(noisy), read(clean)) for noisy, clean in pairs(arguments.measure)])
elif arguments.simulate:
    rng, found = np.random.default_rng(0), []
    for path in sorted(p for p in arguments.simulate.iterdir() if p.suffix in (".jpg", ".png")):
        picture = read(path)[:256, :256] / 255
        noisy, clean = photograph(picture, draw_camera(rng), draw_level(rng), rng)
        found.append(figures(255 * noisy, 255 * clean))
    tell(found)
else:
    show(Path("camera_noise.jpg"))
