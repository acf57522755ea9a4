"""Networks that are swept over an image give what they give for the whole of it, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import n3net
from n3net.models import Denoiser, DnCNN, N3Net, Upscaler, create, fold_batch_norm
from n3net.models.interface import Composed
from n3net.models.preparing import prepare
from n3net.models.raw import RawDenoiser
from n3net.nn import N3Block2d, N3Options
from n3net.noise.sensor import NoiseLevel
from n3net.restoration import running, streaming, tiles
from n3net.restoration.raw import denoise_plane
from n3net.restoration.rolling import RollingMap, TileSize
from n3net.restoration.running import run
from n3net.restoration.streaming import stream, tile_for, widest_image
from n3net.restoration.tiles import split


def small_n3net(**changes: object) -> Any:
    torch.manual_seed(0)
    settings: dict[str, object] = {"features": 8, "depth": 3, "block_channels": 4, "k": 3, "window": 5}
    net = N3Net(**{**settings, **changes})  # type: ignore[arg-type]
    if net.guide is not None:
        net.guide = DnCNN(depth=5, features=8)
    return fold_batch_norm(net)


def image(*size: int, channels: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(1, channels, *size, generator=torch.Generator().manual_seed(1), dtype=dtype)


def swept(net: nn.Module, x: Tensor, rows: int, cols: int, **options: Any) -> Tensor:
    bands = []
    with torch.inference_mode():
        for band, given, out in stream(
            net, (x.shape[2], x.shape[3]), lambda y, z: x[..., y, z], tile=TileSize(rows, cols), **options
        ):
            assert torch.equal(given, x[:, :, band])
            bands.append(out.clone())
    return torch.cat(bands, 2)


def assert_swept_is_whole(net: nn.Module, x: Tensor, tiles: list[tuple[int, int]], tolerance: float = 1e-12) -> None:
    with torch.inference_mode():
        whole = net(x)
    assert whole.abs().max() > 0.1
    for tile in tiles:
        torch.testing.assert_close(swept(net, x, *tile), whole, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("options", ["paper", "reference-2018", N3Options(border="clip")])
@pytest.mark.parametrize("size", [(131, 97), (90, 203), (30, 160), (29, 11), (17, 61)])
def test_exact_whatever_the_tiles(options: str | N3Options, size: tuple[int, int]) -> None:
    net = small_n3net(options=options).double()
    assert_swept_is_whole(net, image(*size), [(12, 16), (33, 50), (77, 1000), (1000, 24), (1000, 1000)])


@pytest.mark.parametrize("backend", ["auto", "tiled"])
@pytest.mark.parametrize(
    "changes",
    [
        {"stages": 2, "window": 6},
        {"patch_size": 7, "stride": 3},
        {"patch_size": 5, "stride": 2, "options": N3Options(border="clip", temperature_at="mean")},
        {"patch_size": 4, "stride": 4},
        {"patch_size": 4, "stride": 2, "k": 1},
        {"rule": "hard", "match_on": "input"},
        {"stages": 2, "match_on": "denoised"},
        {"k": 0},
        {"stages": 1},
        {"in_channels": 4, "out_channels": 3},
        {"k": 5, "options": "reference-2018"},
    ],
)
def test_exact_for_other_networks(changes: dict[str, Any], backend: str) -> None:
    net = small_n3net(**changes, backend=backend).double()
    x = image(101, 83, channels=changes.get("in_channels", 1))
    assert_swept_is_whole(net, x, [(40, 48), (101, 83)])


def test_exact_in_single_precision_for_the_papers_network() -> None:
    torch.manual_seed(0)
    net = fold_batch_norm(N3Net(features=16))
    assert_swept_is_whole(net, image(223, 131, dtype=torch.float32), [(64, 48), (100, 1000)], 5e-6)


def test_the_margin_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = small_n3net().double(), image(90, 60)
    with torch.inference_mode():
        whole = net(x)
    monkeypatch.setattr(RollingMap, "seen", lambda self, rows, cols, margin: (rows, cols))
    assert (swept(net, x, 32, 32) - whole).abs().max() > 1e-3


class Chain(Composed):
    """A block right behind a block, a map with two readers, and blocks with grids of their own."""

    reach = 100

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = DnCNN(1, 2, 3, 8), DnCNN(12, 1, 2, 8)
        settings: dict[str, Any] = {"window": 5, "features": 8}
        self.one, self.two = N3Block2d(2, 1, 6, 3, **settings), N3Block2d(4, 2, 8, 4, **settings)

    def compose(self, apply: Callable[..., Any], x: Any) -> Any:
        return apply(self.last, apply(self.two, apply(self.one, apply(self.first, x)), x))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.compose(lambda module, *maps: module(*maps), x)
        return y


def test_networks_of_others() -> None:
    net = fold_batch_norm(Chain()).double()
    assert_swept_is_whole(net, image(70, 90), [(20, 24), (48, 100)])


def test_steps_must_tell_their_reach() -> None:
    class Unknown(Composed):
        def compose(self, apply: Callable[..., Any], x: Any) -> Any:
            return apply(nn.Conv2d(1, 1, 3), x)

    with pytest.raises(ValueError, match="Conv2d: has no reach"):
        swept(Unknown(), image(20, 20), 8, 8)


def record(monkeypatch: pytest.MonkeyPatch) -> list[RollingMap]:
    """All maps that will be made."""
    made: list[RollingMap] = []
    original = RollingMap.__init__

    def init(self: RollingMap, *args: Any) -> None:
        original(self, *args)
        made.append(self)

    monkeypatch.setattr(RollingMap, "__init__", init)
    return made


def test_memory_does_not_grow_with_the_height(monkeypatch: pytest.MonkeyPatch) -> None:
    net, sizes = small_n3net(), []
    for height in (300, 900):
        maps = record(monkeypatch)
        swept(net, image(height, 40, dtype=torch.float32), 32, 64)
        assert all(m.stop == m.size[0] for m in maps)
        buffers = [m.buffer for m in maps if m.buffer is not None]
        assert len(buffers) == len(maps) == 1 + 3 + 2 * 2  # the image, a map behind each stage, and two for each block
        sizes.append(sum(b.numel() for b in buffers))
    assert sizes[0] == sizes[1]


def test_rows_that_are_kept_are_as_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate from which tiles are chosen: what the maps of the blocks need, for each column."""
    net, maps = N3Net(features=4).eval(), record(monkeypatch)
    swept(net, image(700, 20, dtype=torch.float32), 64, 64)
    kept = sum(m.buffer.numel() for m in maps if m.buffer is not None and m.buffer.shape[2] == 8) / 20 * 4
    estimate = streaming._bytes_of_maps(net) * (64 + streaming._rows_around(net))
    assert 0.85 * estimate < kept < 1.1 * estimate


