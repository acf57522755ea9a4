"""The ways in which PyTorch may be running this code, where they make a difference."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

Function = TypeVar("Function", bound=Callable[..., Tensor])


def tracing() -> bool:
    """Whether ``torch.jit.trace`` is recording."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined]


def transforms_active() -> bool:
    """Whether this runs inside a transform of ``torch.func``, such as ``grad`` or ``vmap``, or in forward mode."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def constant(size: int) -> int:
    """A size of a tensor, under ``torch.compile`` as a number, for which the program is then compiled.

    Tiles of a size that is a symbol are long expressions, over which PyTorch's compiler takes many times as long.
    """
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return len(range(size))  # what the compiler must know as a number
    return size


def readable(*tensors: Tensor) -> bool:
    """Whether the values of tensors are at hand: on the CPU, with no compiler, tracer or transform in between.

    Anywhere else to read a value means to wait for the device, or is impossible. So only these values are checked.
    """
    if torch.compiler.is_compiling() or tracing() or transforms_active():
        return False
    return all(type(t) in (Tensor, Parameter) and t.device.type == "cpu" for t in tensors)


def undisturbed(function: Function) -> Function:
    """Decorator of a function of matching, whose first argument is a problem with ``values``.

    Autocast would compute distances from products in half precision, and their differences have no digits to spare. A
    trace would keep for all sizes what was worked out for one, so it is refused.
    """

    @wraps(function)
    def run(problem: Any, *args: Any, **kwargs: Any) -> Tensor:
        if tracing():
            raise RuntimeError(
                "n3net: torch.jit.trace would make a program that is right for one size of its input and wrong for "
                "others; use torch.export.export, or torch.compile"
            )
        device = problem.values.device.type
        if not torch.amp.is_autocast_available(device):
            return function(problem, *args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(problem, *args, **kwargs)

    return cast(Function, run)
