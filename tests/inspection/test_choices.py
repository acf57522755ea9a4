"""What blocks choose."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from n3net import weights
from n3net.errors import UserError
from n3net.evaluation import psnr
from n3net.evaluation.gaussian import noise
from n3net.evaluation.images import image_set
from n3net.inspection.choices import interesting_pixels, look, mean_largest
from n3net.models import create

SHARED = Path(__file__).parents[3] / "shared"


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
