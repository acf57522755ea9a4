"""Tiles give the result of the whole image."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from n3net.models import Denoiser, DnCNN, fold_batch_norm
from n3net.models.ffdnet import FFDNet
from n3net.models.preparing import prepare
from n3net.models.red30 import RED30
from n3net.neighbors.grid import Pads
from n3net.nn import N3Block2d, N3Options
from n3net.restoration.tiles import Tile, split


def realistic(net: nn.Module, seed: int = 0) -> nn.Module:
    """Random statistics for all batch norms, so that folding and activations are those of a trained network."""
    generator = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features, generator=generator) * 0.1
            module.running_var = torch.rand(module.num_features, generator=generator) + 0.5
            nn.init.uniform_(module.weight, 0.5, 1, generator=generator)
            nn.init.normal_(module.bias, std=0.1, generator=generator)
    return net.eval()


class Layers(nn.Module):
    """A network with N3 blocks that says how far it looks, but not what it is composed of."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        torch.manual_seed(0)
        settings: dict[str, object] = {"k": 3, "window": 5, "features": 8, **options}
        self.first, self.last = DnCNN(1, 4, 3, 8), DnCNN(4 * 4, 1, 3, 8)
        self.block = N3Block2d(4, **settings)  # type: ignore[arg-type]

    @property
    def reach(self) -> int:
        m = self.block.matching
        return self.first.reach + self.last.reach + m.patch_size - 1 + m.window // 2 * m.stride + 3

    def forward(self, x: Tensor, pads: Pads | None = None) -> Tensor:
        y: Tensor = self.last(self.block(self.first(x), pads=pads))
        return y


def layers(**options: object) -> nn.Module:
    return fold_batch_norm(realistic(Layers(**options)))


def tiled(model: nn.Module, x: Tensor, tiles: list[Tile]) -> Tensor:
    out = torch.full_like(x, torch.nan)
    for t in tiles:
        y = model(x[..., t.crop[0], t.crop[1]], pads=t.pads) if t.pads else model(x[..., t.crop[0], t.crop[1]])
        out[..., t.core[0], t.core[1]] = y[..., t.inner[0], t.inner[1]]
    return out


@pytest.mark.parametrize("options", ["paper", "reference-2018", N3Options(border="clip")])
@pytest.mark.parametrize("size", [(131, 97), (90, 203), (30, 160), (29, 11)])
def test_tiles_are_exact_whatever_their_size(options: str | N3Options, size: tuple[int, int]) -> None:
    net = layers(options=options)
    x = torch.rand(1, 1, *size, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        whole = net(x)
        for tile in (1, 33, 50, 77, 1000):
            tiles = split(net, *size, tile)
            torch.testing.assert_close(tiled(net, x, tiles), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options", [{"window": 6}, {"patch_size": 7, "stride": 3}, {"patch_size": 4, "stride": 4}, {"rule": "hard"}]
)
def test_tiles_are_exact_for_other_blocks(options: dict[str, object]) -> None:
    net = layers(**options)
    x = torch.rand(1, 1, 151, 83, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        tiles = split(net, 151, 83, 20)
        assert len(tiles) > 2
        torch.testing.assert_close(tiled(net, x, tiles), net(x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(151, 83), (88, 120)])
def test_tiles_are_exact_for_the_baselines(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    nets = [FFDNet(depth=4, features=8), RED30(depth=4, features=8)]
    for net in nets:
        net = fold_batch_norm(realistic(net))
        channels = 1 if isinstance(net, RED30) else 2
        x = torch.rand(1, channels, *size, generator=torch.Generator().manual_seed(1))
        x[:, 1:] = 0.1  # noise map
        with torch.inference_mode():
            tiles = split(net, *size, 25)
            assert len(tiles) > 2
            torch.testing.assert_close(tiled(net, x, tiles)[:, :1], net(x), atol=1e-5, rtol=0)


def test_halo_is_needed() -> None:
    net = layers()
    x = torch.rand(1, 1, 120, 60, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        tiles = split(net, 120, 60, 30)
        bare = [Tile(t.core, t.core, (0, 0, 0, 0)) for t in tiles]
        assert (tiled(net, x, bare) - net(x)).abs().max() > 1e-3


@pytest.mark.parametrize("tile", [1, 7, 40, 500])
def test_local_networks(tile: int) -> None:
    torch.manual_seed(0)
    model = Denoiser(realistic(DnCNN(1, depth=5, features=8)))
    x = torch.rand(1, 1, 41, 67)
    with torch.inference_mode():
        folded = prepare(model)
        torch.testing.assert_close(tiled(folded, x, split(folded, 41, 67, tile)), model(x), atol=1e-5, rtol=0)


def test_cores_cover_the_image_once() -> None:
    count = torch.zeros(1003, 777)
    for t in split(layers(), 1003, 777, 100):
        count[t.core] += 1
        assert t.core[0].start >= t.crop[0].start
        assert t.core[1].stop <= t.crop[1].stop
    assert (count == 1).all()


def test_default_tiles_are_as_large_as_memory_allows() -> None:
    net = DnCNN()
    for size in ((10_000, 10_000), (1_000_000, 100), (500, 4000)):
        tiles = split(net, *size, memory=800_000_000)
        assert max(t.pixels for t in tiles) * 832 <= 800_000_000
    assert len(split(net, 512, 512)) == 1
    large = split(net, 4000, 6000)
    assert sum(t.pixels for t in large) < 1.1 * 4000 * 6000  # what the halos cost
    assert len(split(layers(), 512, 512, memory=1)) == (512 // 30) ** 2  # no core is smaller than a window, 30 pixels


def test_network_of_unknown_reach_gets_the_whole_image() -> None:
    (only,) = split(nn.Conv2d(1, 1, 3), 5000, 5000, 100)
    assert only.crop == (slice(0, 5000), slice(0, 5000))


def test_tile_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        split(DnCNN(), 10, 10, 0)
