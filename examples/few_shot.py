"""Few-shot classification of digits: N3's neighbours with a learned temperature against 1-NN and prototypes.

A metric is learned on the digits 0 to 5, and questions are about 6 to 9, of which 5 examples each are shown. Prints how
many answers are right and writes few_shot.png: one question, and the weights that its neighbours got. Needs
scikit-learn for its digits.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

import n3net

SHOTS, QUESTIONS = 5, 10


def digits() -> tuple[Tensor, Tensor]:
    """Images (1797, 64) in [0, 1] and what they show."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)


def episode(images: Tensor, labels: Tensor, classes: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Examples and questions, an equal number of each class: images (N, 64) and numbers of the classes (N,), twice."""
    shown, asked = [], []
    for c in classes:
        own = images[labels == c]
        own = own[torch.randperm(len(own))[: SHOTS + QUESTIONS]]
        shown.append(own[:SHOTS])
        asked.append(own[SHOTS:])
    answer = torch.arange(len(classes))
    return torch.cat(shown), answer.repeat_interleave(SHOTS), torch.cat(asked), answer.repeat_interleave(QUESTIONS)


class Compare(nn.Module):
    """An embedding, and from embedded examples and questions to probabilities."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.embed = nn.Linear(64, 64)  # what is learned is a metric, which begins as that of pixels
        nn.init.eye_(self.embed.weight)
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def forward(self, shown: Tensor, classes: Tensor, asked: Tensor) -> Tensor:
        e, q = self.embed(shown), self.embed(asked)
        one_hot = nn.functional.one_hot(classes).to(e.dtype)  # (N, classes)
        if self.how == "prototypes":
            prototypes = one_hot.T @ e / SHOTS
            return torch.softmax(-torch.cdist(q, prototypes).square() * self.log_temperature.exp(), 1)
        t = self.log_temperature.exp()
        neighbours = n3net.nearest(
            q[None], e[None], 3, t, values=one_hot[None], distance="squared"
        )  # (1, Q, 3, classes)
        return neighbours[0].mean(1)


def learn(how: str, images: Tensor, labels: Tensor, steps: int) -> Compare:
    torch.manual_seed(0)
    net = Compare(how)
    optimizer = torch.optim.Adam(
        [{"params": net.embed.parameters(), "lr": 3e-4}, {"params": [net.log_temperature]}], 1e-2
    )
    for _ in range(steps):
        shown, classes, asked, answers = episode(images, labels, torch.randperm(6)[:4].tolist())
        loss = nn.functional.nll_loss(net(shown, classes, asked).clamp(min=1e-6).log(), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


@torch.no_grad()
def compare(steps: int = 1500, episodes: int = 300, picture: str | None = None) -> dict[str, float]:
    """Right answers of all, for digits that nobody has learned."""
    images, labels = digits()
    with torch.enable_grad():
        nets = {how: learn(how, images, labels, steps) for how in ("prototypes", "neighbours")}
    torch.manual_seed(1)
    right = dict.fromkeys(["1-NN of pixels", "1-NN of the prototypes' metric", "prototypes", "N3 neighbours"], 0.0)
    for _ in range(episodes):
        shown, classes, asked, answers = episode(images, labels, [6, 7, 8, 9])
        of = nets["prototypes"].embed
        said = [
            classes[torch.cdist(asked, shown).argmin(1)],
            classes[torch.cdist(of(asked), of(shown)).argmin(1)],
            nets["prototypes"](shown, classes, asked).argmax(1),
            nets["neighbours"](shown, classes, asked).argmax(1),
        ]
        for name, answer in zip(right, said, strict=True):
            right[name] += (answer == answers).float().mean().item() / episodes
    if picture:
        draw(nets["neighbours"], shown, asked[0], picture)
    return right


def draw(net: Compare, shown: Tensor, question: Tensor, file: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    e, q = net.embed(shown), net.embed(question[None])
    d = torch.cdist(q, e).square()[0]
    weights = n3net.select(d, 3, net.log_temperature.exp(), running="union")[-1]
    figure, axes = plt.subplots(4, SHOTS + 1, figsize=(8, 5.5))
    axes[0, 0].imshow(question.view(8, 8), cmap="gray_r")
    axes[0, 0].set_title("question")
    for axis in axes.flatten():
        axis.axis("off")
    for i, (image, w) in enumerate(zip(shown, weights, strict=True)):
        axis = axes[i // SHOTS, i % SHOTS + 1]
        axis.imshow(image.view(8, 8), cmap="gray_r", alpha=0.25 + 0.75 * float(w))
        axis.set_title(f"{float(w):.2f}")
    figure.suptitle("How much each example counts among the three neighbours of the question")
    figure.savefig(file, dpi=100), plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    for name, share in compare(parser.parse_args().steps, picture="few_shot.png").items():
        print(f"{name:34s} {100 * share:.1f} % right")
    print("written: few_shot.png")


if __name__ == "__main__":
    main()
