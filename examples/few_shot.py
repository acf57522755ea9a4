"""Few-shot classification of digits: N3's neighbours with a learned temperature against 1-NN and prototypes.

The temperature is learned on the digits 0 to 5, and questions are about 6 to 9, of which 5 examples each are shown;
images are compared pixel by pixel. Prints how many answers are right, and the mean log probability of the right ones,
which 1-NN does not have; writes few_shot.png: one question, and the weights that its neighbours got. Needs scikit-learn
for its digits.
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
    """From examples and questions to probabilities; all that is learned is a temperature."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def forward(self, shown: Tensor, classes: Tensor, asked: Tensor) -> Tensor:
        t = self.log_temperature.exp()
        one_hot = nn.functional.one_hot(classes).to(shown.dtype)  # (N, classes)
        if self.how == "prototypes":
            return torch.softmax(-torch.cdist(asked, one_hot.T @ shown / SHOTS).square() / t, 1)
        neighbours = n3net.nearest(asked[None], shown[None], 3, t, values=one_hot[None], distance="squared")
        return neighbours[0].mean(1)  # (Q, classes)


def learn(how: str, images: Tensor, labels: Tensor, steps: int) -> Compare:
    torch.manual_seed(0)
    net = Compare(how)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(steps):
        shown, classes, asked, answers = episode(images, labels, torch.randperm(6)[:4].tolist())
        loss = nn.functional.nll_loss(net(shown, classes, asked).clamp(min=1e-6).log(), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


@torch.no_grad()
def compare(steps: int = 400, episodes: int = 500, picture: str | None = None) -> dict[str, tuple[float, float]]:
    """For digits that nobody has learned from: the share of right answers, and their mean log probability."""
    images, labels = digits()
    with torch.enable_grad():
        nets = {how: learn(how, images, labels, steps) for how in ("prototypes", "N3 neighbours")}
    torch.manual_seed(1)
    found: dict[str, list[Tensor]] = {name: [] for name in ("1-NN", *nets)}
    for _ in range(episodes):
        shown, classes, asked, answers = episode(images, labels, [6, 7, 8, 9])
        nearest = nn.functional.one_hot(classes[torch.cdist(asked, shown).argmin(1)]).float()
        for name in found:
            p = nets[name](shown, classes, asked) if name in nets else nearest
            chosen = p.gather(1, answers[:, None])[:, 0]
            found[name].append(torch.stack([(p.argmax(1) == answers).float(), chosen.log()]).mean(1))
    if picture:
        draw(nets["N3 neighbours"], shown, asked[0], picture)
    means = {name: torch.stack(values).mean(0) for name, values in found.items()}
    return {name: (float(mean[0]), float(mean[1])) for name, mean in means.items()}


def draw(net: Compare, shown: Tensor, question: Tensor, file: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    d = torch.cdist(question[None], shown).square()[0]
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
    parser.add_argument("--steps", type=int, default=400)
    for name, (share, probability) in compare(parser.parse_args().steps, picture="few_shot.png").items():
        print(f"{name:14s} {100 * share:.1f} % right, mean log probability {probability:.3f}")
    print("written: few_shot.png")


if __name__ == "__main__":
    main()
