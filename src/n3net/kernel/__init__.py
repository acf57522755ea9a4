"""The compiled kernel: the C++ beside this file, through ctypes. Without it, all runs on PyTorch alone."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from n3net.kernel.door import pointers

INTERFACE = 6  # of the kernel that this package was written for
_FILE = Path(__file__).with_name("libn3net.so")  # under this name on every system
_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}


def _load() -> tuple[ctypes.CDLL | None, str]:
    """The kernel, and if there is none, why."""
    file = Path(os.environ.get("N3NET_KERNEL") or _FILE)  # another one, for tests
    if not file.is_file():
        return None, "the compiled kernel was not built (no C++ compiler, or one that failed, when n3net was installed)"
    try:
        library = ctypes.CDLL(str(file))
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


def run(name: str, problem: ctypes.Structure, *arguments: Any, dtype: torch.dtype | None = None) -> None:
    """Call a function of the kernel with what :mod:`n3net.kernel.door` declares for it.

    Args:
        name: of the function.
        problem: its sizes.
        arguments: tensors, and structures with a ``tensor``, as they lie in memory.
        dtype: of the numbers, by default that of the first argument.

    Raises:
        ValueError: an argument, or the problem, does not fit.
        MemoryError: there is too little of it.
    """
    if _LIBRARY is None:
        raise RuntimeError(f"n3net: {name} needs the kernel: {_MISSING}")
    dtype = dtype or getattr(arguments[0], "tensor", arguments[0]).dtype
    if dtype not in _SUFFIX:
        raise ValueError(f"n3net: the kernel computes in float32 and float64, not {dtype}")
    places = pointers(name, problem, arguments, dtype)
    code = getattr(_LIBRARY, f"n3_{name}_{_SUFFIX[dtype]}")(ctypes.byref(problem), *places)
    if code == 0:
        return
    sizes = ", ".join(f"{field[0]} {getattr(problem, field[0])}" for field in problem._fields_)
    if code == 1:
        raise MemoryError(f"n3net: out of memory in {name} of the kernel for {sizes}")
    raise ValueError(f"n3net: {name} of the kernel cannot compute with {sizes}")
