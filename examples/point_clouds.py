"""Point clouds: which part of a made-up shape a point belongs to, with an N3 block against hard KNN.

A shape is two of four parts (ball, stick, plate, ring) next to each other, with points that are scattered around their
places. A point alone says little; its neighbours tell what it lies on. Both networks are the same but for ``rule``: a
hard choice gives the embedding no gradient, so it chooses by what it was born with. Prints the shares of points that
were named rightly and writes point_clouds.png.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn

from n3net.nn import N3Block
from n3net.selection import Rule

PARTS = ("ball", "stick", "plate", "ring")
POINTS = 48  # of a part


def part(kind: int) -> Tensor:
    """Points on a part, (POINTS, 3), turned and scattered."""
    u, v = torch.rand(2, POINTS)
    angle = 2 * math.pi * u
    if kind == 0:
        p = nn.functional.normalize(torch.randn(POINTS, 3), dim=1) * 0.5
    elif kind == 1:
        p = torch.stack([1.6 * v - 0.8, 0.1 * angle.cos(), 0.1 * angle.sin()], 1)
    elif kind == 2:
        p = torch.stack([u - 0.5, v - 0.5, torch.zeros(POINTS)], 1)
    else:
        p = torch.stack([0.5 * angle.cos(), 0.5 * angle.sin(), torch.zeros(POINTS)], 1)
    turn = torch.rand(()) * 2 * math.pi  # around the vertical axis
    x, y, z = p.unbind(1)
    p = torch.stack([x * turn.cos() - y * turn.sin(), x * turn.sin() + y * turn.cos(), z], 1)
    return p + 0.03 * torch.randn(POINTS, 3)


def shapes(count: int) -> tuple[Tensor, Tensor]:
    """Points (count, 2 POINTS, 3) and the parts that they belong to (count, 2 POINTS)."""
    points, names = [], []
    for _ in range(count):
        kinds = torch.randperm(4)[:2].tolist()
        offset = torch.tensor([[1.0, 0, 0]])
        points.append(torch.cat([part(kinds[0]) - offset, part(kinds[1]) + offset]))
        names.append(torch.tensor(kinds).repeat_interleave(POINTS))
    return torch.stack(points), torch.stack(names)


class Segmenter(nn.Module):
    """Two N3 blocks, on places and then on features, each with a perceptron behind it."""

    def __init__(self, rule: Rule, k: int = 8) -> None:
        super().__init__()
        self.first = N3Block(3, k, rule=rule, features=32)
        self.between = nn.Sequential(nn.Linear(3 * k, 64), nn.ReLU(), nn.Linear(64, 12), nn.ReLU())
        self.second = N3Block(12, k, rule=rule, features=32)
        self.behind = nn.Sequential(nn.Linear(12 * (k + 1), 64), nn.ReLU(), nn.Linear(64, len(PARTS)))

    def forward(self, x: Tensor) -> Tensor:
        found = self.first(x, match_on=x)  # the nearest in space: (B, N, (k + 1) 3)
        near = found[..., 3:] - x.repeat(1, 1, self.first.k)  # where they lie, seen from the point
        return self.behind(self.second(self.between(near)))


def compare(steps: int = 500, seeds: int = 3, picture: str | None = None) -> dict[str, list[float]]:
    """The share of points that were named rightly, of each network and seed."""
    torch.manual_seed(100)
    points, names = shapes(60)
    shares: dict[str, list[float]] = {"hard KNN": [], "N3": []}
    said = {"truth": names[0]}
    for label, rule in (("hard KNN", "hard"), ("N3", "continuous")):
        for seed in range(seeds):
            torch.manual_seed(seed)
            net = Segmenter(rule)  # type: ignore[arg-type]
            optimizer = torch.optim.Adam(net.parameters(), 3e-3)
            for _ in range(steps):
                x, y = shapes(8)
                loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                answers = net(points).argmax(2)
            shares[label].append((answers == names).float().mean().item())
            said[label] = answers[0]
    if picture:
        draw(points[0], said, picture)
    return shares


def draw(points: Tensor, named: dict[str, Tensor], file: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(10, 3.6))
    for i, (title, names) in enumerate(named.items()):
        axis = figure.add_subplot(1, 3, i + 1, projection="3d")
        axis.scatter(*points.T, c=names, cmap="tab10", vmin=0, vmax=9, s=12)
        axis.set_title(title), axis.set_axis_off(), axis.set_box_aspect((2, 1, 1))
    figure.savefig(file, dpi=100), plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    for name, shares in compare(parser.parse_args().steps, picture="point_clouds.png").items():
        print(f"{name:10s} {', '.join(f'{100 * share:.1f} %' for share in shares)} of the points, by seed")
    print("written: point_clouds.png")


if __name__ == "__main__":
    main()
