"""Makes the first files of the corpus: small good ones of each kind, from which fuzzing starts.

python tests/fuzz/seeds.py
"""

from __future__ import annotations

import io
import json
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image, TiffImagePlugin

from n3net.correspondence.matchfile import Pair, write_pairs
from n3net.io import Metadata, Picture, write_image
from n3net.models import create
from n3net.weights import save

CORPUS = Path(__file__).parent / "corpus"


def seeds() -> dict[str, bytes]:
    """Path below the corpus -> content."""
    rng = np.random.default_rng(0)
    gray, color = (rng.integers(0, 256, shape, np.uint8) for shape in ((5, 6), (5, 6, 3)))
    deep = rng.integers(0, 65536, (4, 5, 3), np.uint16)
    tags = Image.Exif()
    tags[271], tags[274] = "Cam", 6
    tags.get_ifd(34665).update({33434: TiffImagePlugin.IFDRational(1, 60), 40962: 6, 40963: 5})
    full = Metadata(tags.tobytes(), b"profile" * 5, b"<x:xmpmeta/>", (72.0, 72.0))
    found: dict[str, bytes] = {"metadata/exif": tags.tobytes(), "metadata/text": b"<x:xmpmeta/>"}
    for format, name in (("PNG", "png"), ("JPEG", "jpg"), ("TIFF", "tif"), ("WEBP", "webp"), ("BMP", "bmp")):
        found[f"image/color.{name}"] = image(Picture(color, metadata=full), format)
    found["image/gray.png"] = image(Picture(gray), "PNG")
    found["image/deep.png"] = image(Picture(deep, alpha=deep[..., 0]), "PNG")
    found["image/deep.tif"] = image(Picture(deep), "TIFF")
    found["image/float.tif"] = image(Picture(np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5)), "TIFF")
    found["image/palette.png"] = with_pillow(Image.fromarray(color).quantize(4), "PNG", transparency=1)
    found["image/bits.tif"] = with_pillow(Image.fromarray(gray).convert("1"), "TIFF", compression="group4")
    found["image/lzw.tif"] = with_pillow(Image.fromarray(color), "TIFF", compression="tiff_lzw")
    found["raw/small.dng"] = dng()
    found |= networks() | matches(rng)
    found["config/whole.yaml"] = (
        b"base: gaussian-25\nsteps: 5\noptimizer: {lr: 1e-3, betas: [0.9, 0.99]}\ndata: {sigma: 25}\n"
    )
    found["config/own.yaml"] = b"task: gaussian\nmodel: {name: n3net, k: 2}\nepochs: 1.5\nschedule: {name: cosine}\n"
    found["override/number"] = b"optimizer.lr=5e-4"
    found["override/list"] = b"data.train=[a, b]"
    return found


def image(picture: Picture, format: str) -> bytes:
    file = io.BytesIO()
    write_image(file, picture, format)
    return file.getvalue()


def with_pillow(picture: Image.Image, format: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, format, **options)
    return file.getvalue()


def dng() -> bytes:
    """A mosaic of 16 x 16, as plain as a DNG file can be."""
    pixels = np.random.default_rng(1).integers(600, 16000, (16, 16), np.uint16).tobytes()
    tags = [
        *(
            (254, 4, 0),
            (256, 3, 16),
            (257, 3, 16),
            (258, 3, 16),
            (259, 3, 1),
            (262, 3, 32803),
            (273, 4, 0),
            (277, 3, 1),
        ),
        *((278, 3, 16), (279, 4, len(pixels)), (33421, 3, (2, 2)), (33422, 1, bytes([0, 1, 1, 2]))),
        *((50706, 1, bytes([1, 4, 0, 0])), (50708, 2, b"Cam\0"), (50714, 3, 512), (50717, 3, 16383)),
    ]
    begin = 8 + 2 + 12 * len(tags) + 4
    out = b"II*\0" + struct.pack("<IH", 8, len(tags))
    for tag, kind, given in tags:
        value = begin if tag == 273 else given
        if isinstance(value, bytes):
            out += struct.pack("<HHI", tag, kind, len(value)) + value.ljust(4, b"\0")
        else:
            values = value if isinstance(value, tuple) else (value,)
            out += struct.pack("<HHI", tag, kind, len(values))
            out += struct.pack(f"<{len(values)}{'H' if kind == 3 else 'I'}", *values).ljust(4, b"\0")
    return out + struct.pack("<I", 0) + pixels


def networks() -> dict[str, bytes]:
    torch.manual_seed(0)
    model = create("dncnn-6", depth=2, features=1, norm=False)
    with tempfile.TemporaryDirectory() as folder:
        ours = save(Path(folder) / "a.safetensors", model).read_bytes()
    file = io.BytesIO()
    state = {"model.0.weight": torch.ones(1, 1, 3, 3), "model.0.bias": torch.ones(1)}
    torch.save({**state, "model.2.weight": torch.ones(1, 1, 3, 3), "model.2.bias": torch.ones(1)}, file)
    return {"weights/small.safetensors": ours, "importer/kair.pth": file.getvalue()}


def matches(rng: np.random.Generator) -> dict[str, bytes]:
    found = {}
    x0, x1 = rng.random((2, 9, 2), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.pairs"
        write_pairs(path, [Pair(x0, x1, x0[:, 0], x0[:, 1] > 0.5, np.eye(3), np.ones(3), ("a", "b")), Pair(x0, x1)])
        found["pairs/two.pairs"] = path.read_bytes()
    for name, arrays in {
        "calibrated": {"x0": x0, "x1": x1},
        "pixels": {"points0": 100 * x0, "points1": 100 * x1, "size0": np.array([100, 80]), "K1": np.eye(3)},
        "index": {"keypoints0": x0, "keypoints1": x1, "matches": np.array([[0, 1], [2, 3]]), "K": np.eye(3)},
    }.items():
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
        found[f"npz/{name}.npz"] = file.getvalue()
    pose = {"K": np.eye(3).tolist(), "R": np.eye(3).tolist(), "t": [0, 0, 1], "width": 10, "height": 8, "k1": 0.1}
    found["cameras/cameras.json"] = json.dumps({"images": {"a.png": pose, "b.png": pose}}).encode()
    found["cameras/k.json"] = json.dumps({"K": np.eye(3).tolist()}).encode()
    return found


def database() -> bytes | None:
    """A COLMAP database, which is too large to keep; None without pycolmap."""
    try:
        import pycolmap
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        with pycolmap.Database.open(str(path)) as file:
            camera = pycolmap.Camera(model="PINHOLE", width=100, height=80, params=[90, 90, 50, 40])
            camera.camera_id = file.write_camera(camera)
            points = np.random.default_rng(0).random((12, 2)).astype(np.float32) * 80
            for name in ("a.png", "b.png"):
                number = file.write_image(pycolmap.Image(name=name, camera_id=camera.camera_id))
                file.write_keypoints(number, points)
            file.write_matches(1, 2, np.stack([np.arange(12, dtype=np.uint32)] * 2, 1))
        return path.read_bytes()


if __name__ == "__main__":
    for place, content in seeds().items():
        path = CORPUS / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sys.exit(0)
