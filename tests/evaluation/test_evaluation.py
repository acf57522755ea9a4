"""The scoreboard: metrics, protocol, reports, the paper's tables, and what blocks have learned."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from n3net import weights
from n3net.errors import UserError
from n3net.evaluation import bootstrap, psnr, ssim
from n3net.evaluation.gaussian import evaluate, noise, report
from n3net.evaluation.html import interesting_crop, page
from n3net.evaluation.images import data_root, image_set, image_sets
from n3net.evaluation.methods import Method, method, trained_for
from n3net.evaluation.names import split_label
from n3net.evaluation.paper import TABLES
from n3net.evaluation.raw import raw_method
from n3net.evaluation.report import markdown, markdown_images
from n3net.evaluation.reproduce import TASKS, candidates, find_table, reproduce, to_json, to_markdown
from n3net.evaluation.restoration import Shown, summarize
from n3net.evaluation.superresolution import upscaler
from n3net.inspection.choices import interesting_pixels, look, mean_largest
from n3net.models import create
from n3net.raw.simulation import LEVELS
from n3net.restoration import running
from n3net.restoration.denoising import denoise
from n3net.tasks.data import Images
from n3net.weights.store import SHIPPED

SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where weights have names: none come with the package, and none are there yet."""
    monkeypatch.setattr("n3net.weights.store.SHIPPED", tmp_path / "nowhere")
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "user"))
    monkeypatch.delenv("N3NET_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "bm3d", None)  # as if it were not installed
    return tmp_path / "user"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set of three small pictures, under the name of a real one."""
    directory = tmp_path / "data" / "Set12"
    directory.mkdir(parents=True)
    y, x = np.mgrid[:60, :72]
    for i in range(3):
        pixels = 127 + 80 * np.sin(x / (2 + i)) * np.cos(y / 5) + 20 * (x > 30)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(directory / f"{i}.png")
    (directory / "notes.txt").write_text("not an image")
    return directory


def save_small(path: Path, name: str = "n3net", sigma: Any = 25, **config: Any) -> Path:
    torch.manual_seed(0)
    model = create(name, features=4, depth=2, **config)
    return weights.save(path, model, {"training": {"sigma": sigma}})


def pair(channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    truth = torch.rand(channels, 40, 53, generator=g)
    return (truth + 0.1 * torch.randn(truth.shape, generator=g)).clamp(0, 1), truth


def test_psnr() -> None:
    assert psnr(torch.full((1, 4, 4), 0.1), torch.zeros(1, 4, 4)) == pytest.approx(20, abs=1e-5)
    assert psnr(torch.zeros(1, 4, 4), torch.zeros(1, 4, 4)) == math.inf


@pytest.mark.parametrize("channels", [1, 3])
def test_ssim_equals_scikit_image(channels: int) -> None:
    metrics = pytest.importorskip("skimage.metrics")
    image, truth = pair(channels)
    expected = metrics.structural_similarity(
        image.double().numpy(),
        truth.double().numpy(),
        data_range=1.0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        channel_axis=0,
    )
    assert ssim(image, truth) == pytest.approx(expected, abs=1e-7)


def test_ssim_of_the_same_is_1_and_needs_a_window() -> None:
    _, truth = pair(1)
    assert ssim(truth, truth) == pytest.approx(1)
    with pytest.raises(ValueError, match="11 x 11"):
        ssim(torch.rand(1, 10, 40), torch.rand(1, 10, 40))


def test_bootstrap_covers_the_mean() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for i in range(100):
        low, high = bootstrap(rng.normal(30, 1, 40).tolist(), draws=500, seed=i)
        hits += low <= 30 <= high
    assert hits >= 88
    assert bootstrap([30.0]) == (30.0, 30.0)


@pytest.mark.parametrize("n", [1, 7, 64, 1000])
def test_bootstrap_in_parts(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draws as all at once, in memory that does not grow with their number."""
    data = np.random.default_rng(1).normal(30, 1, n)
    means = data[np.random.default_rng(0).integers(0, n, (501, n))].mean(1)
    monkeypatch.setattr("n3net.evaluation.metrics.DRAWN_AT_ONCE", 640)
    largest = 0

    class Counting:
        def __init__(self, seed: int) -> None:
            self.rng = rng(seed)

        def integers(self, low: int, high: int, shape: tuple[int, int]) -> Any:
            nonlocal largest
            largest = max(largest, shape[0] * shape[1])
            return self.rng.integers(low, high, shape)

    rng = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", Counting)
    assert bootstrap(data.tolist(), draws=501) == tuple(np.quantile(means, [(1 - 0.95) / 2, (1 + 0.95) / 2]))
    assert largest <= max(n, 640)


def test_noise_depends_on_image_and_level_only() -> None:
    a = noise((1, 200, 200), 25, 3)
    assert torch.equal(a, noise((1, 200, 200), 25, 3))
    assert not torch.equal(a, noise((1, 200, 200), 25, 4))
    assert not torch.equal(a / 25, noise((1, 200, 200), 50, 3) / 50)
    assert float(a.std() * 255) == pytest.approx(25, rel=0.02)


def test_evaluate(data: Path, tmp_path: Path) -> None:
    path = save_small(tmp_path / "net.safetensors")
    methods = [method(str(path)), method("noisy"), method(f"again={path}")]
    seen: list[Shown] = []
    rows = evaluate(methods, image_set(data), [25, 50], keep=seen.append, kept=2)
    assert len(rows) == 3 * 3 * 2
    assert [p.image for p in seen] == ["0.png", "1.png"] * 2
    results = summarize(rows)
    by = {(r["model"], r["sigma"]): r for r in results}
    assert by[("again", 25)]["psnr"] == by[(str(path), 25)]["psnr"]  # the same noise
    assert by[("noisy", 25)]["psnr"] == pytest.approx(20.17, abs=0.5)
    low, high = by[("noisy", 25)]["psnr_interval"]
    assert low <= by[("noisy", 25)]["psnr"] <= high
    content = json.loads(json.dumps(report(rows, methods, 0)))
    assert {"model", "dataset", "sigma", "psnr", "ssim", "n", "seconds"} <= content["results"][0].keys()
    assert content["results"][0]["n"] == 3
    assert len(content["images"]) == len(rows)
    assert "| noisy | Set12 | 25 |" in markdown(content["results"])
    assert markdown_images(content["images"]).count("Set12/") == 3
    text = page(content, seen)
    assert text.count("<figure") == 4
    assert "http" not in text  # nothing is fetched


def test_colour_and_gray(data: Path, tmp_path: Path) -> None:
    gray, colour = save_small(tmp_path / "g.safetensors"), save_small(tmp_path / "c.safetensors", channels=3)
    rows = evaluate([method(str(colour))], image_set(data, 1), [10])
    assert len(rows) == 1
    with pytest.raises(UserError, match="gray and colour"):
        evaluate([method(str(gray)), method(str(colour))], image_set(data), [10])


def test_methods(data: Path, tmp_path: Path) -> None:
    path = save_small(tmp_path / "d.safetensors", "dncnn-17")
    told = save_small(tmp_path / "t.safetensors", "dncnn-17", noise_map=True)
    clean = image_set(data).read(0)
    noisy = clean + noise(clean.shape, 25, 0)
    assert method(f"nn3d:{told}").run(noisy, 25).shape == clean.shape
    assert method(f"two=nn3d:{path},{told}").run(noisy, 25).shape == clean.shape
    with pytest.raises(UserError, match="one noise level only"):
        method(f"nn3d:{path}")
    pytest.importorskip("skimage")
    assert psnr(method("nlm").run(noisy, 25), clean) > psnr(noisy, clean) + 3


@pytest.mark.parametrize("kind", ["gaussian", "sr", "raw"])
@pytest.mark.parametrize("size", [(190, 165), (12, 13)])
def test_networks_run_in_tiles(kind: str, size: tuple[int, int], tmp_path: Path, monkeypatch: Any) -> None:
    """Large images with little memory, and images with fewer patches than neighbours."""
    options = {"features": 4, "depth": 2, "k": 7, "window": 5}
    torch.manual_seed(0)
    model = {
        "gaussian": lambda: create("n3net", noise_map=True, **options),
        "sr": lambda: create("n3net-sr", **options),
        "raw": lambda: create("raw-n3net", **options),
    }[kind]()
    path = weights.save(tmp_path / "net.safetensors", model)
    make = {"gaussian": method, "sr": upscaler, "raw": raw_method}[kind]
    factor = 3 if kind == "sr" else 1  # by which the result is larger
    shape = (4 if kind == "raw" else 1, *(side // factor for side in size))
    image = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    level: Any = LEVELS["middle"] if kind == "raw" else 3.0
    parts: list[Any] = []

    def run(net: Any, size: Any, read: Any, write: Any, tile: int | None = None, **others: Any) -> None:
        whole_run(net, size, lambda part: parts.append(part) or read(part), write, tile=30, **others)

    whole = make(str(path)).run(image, level)
    whole_run = running.run
    monkeypatch.setattr(running, "run", run)
    tiled = make(str(path)).run(image, level)
    assert tiled.shape == (shape[0], factor * shape[1], factor * shape[2])
    torch.testing.assert_close(tiled, whole, atol=1e-5, rtol=0)
    assert len(parts) > 4 or size == (12, 13)
    if kind == "gaussian" and size != (12, 13):
        with torch.inference_mode():
            expected = model.eval()(image[None], sigma=level)[0]
        torch.testing.assert_close(whole, expected, atol=1e-5, rtol=0)


def test_the_package_bm3d_is_optional() -> None:
    with pytest.raises(UserError, match="pip install"):
        method("bm3d-package")


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"sigma": 25}, (25, 25)),
        ({"sigma": [0, 75]}, (0, 75)),
        ({"config": {"data": {"sigma": [5, 50]}}}, (5, 50)),
        ({"data": {"sigma": [0, 55]}, "config": {"data": {}}}, (0, 55)),  # a config without it: the task's default
        ({}, None),
        (None, None),
    ],
)
def test_noise_levels_of_training(training: Any, expected: Any) -> None:
    assert trained_for({"training": training}) == expected


