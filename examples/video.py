"""Denoising a video: windows that reach into the frames before and behind, against windows within a frame.

A texture moves behind a window, two pixels each frame, under heavy noise: what one frame has lost, its neighbours show
elsewhere. Two networks that differ in one number, ``frames``, learn for the same number of steps. Prints their PSNR and
writes video.png.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from n3net.nn import N3Block2d

SIGMA = 0.3


def videos(count: int, frames: int = 3, size: int = 32) -> Tensor:
    """A texture that moves, (count, frames, 1, size, size) in [0, 1]."""
    room = size + 2 * frames + 2
    rough = torch.rand(count, 1, room // 2, room // 2)
    texture = (nn.functional.interpolate(rough, (room, room), mode="bicubic") > 0.5).float()
    steps = torch.randint(-1, 2, (count, 2)) * 2
    out = []
    for video, (dy, dx) in zip(texture, steps.tolist(), strict=True):
        y, x = (room - size) // 2, (room - size) // 2
        parts = [(y + (t - frames // 2) * dy, x + (t - frames // 2) * dx) for t in range(frames)]
        out.append(torch.stack([video[:, r : r + size, c : c + size] for r, c in parts]))
    return torch.stack(out)


class Denoiser(nn.Module):
    """A few convolutions, an N3 block, a few more."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3, padding=1))
        self.block = N3Block2d(4, 3, 4, 2, 7, frames=frames, features=16)
        self.behind = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.before(x.flatten(0, 1)).unflatten(0, x.shape[:2])  # (B, T, 4, H, W)
        found = self.block(h) if self.block.frames else self.block(h.flatten(0, 1)).unflatten(0, x.shape[:2])
        return x + self.behind(found.flatten(0, 1)).unflatten(0, x.shape[:2])


def psnr(a: Tensor, b: Tensor) -> float:
    return float(-10 * (a - b).square().mean().log10())


def compare(steps: int = 150, picture: str | None = None) -> dict[str, float]:
    torch.manual_seed(2)
    clean = videos(16)
    noisy = clean + SIGMA * torch.randn_like(clean)
    scores, results = {"noisy": psnr(noisy, clean)}, [noisy]
    for frames in (0, 1):
        torch.manual_seed(0)
        net = Denoiser(frames)
        optimizer = torch.optim.Adam(net.parameters(), 3e-3)
        for _ in range(steps):
            x = videos(2)
            loss = (net(x + SIGMA * torch.randn_like(x)) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            results.append(net.eval()(noisy))
        scores["with neighbouring frames" if frames else "each frame alone"] = psnr(results[-1], clean)
    if picture:
        from PIL import Image

        row = torch.cat([r[0, 1, 0] for r in [*results, clean]], 1).clamp(0, 1)
        height, width = row.shape
        image = Image.fromarray((row * 255).byte().numpy())
        image.resize((6 * width, 6 * height), Image.Resampling.NEAREST).save(picture)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    for name, score in compare(parser.parse_args().steps, "video.png").items():
        print(f"{name:26s} {score:.2f} dB")
    print("noisy, each frame alone, with neighbouring frames, clean: video.png")


if __name__ == "__main__":
    main()
