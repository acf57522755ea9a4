"""Image files of all kinds as 8 bits, gray or RGB: what networks are trained and measured on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from n3net.errors import UserError
from n3net.io.reading import read_image

Bytes = npt.NDArray[np.uint8]


def read_eight_bits(path: Path, channels: int) -> Bytes:
    """Read an image as (H, W), where ``channels`` is 1, or (H, W, 3); colour becomes gray by ITU-R 601."""
    try:
        pixels = read_image(path).as_type(np.uint8)
    except UserError as error:
        raise UserError(f"{path}: cannot be read as an image ({error})") from error
    return np.asarray(Image.fromarray(pixels).convert("L" if channels == 1 else "RGB"), np.uint8)