def test_images_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no such directory"):
        image_set(tmp_path / "missing")
    with pytest.raises(UserError, match="no images"):
        image_set(tmp_path)
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(UserError, match="cannot be read"):
        image_set(tmp_path).read(0)
    assert data_root(None) is None
    monkeypatch.setenv("N3NET_DATA", str(tmp_path))
    assert data_root(None) == tmp_path


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_16_bits_and_floats(tmp_path: Path, channels: int) -> None:
    """Gray of all types is the same picture; for training as for tests."""
    gray = np.arange(0, 240, dtype=np.uint8).reshape(12, 20)
    Image.fromarray(gray).save(tmp_path / "a.png")
    Image.fromarray(gray.astype(np.uint16) * 257).save(tmp_path / "b.png")
    Image.fromarray(gray.astype(np.uint16) * 257).save(tmp_path / "c.tif")
    Image.fromarray(gray.astype(np.float32) / 255).save(tmp_path / "d.tif")
    expected = gray if channels == 1 else np.dstack([gray] * 3)
    images, training = image_set(tmp_path), Images([tmp_path], channels)
    for i in range(4):
        np.testing.assert_array_equal(images.pixels(i, channels), expected)
        np.testing.assert_array_equal(training.images[i], expected.reshape(12, 20, channels))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_images_of_8_bits_are_as_pillow_reads_them(tmp_path: Path, mode: str) -> None:
    colors = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
    path = tmp_path / "a.tif"
    Image.fromarray(colors).convert(mode).save(path)
    with Image.open(path) as image:
        np.testing.assert_array_equal(image_set(tmp_path).pixels(0, 1), np.asarray(image.convert("L")))
        np.testing.assert_array_equal(image_set(tmp_path).pixels(0, 3), np.asarray(image.convert("RGB")))


