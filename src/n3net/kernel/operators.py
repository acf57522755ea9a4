"""Functions of the compiled kernel as operators of PyTorch: what compilers, profilers and transforms see of them.

``torch.library.custom_op`` makes such operators, too, but the first call of one imports PyTorch's compiler, which takes
seconds, and its gradients do not work under ``torch.func``. Here neither is so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from n3net.modes import transforms_active


def _nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """A gradient that is only an error needs nothing of its operator."""


def _no_forward_mode(ctx: Any, *tangents: Any) -> None:
    raise RuntimeError(
        "n3net: the compiled kernel has no derivative in forward mode (jvp, jacfwd, hessian); use backend='tiled', or "
        "jacrev"
    )


class Operator:
    """A function of tensors on the CPU as an operator, with the registrations of ``torch.library``.

    Args:
        name: ``"n3net::..."``.
        compute: the function, its arguments and result annotated; it must return new tensors.
        rows: whether tensors have any leading dimensions. Otherwise each begins with one batch dimension, into which
            ``vmap`` folds its own.
    """

    def __init__(self, name: str, compute: Callable[..., Any], rows: bool = False) -> None:
        self.name, self.rows = name, rows
        torch.library.define(name, torch.library.infer_schema(compute, mutates_args=()))
        torch.library.impl(name, "cpu", compute)
        namespace, short = name.split("::")
        self.overload = getattr(getattr(torch.ops, namespace), short).default
        self.function: type[torch.autograd.Function] | None = None
        torch.library.register_vmap(name, self._vmap)

    def __call__(self, *arguments: Any) -> Any:
        if self.function is not None and transforms_active():
            return self.function.apply(*arguments)
        return self.overload(*arguments)

    def register_fake(self, shape: Callable[..., Any]) -> Callable[..., Any]:
        """What the operator returns, without its values."""
        torch.library.register_fake(self.name, shape)
        return shape

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., None] = _nothing) -> None:
        """The gradient, once as PyTorch has it for operators and once in the form that ``torch.func`` needs."""
        torch.library.register_autograd(self.name, backward, setup_context=setup_context)
        parts = {
            "generate_vmap_rule": True,
            "forward": staticmethod(self.overload),
            "setup_context": staticmethod(setup_context),
            "backward": staticmethod(backward),
            "jvp": staticmethod(_no_forward_mode),
        }
        self.function = type(self.name.replace("::", "_"), (torch.autograd.Function,), parts)

    def _vmap(self, info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        """All of the mapped dimension at once, moved to the front."""
        batch = 1

        def front(x: Any, dim: int | None) -> Any:
            nonlocal batch
            if not isinstance(x, Tensor):
                return x
            x = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            if self.rows:
                return x
            batch = x.shape[1]
            return x.flatten(0, 1)

        def back(x: Tensor) -> Tensor:
            return x if self.rows else x.unflatten(0, (info.batch_size, batch))

        out = self.overload(*map(front, arguments, in_dims))
        if isinstance(out, Tensor):
            return back(out), 0
        return tuple(map(back, out)), (0,) * len(out)


def operator(name: str, rows: bool = False) -> Callable[[Callable[..., Any]], Operator]:
    """Decorator: the function as an :class:`Operator`."""
    return lambda compute: Operator(name, compute, rows)