def test_nothing_is_computed_twice_but_margins() -> None:
    """Pixels that stages see, against those that there are."""
    net, seen = small_n3net(), []
    for stage in net.stages:
        stage.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape[2] * args[0].shape[3]))
    swept(net, image(400, 300, dtype=torch.float32), 100, 100)
    tiles = 3 * (400 // 100 + 1) * 3  # a map may begin with one more band, for what is below the first
    assert sum(seen) <= 3 * 400 * 300 + tiles * (2 * 6 * 100 + 36)


def test_progress_comes_early_often_and_never_goes_back() -> None:
    net, seen = small_n3net(), []
    swept(net, image(200, 150, dtype=torch.float32), 40, 80, progress=seen.append)
    assert len(seen) > 50
    assert seen == sorted(seen)
    assert seen[3] < 0.1
    assert seen[-1] == 1


@pytest.mark.parametrize("size", [(3000, 4000), (10_000, 10_000), (200, 9000), (12_000, 200), (1000, 1000)])
def test_default_tiles_cost_little_time_and_memory(size: tuple[int, int]) -> None:
    net = N3Net()
    tile = tile_for(net, *size)
    assert (tile.rows + 12) * (min(tile.cols, size[1]) + 12) * 832 <= 1.01 * streaming.TILE_MEMORY
    assert 128 * size[1] * (tile.rows + 107) <= streaming.MAP_MEMORY
    margins = [
        1 if side <= longest else 1 + 12 / longest for side, longest in zip(size, (tile.rows, tile.cols), strict=True)
    ]
    assert margins[0] * margins[1] < 1.075


def test_small_images_and_small_tiles() -> None:
    assert tile_for(N3Net(), 256, 256) == TileSize(256, 256)
    assert tile_for(N3Net(), 5000, 5000, 1) == TileSize(32, 32)
    assert tile_for(N3Net(), 5000, 5000, 500) == TileSize(500, 500)


@pytest.mark.parametrize(
    ("options", "fold"), [("paper", 1), (N3Options(border="clip", temperature_at="mean"), 1), ("paper", 2)]
)
def test_wide_images_are_cut_into_strips(options: Any, fold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = small_n3net(options=options, fold=fold, patch_size=6, stride=3), image(70, 409, dtype=torch.float32)
    assert len(split(net, 70, 409)) == 1
    per_column = streaming.MAP_MEMORY // widest_image(net)
    monkeypatch.setattr(streaming, "MAP_MEMORY", 150 // fold * per_column)
    strips = split(net, 70, 409)
    assert len(strips) == 3
    assert all(s.core[0] == s.crop[0] == slice(0, 70) for s in strips)
    pixels, out, seen = x[0].permute(1, 2, 0).numpy(), np.full((70, 409, 1), np.nan, np.float32), []
    run(net, (70, 409), lambda part: [pixels[part]], out.__setitem__, tile=64, progress=lambda *p: seen.append(p))
    with torch.inference_mode():
        np.testing.assert_allclose(out, net(x)[0].permute(1, 2, 0).numpy(), atol=2e-6, rtol=2e-6)
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


@pytest.fixture
def torch_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's convolutions, which round alike wherever a tile begins."""
    monkeypatch.setenv("N3NET_CONVOLUTIONS", "torch")


SMALL: dict[str, Any] = {"stages": 2, "depth": 2, "features": 8, "block_channels": 3, "k": 2, "window": 3}


def model(name: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    return create(name, **SMALL, **changes).eval()


@pytest.mark.usefixtures("torch_convolutions")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("relative", "fold"), [(False, 1), (True, 1), (True, 2), (False, 3)])
def test_denoisers(channels: int, relative: bool, fold: int) -> None:
    denoiser: Denoiser = model("n3net", channels=channels, noise_map=True, relative=relative, fold=fold)
    x = image(91, 77, channels=channels, dtype=torch.float32)
    levels = 10 + 40 * image(91, 77, dtype=torch.float32)
    pixels = x[0].permute(1, 2, 0).numpy().reshape(91, 77, channels)[..., 0 if channels == 1 else slice(None)]
    for sigma in (25.0, levels):
        with torch.inference_mode():
            whole = denoiser(x, sigma)[0].permute(1, 2, 0).numpy().reshape(pixels.shape)
        given = sigma if isinstance(sigma, float) else sigma[0, 0].numpy()
        for tile in (32, None):
            np.testing.assert_allclose(n3net.denoise(pixels, given, denoiser, tile=tile), whole, atol=2e-6, rtol=2e-6)


def test_denoisers_with_the_kernels_convolutions() -> None:
    """These round a little differently wherever a tile begins."""
    denoiser: Denoiser = model("n3net", channels=3, noise_map=True)
    x = image(91, 77, channels=3, dtype=torch.float32)
    pixels = x[0].permute(1, 2, 0).numpy()
    with torch.inference_mode():
        whole = denoiser(x, 25.0)[0].permute(1, 2, 0).numpy()
    for tile in (32, 50, None):
        np.testing.assert_allclose(n3net.denoise(pixels, 25.0, denoiser, tile=tile), whole, atol=2e-5)


def test_a_folded_network_is_the_network_of_the_folded_image() -> None:
    net = small_n3net(in_channels=2, out_channels=1, fold=2).double()
    x = image(61, 44, channels=2)
    rows = torch.cat([x, x[:, :, -1:]], 2)  # an even number of them
    parts = torch.stack([rows[:, :, y::2, z::2] for y in (0, 1) for z in (0, 1)], 2).flatten(1, 2)  # (1, 8, 31, 22)
    with torch.inference_mode():
        inner = net.compose(lambda module, *maps: module(*maps), parts)  # (1, 4, 31, 22)
        out = net(x)
    for i, (y, z) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        rows = out[:, 0, y::2, z::2]
        torch.testing.assert_close(rows, inner[:, i, : rows.shape[1]])


def test_a_folded_network_on_an_image_with_few_patches() -> None:
    denoiser: Denoiser = model("n3net", fold=2, noise_map=True)
    assert n3net.denoise(np.full((9, 7), 0.5, np.float32), 25.0, denoiser).shape == (9, 7)


@pytest.mark.usefixtures("torch_convolutions")
@pytest.mark.parametrize("unit", [1.0, 0.05])
def test_upscalers(unit: float) -> None:
    upscaler: Upscaler = model("n3net-sr", unit=unit)
    x = image(91, 77, dtype=torch.float32)
    out = np.full((91, 77, 1), np.nan, np.float32)
    ready: Any = prepare(upscaler)
    pixels = x[0, 0].numpy()[..., None]
    ends = {"told": ready.told, "finish": ready.finish}
    run(ready.net, (91, 77), lambda part: [pixels[part]], out.__setitem__, tile=32, **ends)
    with torch.inference_mode():
        np.testing.assert_allclose(out[..., 0], upscaler(x)[0, 0].numpy(), atol=2e-6)


@pytest.mark.usefixtures("torch_convolutions")
@pytest.mark.parametrize("stabilize", [False, True])
def test_raw_denoisers(stabilize: bool) -> None:
    denoiser: RawDenoiser = model("raw-n3net", stabilize=stabilize)
    x = image(91, 77, dtype=torch.float32)
    with torch.inference_mode():
        whole = denoiser(x, 2e-3, 1e-5)[0, 0].numpy()
    out = denoise_plane(x[0, 0].numpy(), NoiseLevel(2e-3, 1e-5), denoiser, tile=32)
    np.testing.assert_allclose(out, whole, atol=5e-6)


def test_only_what_is_needed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pixel of the image is read once."""
    net, count, pixels = small_n3net(), np.zeros((150, 170), int), np.zeros((150, 170, 1), np.float32)

    def read(part: tiles.Part) -> list[running.Array]:
        count[part] += 1
        return [pixels[part]]

    run(net, (150, 170), read, lambda part, values: None, tile=40)
    assert (count == 1).all()