def test_data_sets_of_the_same_name(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a/x/test", "b/x/test", "b/test", "Set5")]
    for path in paths:
        path.mkdir(parents=True)
        Image.new("L", (20, 20)).save(path / "0.png")
    assert [images.name for images in image_sets(paths)] == ["a/x/test", "b/x/test", "b/test", "Set5"]
    assert [images.name for images in image_sets(paths[2:])] == ["test", "Set5"]
    with pytest.raises(UserError, match="Set5: given 2 times"):
        image_sets([*paths, tmp_path / "a" / ".." / "Set5"])


def test_the_mean_of_eight_orientations_is_that_of_denoise(tmp_path: Path) -> None:
    path = save_small(tmp_path / "d.safetensors", "dncnn-17", noise_map=True)
    noisy = torch.rand(1, 30, 41, generator=torch.Generator().manual_seed(0))
    best = method(f"best={path}+best")
    assert best.name == "best"
    out = best.run(noisy, 25)[0].numpy()
    np.testing.assert_allclose(out, denoise(noisy[0].numpy(), 25, path, best=True), atol=1e-5)
    assert np.abs(out - method(str(path)).run(noisy, 25)[0].numpy()).max() > 1e-4


def test_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("lr=1e-3/best.safetensors")
    path.parent.mkdir()
    path.touch()
    for model in (f"{path}", f"nn3d:{path}", f"{path}+mutual", f"{path}+best"):
        assert split_label(model) == ("", model)
        assert split_label(f"mine={model}") == ("mine", model)
        assert split_label(f"k=7={model}") == ("k=7", model)
    assert split_label("gray") == ("", "gray")
    assert split_label("k=7=gray") == ("k=7", "gray")


def test_weights_in_a_directory_with_an_equals_sign(data: Path, tmp_path: Path) -> None:
    path = save_small(tmp_path / "lr=1e-3" / "best.safetensors")
    assert method(str(path)).name == str(path)
    assert method(f"mine={path}").name == "mine"


def test_the_crop_is_where_outputs_differ() -> None:
    clean = torch.zeros(1, 100, 120)
    other = clean.clone()
    other[:, 60:80, 90:110] = 1
    left, top, side = interesting_crop([clean, other], clean, 40)
    assert side == 40
    assert left <= 90 <= 110 <= left + side
    assert top <= 60 <= 80 <= top + side


def test_the_papers_figures() -> None:
    by = {(f.row, f.column): f.psnr for table in TABLES.values() for f in table.figures}
    assert by[("Set12, σ = 25", "N3Net")] == 30.55
    assert by[("BSD68, σ = 50", "N3Net")] == 26.39
    assert by[("Set12, σ = 25", "RED30")] is None
    assert by[("Urban100, σ = 50", "k = 4")] == 26.86
    assert by[("(ours full) 3 x DnCNN (d = 6), N3 block", "Urban100")] == 30.19
    for table in TABLES.values():  # every figure can be told apart from the others
        assert len({(f.row, f.column) for f in table.figures}) == len(table.figures)


@pytest.mark.parametrize("name", TABLES)
def test_without_weights_there_are_only_dashes(name: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n3net.evaluation.reproduce.METHODS", {})  # which need none
    table, measured = reproduce(TABLES[name], data.parent)
    assert not measured
    cells = [
        cell for line in to_markdown(table, measured).splitlines() if line.startswith("|") for cell in line.split("|")
    ]
    ours = [cell.split(" / ")[1].strip() for cell in cells if " / " in cell]
    assert ours
    assert set(ours) == {"–"}


@pytest.mark.parametrize(
    ("table", "column", "expected"),
    [("table3", "N3Net", "gray"), ("table3", "DnCNN", "dncnn-gray"), ("table5", "N3Net", "upscale")],
)
def test_weights_of_the_package_are_in_the_tables(table: str, column: str, expected: str) -> None:
    records = {path.stem: weights.info(path) for path in SHIPPED.glob("*.safetensors")}
    figures = [f for f in TABLES[table].figures if f.column == column]
    assert figures
    for figure in figures:
        assert list(candidates(figure, records, TASKS[TABLES[table].task])) == [expected]


def test_only_what_fits_is_measured(user: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n3net.evaluation.reproduce.METHODS", {})

    def save(name: str, sigma: Any, **config: Any) -> None:
        weights.save(user / f"{name}.safetensors", create("n3net", **config), {"training": {"sigma": sigma}})

    save("full", 25)
    save("few", 25, k=2)
    save("colour", 25, channels=3)
    save("narrow", 25, features=32)
    save("any", [0, 55], noise_map=True, options="reference-2018")
    table, measured = reproduce(TABLES["table3"], data.parent)
    found = {(m.figure.row, m.figure.column, m.weights) for m in measured}
    assert found == {
        ("Set12, σ = 25", "N3Net", "full"),
        ("Set12, σ = 25", "N3Net", "any"),
        ("Set12, σ = 50", "N3Net", "any"),
    }
    assert all(m.n == 3 for m in measured)
    assert len(to_json(table, measured)["results"]) == 3
    text = to_markdown(table, measured)
    assert "full, trained, 3 images\n" in text
    assert "any, trained, 3 images; one network for sigma 0 to 55" in text
    table, measured = reproduce(TABLES["table2"], data.parent, datasets=["Set12"])
    assert {(m.figure.row, m.figure.column) for m in measured if m.weights == "few"} == {("Set12, σ = 25", "k = 2")}
    assert all(m.figure.psnr is None for m in measured)  # the paper has no such figure


def test_nn3d_stands_on_a_dncnn() -> None:
    figure = next(f for f in TABLES["table3"].figures if f.column == "NN3D")
    recipe = create("dncnn-6", depth=17).recipe
    record = {"model": {"name": recipe.name, "config": recipe.config}, "training": {"sigma": 25}}
    half = {**record, "training": {"sigma": 10}}
    told = {**record, "model": {"name": recipe.name, "config": {**recipe.config, "noise_map": True}}}
    assert list(candidates(figure, {"base": record})) == []  # the second round has half the noise
    assert list(candidates(figure, {"base": record, "half": half})) == ["nn3d:base,half"]
    assert list(candidates(figure, {"base": told})) == ["nn3d:base"]
    assert list(candidates(replace(figure, level=50), {"base": told})) == []


def test_which_networks_stand_for_a_column() -> None:
    figures = {f.column: f for f in TABLES["table3"].figures if (f.dataset, f.level) == ("Set12", 25)}

    def stands(column: str, name: str, clipped: bool = False, **config: Any) -> bool:
        recipe = create(name, **config).recipe
        training = {"sigma": [5, 29], "clipped": clipped}
        record = {"model": {"name": recipe.name, "config": recipe.config}, "training": training}
        return bool(list(candidates(figures[column], {"x": record})))

    assert stands("NLNet", "nlnet")
    assert stands("NLNet", "nlnet", patch_size=7)
    assert not stands("NLNet", "nlnet", patch_size=5)
    assert not stands("NLNet", "nlnet", channels=3)
    assert not stands("NLNet", "unlnet")
    assert stands("UNLNet", "unlnet", filters=48)
    assert not stands("UNLNet", "unlnet", group=1)  # the UNet of the same paper
    assert stands("FFDNet", "ffdnet", depth=15, features=64, norm=False)
    assert not stands("FFDNet", "ffdnet", depth=3)
    assert not stands("FFDNet", "ffdnet", clipped=True)


def test_an_unknown_table() -> None:
    with pytest.raises(UserError, match="supplement, supplement-sr, table1, table2, table3, table4, table5, table6"):
        find_table("table9", TABLES)


@pytest.mark.parametrize("options", ["paper", "reference-2018"])
@pytest.mark.parametrize("size", [(60, 60), (93, 101)])
def test_weights_of_a_block_are_those_it_uses(options: str, size: tuple[int, int]) -> None:
    """Neighbours from the weights, by hand, are the block's own."""
    torch.manual_seed(0)
    model = create("n3net-light", features=4, depth=2, k=3, options=options).eval()
    block = model.net.blocks[0]
    x = torch.rand(1, 8, *size)
    with torch.no_grad():
        w, t = block.weights(x)
        expected = block(x)[:, 8:]
    if block.options.neighbors == "differences":
        expected = expected + x.repeat(1, 3, 1, 1)
    assert bool((t > 0).all())
    torch.testing.assert_close(w.sum(-1), torch.ones_like(w[..., 0]))
    from n3net.neighbors import reference
    from n3net.neighbors.grid import col2im, crop, pad

    pads, grid = block.matching.padding(*size), block.matching.grid(*size)
    padded = pad(x, pads)
    patches = reference._patches(padded, grid)[0]  # (Q, D)
    index = reference.slots_of(grid, x.device)  # (Q, M)
    mixed = torch.einsum("qkm,qmd->kdq", w[0].flatten(0, 1), patches[index])  # (k, D, Q)
    columns = mixed.reshape(3, 8 * 100, grid.query_rows, grid.query_cols)
    image = col2im(columns, padded.shape[-2], padded.shape[-1], 10, 5)  # (k, C, H, W)
    torch.testing.assert_close(crop(image, pads).flatten(0, 1)[None], expected, atol=1e-4, rtol=1e-4)


def test_look(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = create("n3net", features=4, depth=2, k=3).eval()
    image = torch.rand(1, 92, 105)
    out, views = look(model, image)
    with torch.no_grad():
        torch.testing.assert_close(out, model(image[None])[0])
    assert len(views) == 2
    means = mean_largest([views, [view.without_weights() for view in views]])
    assert len(means) == 2
    assert len(means[0]) == 3
    assert all(1 / 224 < value <= 1 for row in means for value in row)
    row, col = views[0].query_at(50, 40)
    left, top = views[0].corner(row, col)
    assert abs(left + 5 - 50) <= 2.5
    assert abs(top + 5 - 40) <= 2.5
    spread = views[0].spread(row, col)
    assert spread.shape == (3, 80, 80)
    torch.testing.assert_close(spread.sum((1, 2)), torch.full((3,), 100.0))
    pixels = interesting_pixels(views[0], image, 2)
    assert len(pixels) == 2
    pytest.importorskip("matplotlib")
    from n3net.inspection.picture import draw_inspection

    draw_inspection(tmp_path / "x.png", image, out, views, pixels)
    with Image.open(tmp_path / "x.png") as picture:
        assert picture.size[0] > 500


def test_nothing_to_look_into() -> None:
    with pytest.raises(UserError, match="no N3 blocks"):
        look(create("dncnn-6", features=4), torch.rand(1, 40, 40))


@pytest.mark.skipif(not (SHARED / "official").is_dir(), reason="the authors' weights are not beside this project")
def test_the_authors_network_on_one_image() -> None:
    """One image of Set12 at σ = 25, and the sharpness of its blocks that the supplement reports on average."""
    model, _ = weights.import_file(SHARED / "official" / "gaussian_sigma25.t7")
    images = image_set(SHARED / "data" / "Set12")
    clean = images.read(1)
    out, views = look(model, clean + noise(clean.shape, 25, 1))
    assert psnr(out.clamp(0, 1), clean) == pytest.approx(33.2, abs=0.15)
    first, second = mean_largest([views])
    assert first[0] == pytest.approx(0.21, abs=0.03)
    assert first[-1] == pytest.approx(0.11, abs=0.02)
    assert second[0] == pytest.approx(0.04, abs=0.01)
    assert second[-1] == pytest.approx(0.03, abs=0.01)


def test_a_method_may_be_any_function(data: Path) -> None:
    half = Method("half", lambda noisy, sigma: noisy / 2)
    assert len(evaluate([half], image_set(data, 1), [25])) == 1
    with pytest.raises(UserError, match="0 to 255"):
        evaluate([half], image_set(data, 1), [-1])
