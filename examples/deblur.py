"""A denoiser as a prior: a blurred photograph made sharp by half-quadratic splitting, against Wiener's filter.

    python examples/deblur.py                     # of scikit-image's cat, or of any photograph: deblur.py photo.jpg

The photograph x explains what was seen, y = k * x + noise, and looks like a photograph. Both in turns: the x nearest to
z that explains y, which Fourier transforms give in closed form, and the z that the network makes of x when told that x
has noise of level σ_i, from strong to as weak as y's. One network for all levels is what it needs. (The scheme is that
of Zhang et al., "Plug-and-Play Image Restoration with Deep Denoiser Prior", 2021.) Prints PSNR and writes deblur.png:
what was seen, Wiener's filter with its constant at its best, this, and the truth.
"""

from __future__ import annotations

import argparse

import numpy as np
from PIL import Image

import n3net


def deblur(seen: np.ndarray, kernel: np.ndarray, sigma: float, rounds: int = 8, trust: float = 0.23) -> np.ndarray:
    """A photograph (H, W, 3) of [0, 1] from its blurred self with noise of ``sigma``, 0..255."""
    y, z = np.fft.fft2(seen, axes=(0, 1)), seen
    for level in np.geomspace(49, sigma, rounds):  # what is left to remove, in gray levels
        alpha = trust * (sigma / level) ** 2
        x = np.fft.ifft2(
            (kernel.conj() * y + alpha * np.fft.fft2(z, axes=(0, 1))) / (abs(kernel) ** 2 + alpha), axes=(0, 1)
        )
        z = n3net.denoise(x.real.astype(np.float32), level, "color")
    return z.clip(0, 1)


def wiener(seen: np.ndarray, kernel: np.ndarray, noise: float) -> np.ndarray:
    """Wiener's filter, the power of noise against that of the photograph taken as the same in all frequencies."""
    y = np.fft.fft2(seen, axes=(0, 1))
    return np.fft.ifft2(kernel.conj() * y / (abs(kernel) ** 2 + noise), axes=(0, 1)).real.clip(0, 1)


def compare(clean: np.ndarray, path: str, sigma: float = 2.55, width: float = 1.6, rounds: int = 8) -> dict[str, float]:
    """PSNR of what is seen, of Wiener's filter at its best, and of the network."""
    height, columns = clean.shape[:2]
    rows, cols = (np.exp(-0.5 * (np.fft.fftfreq(n) * n / width) ** 2) for n in (height, columns))
    kernel = np.fft.fft2(np.outer(rows, cols) / (rows.sum() * cols.sum()))[..., None]
    blurred = np.fft.ifft2(kernel * np.fft.fft2(clean, axes=(0, 1)), axes=(0, 1)).real
    seen = blurred + np.random.default_rng(0).normal(0, sigma / 255, clean.shape)
    best = max((wiener(seen, kernel, 10.0**e) for e in np.arange(-4, -0.9, 0.25)), key=lambda x: psnr(x, clean))
    results = {"seen": seen.clip(0, 1), "Wiener": best, "N3Net": deblur(seen, kernel, sigma, rounds)}
    sheet = np.concatenate([*results.values(), clean], 1)
    Image.fromarray((sheet * 255).round().astype(np.uint8)).save(path)
    return {name: psnr(x, clean) for name, x in results.items()}


def psnr(x: np.ndarray, clean: np.ndarray) -> float:
    return float(-10 * np.log10(np.square(x - clean).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("photo", nargs="?", help="a photograph (default: scikit-image's cat)")
    parser.add_argument("-o", "--output", default="deblur.png")
    options = parser.parse_args()
    if options.photo is None:
        from skimage.data import chelsea

        picture = chelsea()[20:276, 90:346]
    else:
        picture = np.asarray(Image.open(options.photo).convert("RGB"))
    for name, value in compare(picture / 255, options.output).items():
        print(f"{name}: {value:.2f} dB")


if __name__ == "__main__":
    main()
