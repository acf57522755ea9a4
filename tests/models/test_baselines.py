"""The paper's other networks against slow, literal versions of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from n3net.models import MDSR, RED30, CBDNet, MemNet, NLNet, UNLNet
from n3net.models.cbdnet import cbdnet_loss
from n3net.models.patch_groups import Members, PatchGroups, RadialShrinkage, folded, mirrored, radial_centers


def literal_groups(image: np.ndarray[Any, Any], patch: int, group: int, radius: int) -> np.ndarray[Any, Any]:
    """(C, H, W) -> for each pixel the rows and columns of its group's members, itself first: (H, W, group, 2)."""
    _, height, width = image.shape
    margin = patch // 2
    padded = np.pad(image, ((0, 0), (margin, margin), (margin, margin)), mode="symmetric")
    out = np.empty((height, width, group, 2), int)
    for y in range(height):
        for x in range(width):
            own = padded[:, y : y + patch, x : x + patch]
            found = []
            for v in range(max(0, y - radius), min(height, y + radius + 1)):
                for u in range(max(0, x - radius), min(width, x + radius + 1)):
                    difference = own - padded[:, v : v + patch, u : u + patch]
                    found.append((-1.0 if (v, u) == (y, x) else float((difference**2).sum()), v, u))
            out[y, x] = [place for _, *place in sorted(found)[:group]]
    return out


@pytest.mark.parametrize(("channels", "patch", "group", "radius"), [(1, 3, 4, 3), (3, 5, 3, 2), (1, 7, 1, 2)])
def test_groups_are_those_of_a_literal_search(channels: int, patch: int, group: int, radius: int) -> None:
    image = np.random.default_rng(0).normal(size=(channels, 9, 11))
    codes = PatchGroups(patch, group, radius)(torch.from_numpy(image).float()[None])[0].long()  # (group, H, W)
    side = 2 * radius + 1
    rows = torch.arange(9)[:, None] + codes // side - radius
    columns = torch.arange(11) + codes % side - radius
    found = torch.stack([rows, columns], -1).permute(1, 2, 0, 3)  # (H, W, group, 2)
    assert np.array_equal(found.numpy(), literal_groups(image, patch, group, radius))


def test_groups_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    image = torch.rand(2, 1, 17, 13, generator=torch.Generator().manual_seed(0))
    search = PatchGroups(3, 5, 4)
    whole = search(image)
    monkeypatch.setattr("n3net.models.patch_groups.BAND", 3000)
    assert torch.equal(search(image), whole)


def test_sums_over_groups_and_back() -> None:
    """Both sums against a matrix of all pairs, with their gradients."""
    torch.manual_seed(0)
    codes = PatchGroups(3, 4, 2)(torch.rand(2, 1, 6, 5))
    members = Members(codes, 2)
    count = len(members.index)
    weights = torch.rand(4, dtype=torch.float64, requires_grad=True)
    x = torch.rand(count, 3, dtype=torch.float64, requires_grad=True)
    matrix = torch.zeros(count, count, dtype=torch.float64)
    for k in range(4):
        matrix = matrix + weights[k] * F.one_hot(members.index[:, k].long(), count)
    torch.testing.assert_close(members.gather(x, weights), matrix @ x)
    torch.testing.assert_close(members.spread(x, weights), matrix.T @ x)
    assert torch.autograd.gradcheck(members.gather, (x, weights))
    assert torch.autograd.gradcheck(members.spread, (x, weights))


def test_mirroring_and_its_adjoint() -> None:
    x, y = torch.rand(1, 2, 5, 4, dtype=torch.float64), torch.rand(1, 2, 11, 10, dtype=torch.float64)
    assert np.array_equal(mirrored(x, 3)[0].numpy(), np.pad(x[0].numpy(), ((0, 0), (3, 3), (3, 3)), "symmetric"))
    torch.testing.assert_close((mirrored(x, 3) * y).sum(), (x * folded(y, 3)).sum())


