"""Files of numpy arrays (npz, npy) of strangers: read without running what is in them, or filling all memory."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from n3net.errors import UserError
from n3net.io.files import opened, writing

Array = npt.NDArray[Any]

MAX_BYTES = 2_000_000_000
# What numpy and zipfile raise where a file is damaged, is of another kind or is encrypted.
DAMAGED = (
    *(ValueError, TypeError, EOFError, KeyError, OverflowError, MemoryError, RuntimeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)


def read_arrays(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, Array]:
    """All arrays of an npz file by name; that of an npy file under the name "K".

    Raises:
        UserError: it is no such file, is damaged, has objects in it, or more than ``max_bytes`` when decompressed.
    """
    try:
        with opened(path) as file:
            if not zipfile.is_zipfile(file):
                file.seek(0)
                return {"K": np.lib.format.read_array(file, allow_pickle=False)}
            with zipfile.ZipFile(file) as archive:
                size = sum(member.file_size for member in archive.infolist())
            if size > max_bytes:
                raise UserError(f"{path}: {size} bytes when decompressed, more than the limit of {max_bytes}")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except DAMAGED:  # whose words are about programs: to allow pickled objects, for one
        raise UserError(f"{path}: not a readable file of numpy arrays") from None


def write_arrays(path: Path, arrays: Mapping[str, Array], force: bool) -> None:
    """Write an npz file, compressed, whole or not at all."""
    with writing(path, force) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
