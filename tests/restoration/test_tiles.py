"""Tiles give the result of the whole image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import n3net
from n3net.errors import UserError
from n3net.models import RED30, CBDNet, Denoiser, DnCNN, FFDNet, MemNet, create, fold_batch_norm
from n3net.models.preparing import prepare
from n3net.neighbors.grid import Pads
from n3net.nn import N3Block2d, N3Options
from n3net.restoration.running import run
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
@pytest.mark.parametrize("size", [(131, 97), (90, 203), (30, 160), (67, 11)])
def test_tiles_are_exact_whatever_their_size(options: str | N3Options, size: tuple[int, int]) -> None:
    net = layers(options=options)
    x = torch.rand(1, 1, *size, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        whole = net(x)
        assert len(split(net, *size, 1)) > 1
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
    nets = [FFDNet(depth=4, features=8), RED30(depth=4, features=8), MemNet(2, 2, 4), CBDNet(4)]
    for net in nets:
        net = fold_batch_norm(realistic(net))
        channels = {FFDNet: 2, CBDNet: 3}.get(type(net), 1)
        x = torch.rand(1, channels, *size, generator=torch.Generator().manual_seed(1))
        if channels == 2:
            x[:, 1:] = 0.1  # noise map
        with torch.inference_mode():
            tiles = split(net, *size, 25)
            assert len(tiles) > 2
            whole = net(x)
            torch.testing.assert_close(tiled(net, x, tiles)[:, : whole.shape[1]], whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("nlnet", {"stages": 2, "radius": 6}),
        ("nlnet", {"stages": 2, "radius": 6, "channels": 3}),
        ("unlnet", {"stages": 2, "radius": 6}),
        ("unlnet", {"stages": 2, "radius": 6, "channels": 3, "filters": 9}),
        ("nn3d", {"depth": 3, "features": 4, "group": 4, "window": 5}),
    ],
)
def test_steps_on_whole_maps_are_exact_in_parts(name: str, config: dict[str, Any]) -> None:
    """NLNet's groups, UNLNet's norm of the image and NN3D's groups are the whole image's, whatever the tiles."""
    torch.manual_seed(0)
    model = realistic(create(name, **config))
    for key, parameter in model.named_parameters():
        if key.endswith("weights") and parameter.dim() == 1:
            nn.init.uniform_(parameter)
    image = torch.rand(61, 83, model.channels, generator=torch.Generator().manual_seed(1)).numpy()
    with torch.no_grad():
        whole = model(torch.from_numpy(image).permute(2, 0, 1)[None], 25.0)[0].permute(1, 2, 0)
    net, seen = prepare(model, fast=False), []
    for tile in (None, 23):
        out = np.empty_like(image)
        run(
            net.net, image.shape[:2], lambda part: [image[part]], out.__setitem__,
            told=lambda x: net.told(x, 25.0), finish=net.finish, tile=tile,
            progress=lambda done, total: seen.append(done / total),
        )  # fmt: skip
        torch.testing.assert_close(torch.from_numpy(out), whole, atol=2e-6 if name != "nn3d" else 1e-3, rtol=0)
        assert seen[-1] == 1
        assert seen == sorted(seen)
        seen.clear()


def test_colours_in_tiles_are_those_of_the_whole_image() -> None:
    torch.manual_seed(0)
    model = create("mdsr-baseline", blocks=2, features=8).eval()
    image = np.random.default_rng(0).integers(0, 256, (30, 41, 3), np.uint8)
    with torch.no_grad():
        x = torch.from_numpy(image.astype(np.float32) / 255).permute(2, 0, 1)[None]
        whole = (model(x, 3)[0] * 255).round().clamp(0, 255).permute(1, 2, 0)
    for tile in (None, 9):
        found = n3net.upscale(image, 3, model, tile=tile).astype(np.float32)
        assert np.abs(found - whole.numpy()).max() <= 1  # where rounding decides
        assert np.abs(found - whole.numpy()).mean() < 0.01
    assert n3net.upscale(image[..., 0], 2.5, model).shape == (75, 103)
    with pytest.raises(UserError, match="at most 2"):
        n3net.upscale(image, 3, create("edsr-baseline", blocks=1, features=4).eval())


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
