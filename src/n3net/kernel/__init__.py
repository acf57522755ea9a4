"""The compiled kernel: the C++ beside this file, through ctypes. Without it, all runs on PyTorch alone."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

INTERFACE = 4  # of the kernel that this package was written for
_FILE = Path(__file__).with_name("libn3net.so")  # under this name on every system
_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}


def _load() -> tuple[ctypes.CDLL | None, str]:
    """The kernel, and if there is none, why."""
    if not _FILE.is_file():
        return None, "the compiled kernel was not built (no C++ compiler, or one that failed, when n3net was installed)"
    try:
        library = ctypes.CDLL(str(_FILE))
        library.n3_instruction_set.restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        return None, f"the compiled kernel does not load: {error}"
    if not hasattr(library, "n3_interface") or library.n3_interface() != INTERFACE:
        return None, "the compiled kernel is that of an older version, install n3net again"
    return library, ""


_LIBRARY, _MISSING = _load()


def instruction_set() -> str | None:
    """What the kernel uses on this processor, or None where there is no kernel."""
    return None if _LIBRARY is None else _LIBRARY.n3_instruction_set().decode()


def why_not(values: Tensor) -> str | None:
    """Why the kernel cannot compute with tensors like this one, or None."""
    if _MISSING:
        return _MISSING
    if values.device.type != "cpu":
        return f"it runs on the CPU, the tensors are on {values.device}"
    if values.dtype not in _SUFFIX:
        return f"it computes in float32 and float64, not {values.dtype}"
    if torch.compiler.is_exporting():
        return "an exported program must not depend on it"
    return None


def run(
    name: str,
    problem: ctypes.Structure,
    *tensors: Tensor | ctypes.Structure | ctypes.Array[Any] | None,
    dtype: torch.dtype | None = None,
) -> None:
    """Call a function of the kernel; tensors are given as they lie in memory."""
    own = [t if isinstance(t, Tensor) else getattr(t, "tensor", None) for t in tensors]
    dtype = dtype or next(t.dtype for t in own if t is not None)
    pointers = (_pointer(t) if t is None or isinstance(t, Tensor) else ctypes.byref(t) for t in tensors)
    if getattr(_LIBRARY, f"n3_{name}_{_SUFFIX[dtype]}")(ctypes.byref(problem), *pointers):
        shapes = [tuple(t.shape) for t in tensors if isinstance(t, Tensor)]
        raise MemoryError(f"n3net: out of memory in {name} for tensors {shapes}")


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
