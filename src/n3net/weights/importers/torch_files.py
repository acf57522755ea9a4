"""Files that torch.save wrote, without executing anything in them."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import torch
from torch import Tensor

from n3net.errors import UserError
from n3net.weights.importers.content import State


def read(path: Path) -> State:
    """The tensors of a file; beside tensors there may be nothing in it."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                broken = file.testzip()  # torch does not look at the checksums
            if broken is not None:
                raise UserError(f"{path}: damaged, {broken!r} in it does not match its checksum; get it again")
        content = torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path}: refused: the file is broken, or holds code beside tensors, which n3net never runs"
        ) from error
    except (UserError, MemoryError):
        raise
    except Exception as error:  # torch raises whatever the bytes of a broken file lead to
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: broken or truncated, torch cannot read it ({reason})") from error
    for key in ("net", "state_dict", "params"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(isinstance(v, Tensor) for v in content.values()):
        raise UserError(f"{path}: expected a dictionary of tensors, got {type(content).__name__}")
    for name, value in content.items():
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise UserError(f"{path}: refused: {name} claims to be {tuple(value.shape)}, more than the file holds")
    return {str(name).removeprefix("module."): value.float() for name, value in content.items()}
