"""What holds for all images: what is written can be read again, and how the work is split changes nothing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import nn

import n3net
from n3net.errors import UserError
from n3net.io import FORMATS, Metadata, Picture, read_image, write_image
from n3net.models import create
from n3net.weights import save

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
DTYPES = st.sampled_from([np.uint8, np.uint16, np.float32])


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    """Gray or colour, any type, with or without alpha and metadata."""
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    dtype = np.dtype(draw(DTYPES))
    elements = st.floats(0, 1, width=32) if dtype == np.float32 else None
    shape = (height, width, 3) if draw(st.booleans()) else (height, width)
    pixels = draw(arrays.arrays(dtype, shape, elements=elements))
    alpha = draw(st.none() | arrays.arrays(dtype, (height, width), elements=elements))
    data = st.binary(min_size=1, max_size=200)
    metadata = Metadata(
        exif=draw(st.just(b"") | data.map(lambda d: b"Exif\0\0" + d)),
        icc_profile=draw(st.none() | data),
        xmp=draw(st.none() | data),
        dpi=draw(st.none() | st.tuples(st.floats(2, 60000), st.floats(2, 60000))),
    )
    return Picture(pixels, alpha, metadata=metadata)


@FEW
@pytest.mark.filterwarnings("ignore::UserWarning")
@given(pictures(), st.sampled_from(FORMATS))
def test_what_is_written_can_be_read_again(picture: Picture, format: str) -> None:
    file = io.BytesIO()
    if picture.alpha is not None and format in ("JPEG", "BMP"):
        with pytest.raises(UserError, match="alpha channel"):
            write_image(file, picture, format)
        return
    write_image(file, picture, format)
    back = read_image(file)
    lossless = format == "TIFF" or (format in ("PNG", "BMP") and picture.pixels.dtype == np.uint8)
    if format == "TIFF" and picture.metadata.exif:  # which is read upright
        assert back.pixels.size == picture.pixels.size
    else:
        assert back.pixels.shape[:2] == picture.pixels.shape[:2]
        assert not lossless or format == "BMP" or np.array_equal(back.pixels, picture.pixels)
    assert np.isfinite(back.pixels).all()
    if format in ("PNG", "TIFF", "WEBP", "JPEG"):
        assert back.metadata.icc_profile == picture.metadata.icc_profile
    if picture.alpha is not None and format in ("PNG", "TIFF"):
        assert back.alpha is not None
        assert back.alpha.size == picture.alpha.size
    if picture.metadata.dpi is not None and format in ("PNG", "TIFF", "JPEG"):
        assert back.metadata.dpi == pytest.approx(picture.metadata.dpi, rel=0.02, abs=0.6)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    options: dict[str, Any] = {"stages": 2, "depth": 2, "features": 6, "block_channels": 3, "k": 2, "noise_map": True}
    return create("n3net", patch_size=4, stride=2, window=5, **options).eval()


@settings(FEW, max_examples=15)
@given(st.integers(16, 50), st.integers(16, 50), st.integers(1, 60), st.integers(1, 2), st.integers(0, 9))
def test_tiles_and_threads_change_nothing(
    network: nn.Module, height: int, width: int, tile: int, threads: int, seed: int
) -> None:
    image = np.random.default_rng(seed).random((height, width)).astype(np.float32)
    whole = n3net.denoise(image, 20, network)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        parts = n3net.denoise(image, 20, network, tile=tile)
    finally:
        torch.set_num_threads(before)
    assert np.allclose(parts, whole, atol=2e-5)


def test_order_batches_and_reruns_change_nothing(network: nn.Module, tmp_path: Path, command: Any) -> None:
    from PIL import Image

    save(tmp_path / "a.safetensors", network)
    rng = np.random.default_rng(0)
    names = [f"{i}.png" for i in range(5)]
    (tmp_path / "in").mkdir()
    for name in names:
        Image.fromarray(rng.integers(0, 256, (20, 24), np.uint8)).save(tmp_path / "in" / name)

    def run(out: str, *inputs: str, more: tuple[str, ...] = ()) -> list[bytes]:
        files = [str(tmp_path / "in" / name) for name in inputs]
        model = str(tmp_path / "a.safetensors")
        code, _, err = command("denoise", *files, "-o", f"{tmp_path / out}/", "--model", model, "--sigma", "9", *more)
        assert code == 0, err
        return [(tmp_path / out / name).read_bytes() for name in sorted(inputs)]

    together = run("together", *names)
    assert run("backwards", *reversed(names)) == together
    assert [run("alone", name)[0] for name in names] == together
    assert run("together", *names, more=("--force",)) == together
