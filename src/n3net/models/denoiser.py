"""A network and the noise level it is told."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from n3net.models.interface import Model


class Denoiser(Model):
    """Removes noise from images in [0, 1] with any network for images.

    Args:
        net: (B, channels, H, W) or, with a noise map, (B, channels + 1, H, W) -> (B, channels, H, W).
        channels: of the image, 1 or 3.
        noise_map: whether the net is given the noise level, as one more channel behind the image's.
        relative: whether what the net adds to the image counts in units of the noise level, so that weak and strong
            noise ask the same of it, and an image without noise stays as it is.
    """

    purpose = "denoising"

    def __init__(self, net: nn.Module, channels: int = 1, noise_map: bool = False, relative: bool = False) -> None:
        super().__init__()
        if relative and not noise_map:
            raise ValueError("relative: only with a noise map")
        self.net, self.channels, self.noise_map, self.relative = net, channels, noise_map, relative

    @staticmethod
    def ends(**settings: Any) -> tuple[int, int]:
        return settings["channels"] + settings["noise_map"], settings["channels"]

    def example(self, generator: torch.Generator) -> Tensor:
        ramp = torch.linspace(0, 1, 60).expand(1, self.channels, 60, 60)
        return self(ramp + 0.1 * torch.randn(ramp.shape, generator=generator), sigma=25.0)

    def forward(self, x: Tensor, sigma: float | Tensor | None = None, both: bool = False) -> Any:
        """Denoise.

        Args:
            x: noisy image (B, channels, H, W), in [0, 1].
            sigma: standard deviation of the noise in gray levels of 0..255, a number, (B,) or (B, 1, H, W); ignored by
                a net without noise map, which knows one level only.
            both: of a net that estimates the noise, as CBDNet does: the estimate, too, for training.
        """
        told = self.told(x, sigma)
        if both:
            return self.net.both(told)  # type: ignore[operator]
        return self.finish(self.net(told), told)

    def told(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """What the net is given for an image, pixel by pixel."""
        if x.dim() != 4 or x.shape[1] != self.channels:
            raise ValueError(f"x: expected shape (B, {self.channels}, H, W), got {tuple(x.shape)}")
        if not self.noise_map:
            return x
        if sigma is None:
            raise ValueError("sigma: this model needs the noise level, in gray levels of 0..255")
        level = torch.as_tensor(sigma, dtype=x.dtype, device=x.device) / 255
        level = level.reshape(-1, 1, 1, 1) if level.dim() < 4 else level
        return torch.cat([x, level.expand(x.shape[0], 1, *x.shape[-2:])], 1)  # (B, channels + 1, H, W)

    def finish(self, out: Tensor, told: Tensor) -> Tensor:
        """The denoised image from what the net made of what it was told, pixel by pixel."""
        if not self.relative:
            return out
        x, level = told[:, : self.channels], told[:, self.channels :]
        return torch.lerp(x, out.to(x.dtype), level)