def test_functions_are_sums_of_gaussians() -> None:
    torch.manual_seed(0)
    function = RadialShrinkage(3, 100.0, 4.0, 0.1, torch.zeros(51))
    nn.init.normal_(function.weights)
    z = torch.empty(200, 3).uniform_(-130, 130)
    centers = radial_centers(100.0, 4.0).float()
    clipped = z.clamp(-100, 100)
    expected = (function.weights * torch.exp(-((clipped[..., None] - centers) ** 2) / 32)).sum(-1)  # (N, F)
    torch.testing.assert_close(function(z), expected, atol=2e-3, rtol=0)
    assert torch.autograd.gradcheck(
        lambda w: torch.func.functional_call(function.double(), {"weights": w}, (z[:5].double(),)),
        function.weights.detach().double().requires_grad_(),
    )


def literal_stage(x: Tensor, filters: Tensor, weights: Tensor, function: Any, groups: Any, patch: int) -> Tensor:
    """L'φ(L x) of an image (C, H, W) by loops over pixels and members, filters (M, C, P, P)."""
    _, height, width = x.shape
    margin = patch // 2
    padded = torch.from_numpy(np.pad(x.numpy(), ((0, 0), (margin, margin), (margin, margin)), "symmetric"))
    found = torch.empty(height, width, len(filters))
    for i in range(height):
        for j in range(width):
            found[i, j] = (filters * padded[:, i : i + patch, j : j + patch]).sum((1, 2, 3))
    spread = torch.zeros_like(found)
    for i in range(height):
        for j in range(width):
            summed = sum(w * found[v, u] for w, (v, u) in zip(weights, groups[i, j], strict=True))
            for w, (v, u) in zip(weights, groups[i, j], strict=True):
                spread[v, u] += w * function(summed[None])[0]
    out = torch.zeros_like(padded)
    for i in range(height):
        for j in range(width):
            out[:, i : i + patch, j : j + patch] += torch.einsum("m,mcij->cij", spread[i, j], filters)
    return folded(out[None], margin)[0]


def random_parts(net: nn.Module) -> None:
    for name, parameter in net.named_parameters():
        if name.endswith(".weights") and parameter.dim() == 1:
            nn.init.uniform_(parameter)
        elif name.endswith(("mixing", "kernels", "scales")):
            nn.init.normal_(parameter)
        elif name.endswith("mix"):
            nn.init.constant_(parameter, 0.1)
        elif name.endswith("shrinkage.weights"):
            nn.init.normal_(parameter, std=0.02)


@torch.no_grad()
def test_nlnet_is_what_its_paper_says() -> None:
    torch.manual_seed(0)
    net = NLNet(patch_size=3, stages=2, group=3, radius=2)
    random_parts(net)
    noisy = torch.rand(1, 7, 8)
    groups = literal_groups(noisy.double().numpy(), 3, 3, 2)
    x = y = 255 * noisy
    for stage in net.stages:
        step = literal_stage(x, stage.filters(), stage.weights, stage.shrinkage, groups, 3)
        x = 0.9 * x + 0.1 * y - step
    torch.testing.assert_close(net(noisy[None])[0], (x / 255).clamp(0, 1), atol=1e-4, rtol=0)


@torch.no_grad()
def test_unlnet_stays_as_near_as_the_noise_allows() -> None:
    torch.manual_seed(0)
    net = UNLNet(channels=3, patch_size=3, filters=5, stages=2, group=3, radius=2)
    random_parts(net)
    noisy = torch.rand(3, 7, 8)
    groups = literal_groups(noisy.double().numpy(), 3, 3, 2)
    x = y = 255 * noisy
    sigma, moved = 10.0, []
    for stage, slack in zip(net.stages, (-6.0, 5.0), strict=True):
        stage.slack.fill_(slack)
        weights = stage.weights / stage.weights.sum()
        kernels = stage.kernels - stage.kernels.mean((1, 2, 3), keepdim=True)
        filters = kernels / kernels.flatten(1).norm(dim=1).view(-1, 1, 1, 1) * stage.scales.view(-1, 1, 1, 1)
        v = x - literal_stage(x, filters, weights, stage.shrinkage, groups, 3)
        allowed = np.exp(slack) * sigma * np.sqrt(3 * 7 * 8 - 1)
        moved.append(bool((v - y).norm() > allowed))
        x = y + (v - y) * allowed / max(float((v - y).norm()), allowed)
    assert moved == [True, False]  # once it is held back, once it is not
    told = torch.cat([noisy, torch.full((1, 7, 8), sigma / 255)])[None]
    torch.testing.assert_close(net(told)[0], (x / 255).clamp(0, 1), atol=1e-4, rtol=0)


