"""Sets of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from n3net.errors import UserError
from n3net.evaluation.images import data_root, image_set, image_sets
from n3net.tasks.data import Images

pytestmark = pytest.mark.usefixtures("user")


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
