"""Removal of the noise of photographs as cameras develop them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from n3net.errors import UserError
from n3net.imaging.color import LUMA
from n3net.models import Denoiser, Network
from n3net.models.cbdnet import cbdnet_loss
from n3net.noise.curve import known_map, noise_map
from n3net.noise.sensor import NoiseLevel
from n3net.raw.camera import MARGIN, draw_camera, draw_level, photograph
from n3net.tasks import build
from n3net.tasks.data import Batch
from n3net.tasks.images import LOSS_PIXELS, SHOWN, ImageOptions, ImageTask, clipped_psnr, relative_error

Floats = NDArray[np.float32]

LEVELS = {"low": NoiseLevel(4e-4, 1e-6), "high": NoiseLevel(4e-3, 1e-4)}  # of validation
BLOCK = 16  # pixels of JPEG's grid, with colours at half resolution
QUIET = 0.5 / 255  # noise that counts in the loss at least
MOST = 75.0  # gray levels that a network is told at most


@dataclass(frozen=True)
class PhotoOptions(ImageOptions):
    """The section ``data`` of a config, beside what all tasks on images have.

    Args:
        log_a: range of log10 a of the sensor's noise, see :func:`n3net.raw.camera.draw_level`.
        gray: part of the crops that become black and white photographs.
        map_error: standard deviation of the logarithm of what the network is told of the noise, against the truth.
        map_texture: gray levels of texture that are taken for noise: the standard deviation of what is added, squared,
            to what the network is told.
    """

    log_a: tuple[float, float] = (-4.5, -2.0)
    gray: float = 0.05
    map_error: float = 0.2
    map_texture: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.log_a[0] > self.log_a[1]:
            raise ValueError(f"log_a: expected the ends of a range, the smaller first, got {self.log_a}")
        if not 0 <= self.gray <= 1:
            raise ValueError(f"gray: expected a part, 0 to 1, got {self.gray}")
        for name in ("map_error", "map_texture"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected 0 or more, got {getattr(self, name)}")


class PhotoDenoising(ImageTask):
    """Crops of pictures as a camera would have taken them, with noise and without, and a map of the noise.

    In use, the map is estimated from the photograph. In training the truth is known, and is told with such errors as
    the estimate has: a factor, and texture that is taken for noise. Validation estimates it.
    """

    Options = PhotoOptions
    estimates = False  # whether the network finds out the noise itself

    def __init__(self, options: PhotoOptions, model: dict[str, Any], seed: int) -> None:
        self.side = options.crop + 2 * MARGIN + BLOCK  # what is simulated; the crop is cut out of it
        super().__init__(options, model, seed, 3, self.side)

    def build_model(self) -> nn.Module:
        model: Denoiser = build(self.model, Denoiser)
        self.estimates = isinstance(model.net, Network) and model.net.estimates_noise
        if not (model.noise_map or self.estimates) or model.channels != 3:
            raise UserError(
                f"model: {self.model['name']} cannot be told the noise of colour photographs; "
                "n3net and dncnn-17 can, with channels: 3 and noise_map: true, and cbdnet finds it out itself"
            )
        return model

    def item(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        options: PhotoOptions = self.options
        picture = self.crop(number, self.side, rng)  # (H, W, 3)
        noisy, clean = photograph(picture, draw_camera(rng), draw_level(rng, options.log_a), rng)
        if rng.random() < options.gray:
            noisy, clean = _gray(noisy), _gray(clean)
        sigma = self._with_errors(known_map(noisy, clean), rng)  # (H, W)
        top, left = rng.integers(MARGIN, MARGIN + BLOCK, 2)  # any place on JPEG's grid
        part = (slice(top, top + options.crop), slice(left, left + options.crop))
        return {"clean": _planes(clean[part]), "noisy": _planes(noisy[part]), "sigma": sigma[part][None].copy()}

    def _with_errors(self, sigma: Floats, rng: np.random.Generator) -> Floats:
        factor = np.exp(rng.normal(0, self.options.map_error))
        texture = rng.normal(0, self.options.map_texture)
        return np.minimum(np.sqrt(np.square(factor * sigma) + texture**2), MOST).astype(np.float32)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        clean, noisy = batch["clean"], batch["noisy"]
        noise = (noisy - clean).square().flatten(1).mean(1).clamp(min=QUIET**2)  # (B,)
        if self.estimates:
            out, estimate = model(noisy, both=True)
            truth = (batch["sigma"] / 255).expand_as(estimate)
            return LOSS_PIXELS * cbdnet_loss(out, clean, estimate, truth), relative_error(out, clean, noise)[1]
        return relative_error(model(noisy, batch["sigma"]), clean, noise)

    def validate(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, float]:
        device = next(model.parameters()).device
        picture = self.validation[index].astype(np.float32) / np.float32(255)
        camera, scores = draw_camera(rng), {}
        for name, level in LEVELS.items():
            noisy, clean = photograph(picture, camera, level, rng)
            sigma = torch.from_numpy(noise_map(noisy)[0])[None, None]  # (1, 1, H, W)
            x, y = (torch.from_numpy(_planes(image))[None].to(device) for image in (noisy, clean))  # (1, 3, H, W)
            scores[f"psnr-{name}"] = clipped_psnr(model(x, sigma.to(device)), y)
        return {"psnr": sum(scores.values()) / len(scores), **scores}

    def show(self, model: nn.Module, index: int, rng: np.random.Generator) -> dict[str, Tensor]:
        device = next(model.parameters()).device
        picture = self.validation[index][:SHOWN, :SHOWN].astype(np.float32) / np.float32(255)
        noisy, clean = photograph(picture, draw_camera(rng), LEVELS["high"], rng)
        sigma = torch.from_numpy(noise_map(noisy)[0])[None, None].to(device)  # (1, 1, H, W)
        x, y = (torch.from_numpy(_planes(image))[None].to(device) for image in (noisy, clean))  # (1, 3, H, W)
        return {"noisy": x[0], "denoised": model(x, sigma)[0], "clean": y[0]}


def _gray(rgb: Floats) -> Floats:
    """The luminance in all three channels, in steps of 8 bits."""
    gray = np.rint(255 * (rgb @ np.array(LUMA, rgb.dtype))) / np.float32(255)
    return np.repeat(gray[..., None], 3, -1)


def _planes(image: Floats) -> Floats:
    """(H, W, C) -> (C, H, W)."""
    return np.ascontiguousarray(image.transpose(2, 0, 1))