@torch.no_grad()
def test_red30_adds_where_the_public_network_does() -> None:
    """c_14 to the 1st transposed layer behind its ReLU, c_12 to the 3rd, ... c_2 to the 13th; the image to the last."""
    torch.manual_seed(0)
    net = RED30(features=3)
    nn.init.normal_(net.up[14].weight)
    x = torch.rand(1, 1, 9, 10)
    c, y = [x], x
    for layer in net.down:
        c.append(F.conv2d(c[-1], layer.weight, layer.bias, padding=1).relu())
    y = c[15]
    for i, layer in enumerate(net.up, start=1):
        y = F.conv_transpose2d(y, layer.weight, layer.bias, padding=1)
        y = y + x if i == 15 else y.relu()
        if i in (1, 3, 5, 7, 9, 11, 13):
            y = y + c[15 - i]
    torch.testing.assert_close(net(x), y)
    assert (net(x) - x).abs().max() > 1e-3


@torch.no_grad()
def test_memnet_block_by_block() -> None:
    torch.manual_seed(0)
    net = MemNet(blocks=2, units=3, features=4).eval()
    nn.init.uniform_(net.weights)
    x = torch.rand(1, 1, 8, 9)
    first = net.first(x)
    memory, images = [first], []
    for m, block in enumerate(net.blocks):
        u, recent = memory[-1], []
        for r in range(3):
            inner = block.convolutions[0](block.units[r][0](u))
            u = u + block.convolutions[1](block.units[r][1](inner))
            recent.append(u)
        memory.append(block.gate(torch.cat([*memory, *recent], 1)))
        images.append(net.last(net.last_norms[m](memory[-1])) + x)
    torch.testing.assert_close(net(x), net.weights[0] * images[0] + net.weights[1] * images[1])
    assert [block.gate[2].in_channels for block in net.blocks] == [16, 20]
    full = MemNet()
    assert [block.gate[2].in_channels for block in full.blocks] == [448, 512, 576, 640, 704, 768]


@torch.no_grad()
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_mdsr(factor: int) -> None:
    torch.manual_seed(0)
    net = MDSR(blocks=2, features=4).eval()
    x = torch.rand(1, 3, 6, 7)
    mean = torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1)
    y = net.head(255 * x - 255 * mean)
    for block in net.pre[str(factor)]:
        assert block.layers[0].kernel_size == (5, 5)
        y = y + block.layers(y)
    z = y
    for block in net.body:
        z = z + block.layers(z)
    z = net.body_end(z) + y
    for layer in net.enlarge[str(factor)]:
        z = layer(z)
    expected = (net.tail(z) + 255 * mean) / 255
    torch.testing.assert_close(net(x, factor), expected)
    assert expected.shape == (1, 3, factor * 6, factor * 7)
    with pytest.raises(ValueError, match="expected 2"):
        MDSR((2,), 1, 4)(x, 3)


@torch.no_grad()
@pytest.mark.parametrize("size", [(8, 12), (9, 14), (3, 5)])
def test_cbdnet(size: tuple[int, int]) -> None:
    net = CBDNet(4).eval()
    x = torch.rand(1, 3, *size)
    out, noise = net.both(x)
    assert out.shape == noise.shape == x.shape
    assert bool((noise >= 0).all())
    torch.testing.assert_close(out, x, atol=0.1, rtol=0)  # it starts near the identity


def test_the_loss_of_cbdnet_minds_low_estimates_more() -> None:
    image, noise = torch.rand(1, 3, 4, 4), torch.full((1, 3, 4, 4), 0.1)
    low, high = (cbdnet_loss(image, image, noise + e, noise) for e in (-0.05, 0.05))
    assert float(low) == pytest.approx(0.5 * 0.7 * 0.05**2)
    assert float(high) == pytest.approx(0.5 * 0.3 * 0.05**2)
    stripes = noise.clone()
    stripes[..., ::2] += 0.02
    expected = 0.5 * 0.3 * 0.02**2 / 2 + 0.05 * 0.02**2
    assert float(cbdnet_loss(image, image, stripes, noise)) == pytest.approx(expected)
    assert float(cbdnet_loss(image + 0.1, image, noise, noise)) == pytest.approx(0.01)
