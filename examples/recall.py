"""Looking up an earlier moment: N3Block1d against a convolution and soft attention of about the same size.

A sequence names 24 keys with their values, one after the other, then asks for the values of the same keys in another
order, each key with a little noise. Whoever answers must find the moment at which the key was named. Prints the mean
squared error of the answers (1 is that of answering 0 always) and writes recall.png: the errors while learning.
"""

from __future__ import annotations

import argparse
import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from n3net.nn import N3Block1d

PAIRS, KEY, VALUE = 24, 6, 2
CHANNELS = KEY + VALUE


def sequences(count: int) -> tuple[Tensor, Tensor]:
    """Keys beside values, then keys beside zeros, (count, 2 PAIRS, CHANNELS), and the answers (count, PAIRS, VALUE)."""
    keys, values = torch.randn(count, PAIRS, KEY), torch.randn(count, PAIRS, VALUE)
    order = torch.rand(count, PAIRS).argsort(1)[..., None]
    asked = keys.gather(1, order.expand(-1, -1, KEY)) + 0.1 * torch.randn(count, PAIRS, KEY)
    said, question = torch.cat([keys, values], 2), F.pad(asked, (0, VALUE))
    return torch.cat([said, question], 1), values.gather(1, order.expand(-1, -1, VALUE))


class Convolution(nn.Module):
    """Causal convolutions that see the last 49 moments."""

    def __init__(self, features: int = 40) -> None:
        super().__init__()
        widths = [CHANNELS, features, features, features]
        self.layers = nn.ModuleList(nn.Conv1d(a, b, 17) for a, b in pairwise(widths))
        self.head = nn.Linear(features, VALUE)

    def forward(self, x: Tensor) -> Tensor:
        h = x.transpose(1, 2)
        for layer in self.layers:
            h = F.relu(layer(F.pad(h, (16, 0))))
        return self.head(h.transpose(1, 2))


class Attention(nn.Module):
    """One head of causal attention over all earlier moments, between perceptrons."""

    def __init__(self, features: int = 64) -> None:
        super().__init__()
        self.query, self.key = (
            nn.Sequential(nn.Linear(CHANNELS, features), nn.ReLU(), nn.Linear(features, features)) for _ in range(2)
        )
        self.head = nn.Sequential(nn.Linear(2 * CHANNELS, features), nn.ReLU(), nn.Linear(features, VALUE))

    def forward(self, x: Tensor) -> Tensor:
        found = F.scaled_dot_product_attention(self.query(x), self.key(x), x, is_causal=True)
        return self.head(torch.cat([x, found], 2))


class Neighbours(nn.Module):
    """An N3 block with one neighbour among the earlier moments, before a perceptron."""

    def __init__(self, features: int = 40) -> None:
        super().__init__()
        self.block = N3Block1d(CHANNELS, k=1, window=2 * PAIRS, causal=True, features=features, size=1)
        self.head = nn.Sequential(nn.Linear(2 * CHANNELS, features), nn.ReLU(), nn.Linear(features, VALUE))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x))


def learn(net: nn.Module, steps: int) -> list[float]:
    """The error of the answers at each step, on sequences that were never seen before."""
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps + 1)
    errors = []
    for _ in range(steps):
        x, answers = sequences(32)
        loss = (net(x)[:, PAIRS:] - answers).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        errors.append(loss.item())
    return errors


def compare(steps: int = 800, picture: str | None = None) -> dict[str, float]:
    """The error of each network over its last tenth of steps."""
    curves = {}
    for net in (Convolution, Attention, Neighbours):
        torch.manual_seed(0)
        model = net()
        size = sum(p.numel() for p in model.parameters())
        curves[f"{net.__name__.lower()} ({size:,} weights)"] = learn(model, steps)
    if picture:
        draw(curves, picture)
    last = max(1, steps // 10)
    return {name: math.fsum(curve[-last:]) / last for name, curve in curves.items()}


def draw(curves: dict[str, list[float]], file: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    for name, curve in curves.items():
        smooth = torch.tensor(curve).unfold(0, min(20, len(curve)), 1).mean(1)
        plt.plot(smooth, label=name)
    plt.yscale("log"), plt.xlabel("step"), plt.ylabel("mean squared error"), plt.legend()
    plt.title("Values of keys that were named earlier"), plt.savefig(file, dpi=100), plt.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=800)
    for name, error in compare(parser.parse_args().steps, "recall.png").items():
        print(f"{name:32s} mean squared error {error:.4f}")
    print("written: recall.png")


if __name__ == "__main__":
    main()
