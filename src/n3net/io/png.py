"""PNG files with 16 bits of colour, which Pillow does not write."""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO

import numpy as np

from n3net.io.picture import Array, Metadata

BAND = 64  # rows that are filtered at a time
COLOR_TYPE = {2: 4, 3: 2, 4: 6}  # channels -> gray and alpha, RGB, RGB and alpha


def write_png16(file: BinaryIO, colors: Array, metadata: Metadata) -> None:
    """Write (H, W, C) of uint16, C = 2, 3 or 4."""
    height, width, channels = colors.shape
    file.write(b"\x89PNG\r\n\x1a\n")
    _chunk(file, b"IHDR", struct.pack(">IIBBBBB", width, height, 16, COLOR_TYPE[channels], 0, 0, 0))
    if metadata.icc_profile is not None:
        _chunk(file, b"iCCP", b"ICC Profile\0\0" + zlib.compress(metadata.icc_profile))
    if metadata.dpi is not None:
        _chunk(file, b"pHYs", struct.pack(">IIB", *(round(d / 0.0254) for d in metadata.dpi), 1))
    if metadata.exif:
        _chunk(file, b"eXIf", metadata.exif.removeprefix(b"Exif\0\0"))
    if metadata.xmp is not None:
        _chunk(file, b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + metadata.xmp)
    packer = zlib.compressobj(6)
    before = np.zeros((1, 2 * channels * width), np.uint8)
    for y in range(0, height, BAND):
        rows = np.ascontiguousarray(colors[y : y + BAND], ">u2").view(np.uint8).reshape(-1, 2 * channels * width)
        packed = packer.compress(_filtered(rows, before, 2 * channels).tobytes())
        if packed:
            _chunk(file, b"IDAT", packed)
        before = rows[-1:]
    _chunk(file, b"IDAT", packer.flush())
    _chunk(file, b"IEND", b"")


def _filtered(rows: Array, before: Array, step: int) -> Array:
    """Each row with the filter after which its bytes are smallest, and that filter's number in front of it."""
    up = np.concatenate([before, rows[:-1]])
    left, corner = (np.pad(r, ((0, 0), (step, 0)))[:, :-step] for r in (rows, up))
    guess = left.astype(np.int16) + up - corner
    to_left, to_up, to_corner = (np.abs(guess - r) for r in (left, up, corner))
    paeth = np.where((to_left <= to_up) & (to_left <= to_corner), left, np.where(to_up <= to_corner, up, corner))
    mean = ((left.astype(np.uint16) + up) // 2).astype(np.uint8)
    options = np.stack([rows, rows - left, rows - up, rows - mean, rows - paeth])  # (5, rows, bytes), modulo 256
    best = np.abs(options.view(np.int8).astype(np.int16)).sum(-1, dtype=np.int64).argmin(0)  # (rows,)
    return np.concatenate([best[:, None].astype(np.uint8), options[best, np.arange(len(rows))]], 1)


def _chunk(file: BinaryIO, kind: bytes, data: bytes) -> None:
    file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
