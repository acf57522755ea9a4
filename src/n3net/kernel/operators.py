"""Functions of the compiled kernel as operators of PyTorch: what compilers, profilers and transforms see of them.

``torch.library.custom_op`` makes such operators, too, but the first call of one imports PyTorch's compiler, which takes
seconds, and its gradients do not work under ``torch.func``. Here neither is so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from n3net.modes import transforms_active

Mapped = Literal["batch", "rows", "each"]


def _requires_grad(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


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
        mapped: what ``vmap`` does: ``"batch"``, each tensor begins with one batch dimension, into which that of vmap is
            folded; ``"rows"``, tensors may have any leading dimensions; ``"each"``, some tensors have no batch, so that
            the function is called for one after the other.
    """

    def __init__(self, name: str, compute: Callable[..., Any], mapped: Mapped = "batch") -> None:
        self.name, self.mapped = name, mapped
        torch.library.define(name, torch.library.infer_schema(compute, mutates_args=()))
        torch.library.impl(name, "cpu", compute)
        namespace, short = name.split("::")
        self.overload = getattr(getattr(torch.ops, namespace), short).default
        self.function: type[torch.autograd.Function] | None = None
        self.recorded: type[torch.autograd.Function] | None = None
        torch.library.register_vmap(name, self._vmap)

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.overload(*arguments)
        if transforms_active():
            return (self.overload if self.function is None else self.function.apply)(*arguments)
        # PyTorch's own way from an operator to its gradient does the same through twice as much Python.
        if self.recorded is not None and torch.is_grad_enabled() and any(map(_requires_grad, arguments)):
            return self.recorded.apply(*arguments)
        return self._computed(*arguments)

    def _computed(self, *arguments: Any) -> Any:
        """Without a gradient."""
        with torch._C._AutoDispatchBelowAutograd():
            return self.overload(*arguments)

    def register_fake(self, shape: Callable[..., Any]) -> Callable[..., Any]:
        """What the operator returns, without its values."""
        torch.library.register_fake(self.name, shape)
        return shape

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., None] = _nothing) -> None:
        """The gradient: for compilers as PyTorch has it for operators, for ``torch.func``, and for plain calls."""
        torch.library.register_autograd(self.name, backward, setup_context=setup_context)

        def forward(ctx: Any, *arguments: Any) -> Any:
            out = self._computed(*arguments)
            setup_context(ctx, arguments, out)
            return out

        name = self.name.replace("::", "_")
        both = {"backward": staticmethod(backward), "jvp": staticmethod(_no_forward_mode)}
        self.recorded = type(name, (torch.autograd.Function,), {**both, "forward": staticmethod(forward)})
        parts = {
            "generate_vmap_rule": True,
            "forward": staticmethod(self.overload),
            "setup_context": staticmethod(setup_context),
        }
        self.function = type(name, (torch.autograd.Function,), {**both, **parts})

    def _vmap(self, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        out = (self._each if self.mapped == "each" else self._at_once)(info.batch_size, in_dims, arguments)
        return (out, 0) if isinstance(out, Tensor) else (out, (0,) * len(out))

    def _each(self, count: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
        """One after the other."""

        def at(i: int, x: Any, dim: Any) -> Any:
            if isinstance(x, list | tuple):
                dims = dim if isinstance(dim, list | tuple) else [dim] * len(x)
                return [at(i, *pair) for pair in zip(x, dims, strict=True)]
            if not isinstance(x, Tensor):
                return x
            if count == 0:  # only shapes can be told
                return x.new_empty([n for d, n in enumerate(x.shape) if d != dim], device="meta")
            return x if dim is None else x.select(dim, i)

        out = [
            self.overload(*(at(i, x, dim) for x, dim in zip(arguments, in_dims, strict=True)))
            for i in range(max(count, 1))
        ]

        def stacked(*results: Tensor) -> Tensor:
            first = results[0]
            return torch.stack(results) if count else torch.empty((0, *first.shape), dtype=first.dtype)

        return stacked(*out) if isinstance(out[0], Tensor) else tuple(map(stacked, *out))

    def _at_once(self, count: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
        """All of the mapped dimension, moved to the front."""
        batch, rows = 1, self.mapped == "rows"

        def front(x: Any, dim: int | None) -> Any:
            nonlocal batch
            if not isinstance(x, Tensor):
                return x
            x = x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
            if rows:
                return x
            batch = x.shape[1]
            return x.flatten(0, 1)

        def back(x: Tensor) -> Tensor:
            return x if rows else x.unflatten(0, (count, batch))

        out = self.overload(*map(front, arguments, in_dims))
        return back(out) if isinstance(out, Tensor) else tuple(map(back, out))


def operator(name: str, mapped: Mapped = "batch") -> Callable[[Callable[..., Any]], Operator]:
    """Decorator: the function as an :class:`Operator`."""
    return lambda compute: Operator(name, compute, mapped)
