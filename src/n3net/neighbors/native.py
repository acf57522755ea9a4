"""The compiled CPU backend: :mod:`n3net.kernel` as PyTorch operators with gradients."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from n3net import kernel
from n3net.kernel.operators import operator
from n3net.neighbors import all_pairs, native_sets
from n3net.neighbors.grid import Grid
from n3net.neighbors.limits import logits_of
from n3net.neighbors.problem import Images, Sets, Windows


class _Problem(ctypes.Structure):
    """Mirrors ``Problem`` in kernel.cpp."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "batch",
            "rows",
            "cols",
            "cell",
            "patch",
            "window",
            "clip",
            "embedding",
            "channels",
            "k",
            "euclidean",
            "differences",
            "hard",
            "threads",
        )
    ]


class _Image(ctypes.Structure):
    """Mirrors ``Image`` in kernel.cpp; ``tensor`` is whose memory it describes."""

    tensor: Tensor
    _fields_ = [
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "channel", "row", "col", "height", "width", "top", "left")),
    ]


def _image(images: Tensor, top: int = 0, left: int = 0) -> _Image:
    """(B, C, H, W) in any layout, from row ``top`` and column ``left`` of the grid on."""
    image = _Image(images.data_ptr(), *images.stride(), *images.shape[2:], top, left)
    image.tensor = images
    return image


class _Rows(ctypes.Structure):
    """Mirrors ``Rows`` in kernel.cpp."""

    _fields_ = [(name, ctypes.c_int64) for name in ("rows", "slots", "k", "threads")]


def why_not(problem: Images | Windows | Sets) -> str | None:
    """Why this backend cannot run, or None."""
    rule = problem.choice.rule
    if not isinstance(problem, Sets) and problem.time.reach:
        return "its windows do not reach into other frames"
    if rule not in ("continuous", "hard"):
        return f"it knows the rules 'continuous' and 'hard', not {rule!r}"
    return kernel.why_not(problem.values)


def _call(name: str, grid: list[int], sizes: dict[str, int], *tensors: Tensor | _Image) -> None:
    rows, cols, cell, patch, window, clip = grid
    problem = _Problem(
        rows=rows,
        cols=cols,
        cell=cell,
        patch=patch,
        window=window,
        clip=clip,
        threads=torch.get_num_threads(),
        **sizes,
    )
    kernel.run(name, problem, *tensors)


def _volumes(values: Tensor, k: int, height: int, width: int) -> Tensor:
    """Room for the result, (B, k C, height, width), in the memory format of the values."""
    last = not values.is_contiguous() and values.is_contiguous(memory_format=torch.channels_last)
    shape, form = (values.shape[0], k * values.shape[1], height, width), torch.contiguous_format
    return torch.empty(
        shape, dtype=values.dtype, device=values.device, memory_format=torch.channels_last if last else form
    )


def _sizes(embedding: Tensor | None = None, values: Tensor | None = None, **others: int) -> dict[str, int]:
    images = {"embedding": embedding, "channels": values}
    given = {name: t for name, t in images.items() if t is not None}
    batch = next(iter(given.values())).shape[0]
    return {"batch": batch, **{name: t.shape[1] for name, t in given.items()}, **others}


def _queries(grid: list[int]) -> tuple[int, int]:
    return grid[0] - grid[3] + 1, grid[1] - grid[3] + 1


@operator("n3net::window_distances")
def _distances(embedding: Tensor, grid: list[int]) -> Tensor:
    d = embedding.new_empty(embedding.shape[0], *_queries(grid), grid[4] ** 2)
    _call("distances", grid, _sizes(embedding), _image(embedding), d)
    return d


@_distances.register_fake
def _(embedding: Tensor, grid: list[int]) -> Tensor:
    return embedding.new_empty(embedding.shape[0], *_queries(grid), grid[4] ** 2)


@operator("n3net::window_distances_backward")
def _distances_backward(g: Tensor, embedding: Tensor, grid: list[int]) -> Tensor:
    g_embedding = torch.zeros_like(embedding)
    _call("distances_backward", grid, _sizes(embedding), _image(embedding), g.contiguous(), _image(g_embedding))
    return g_embedding


@_distances_backward.register_fake
def _(g: Tensor, embedding: Tensor, grid: list[int]) -> Tensor:
    return torch.empty_like(embedding)


@operator("n3net::window_aggregate")
def _aggregate(logits: Tensor, strength: Tensor, values: Tensor, grid: list[int], k: int, hard: bool) -> Tensor:
    out = _volumes(values, k, *values.shape[2:])
    sizes = _sizes(values=values, k=k, hard=hard)
    _call("aggregate", grid, sizes, logits.contiguous(), strength.contiguous(), _image(values), _image(out))
    return out


@_aggregate.register_fake
def _(logits: Tensor, strength: Tensor, values: Tensor, grid: list[int], k: int, hard: bool) -> Tensor:
    return _volumes(values, k, *values.shape[2:])


@operator("n3net::window_aggregate_backward")
def _aggregate_backward(
    g: Tensor, logits: Tensor, strength: Tensor, values: Tensor, grid: list[int], k: int, hard: bool
) -> tuple[Tensor, Tensor, Tensor]:
    logits, strength = logits.contiguous(), strength.contiguous()
    g_logits, g_strength, g_values = torch.empty_like(logits), torch.empty_like(strength), torch.zeros_like(values)
    sizes, images = _sizes(values=values, k=k, hard=hard), [_image(t) for t in (g, values, g_values)]
    _call("aggregate_backward", grid, sizes, images[0], logits, strength, images[1], g_logits, g_strength, images[2])
    return g_logits, g_strength, g_values


@_aggregate_backward.register_fake
def _(
    g: Tensor, logits: Tensor, strength: Tensor, values: Tensor, grid: list[int], k: int, hard: bool
) -> tuple[Tensor, Tensor, Tensor]:
    contiguous = torch.contiguous_format
    return (
        torch.empty_like(logits, memory_format=contiguous),
        torch.empty_like(strength, memory_format=contiguous),
        torch.empty_like(values),
    )


@operator("n3net::window_neighbors")
def _neighbors(
    embedding: Tensor,
    scale: Tensor,
    strength: Tensor,
    values: Tensor,
    grid: list[int],
    places: list[int],
    k: int,
    euclidean: bool,
    differences: bool,
    beside: bool,
    hard: bool,
) -> Tensor:
    top, left, height, width = places[6:]
    out = _volumes(values, k + beside, height, width)
    c = values.shape[1]
    if beside:
        y, x = top - places[4], left - places[5]
        out[:, :c] = values[..., y : y + height, x : x + width]
    images = [
        _image(embedding, *places[:2]),
        *(_image(t[:, None], *places[2:4]) for t in (scale, strength)),
        _image(values, *places[4:6]),
        _image(out[:, c:] if beside else out, top, left),
    ]
    sizes = _sizes(embedding, values, k=k, euclidean=euclidean, differences=differences, hard=hard)
    _call("neighbors", grid, sizes, *images)
    return out


@_neighbors.register_fake
def _(embedding: Tensor, scale: Tensor, strength: Tensor, values: Tensor, grid: list[int], *others: Any) -> Tensor:
    places, k, _, _, beside, _ = others
    return _volumes(values, k + beside, *places[8:])


@operator("n3net::select", mapped="rows")
def _selection(z: Tensor, strength: Tensor, k: int) -> Tensor:
    z, strength = z.contiguous(), strength.contiguous()
    w = z.new_empty(*z.shape[:-1], k, z.shape[-1])
    kernel.run("select", _rows(z, k), z, strength, w)
    return w


@_selection.register_fake
def _(z: Tensor, strength: Tensor, k: int) -> Tensor:
    return z.new_empty(*z.shape[:-1], k, z.shape[-1])


@operator("n3net::select_backward", mapped="rows")
def _selection_backward(g: Tensor, z: Tensor, strength: Tensor, k: int) -> tuple[Tensor, Tensor]:
    g, z, strength = (t.contiguous() for t in (g, z, strength))
    grads = torch.empty_like(z), torch.empty_like(strength)
    kernel.run("select_backward", _rows(z, k), g, z, strength, *grads)
    return grads


@_selection_backward.register_fake
def _(g: Tensor, z: Tensor, strength: Tensor, k: int) -> tuple[Tensor, Tensor]:
    contiguous = torch.contiguous_format
    return torch.empty_like(z, memory_format=contiguous), torch.empty_like(strength, memory_format=contiguous)


def _rows(z: Tensor, k: int) -> _Rows:
    return _Rows(rows=z[..., 0].numel(), slots=z.shape[-1], k=k, threads=torch.get_num_threads())


def _distances_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.grid = inputs[1]


def _distances_grad(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
    return _distances_backward(g, *ctx.saved_tensors, ctx.grid), None


def _aggregate_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.rest = inputs[3:]


def _aggregate_grad(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    return *_aggregate_backward(g, *ctx.saved_tensors, *ctx.rest), None, None, None


def _selection_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.k = inputs[2]


def _selection_grad(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    return *_selection_backward(g, *ctx.saved_tensors, ctx.k), None


def _no_gradient(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "n3net: window_neighbors is for torch.no_grad() and has no gradient; use N3Block2d or match_images, which take "
        "other operators of the kernel where gradients are recorded"
    )


def _no_second_gradient(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "n3net: the compiled kernel has no second derivative; use backend='tiled' of N3Block2d, N3Block, match_images "
        "or match_sets where you need one (create_graph=True, gradient penalties, Hessians)"
    )


_distances.register_autograd(_distances_grad, setup_context=_distances_setup)
_aggregate.register_autograd(_aggregate_grad, setup_context=_aggregate_setup)
_selection.register_autograd(_selection_grad, setup_context=_selection_setup)
_neighbors.register_autograd(_no_gradient)
_distances_backward.register_autograd(_no_second_gradient)
_aggregate_backward.register_autograd(_no_second_gradient)
_selection_backward.register_autograd(_no_second_gradient)


def _flat(grid: Grid) -> list[int]:
    return [grid.rows, grid.cols, grid.cell, grid.patch, grid.window, int(grid.border == "clip")]


def distances(embedding: Tensor, grid: Grid) -> Tensor:
    """Squared distances of patches, 0 where a slot is no candidate: (B, C, H, W) -> (B, Qh, Qw, M)."""
    result: Tensor = _distances(embedding, _flat(grid))
    return result


def windows(problem: Windows) -> Tensor:
    """All neighbours of all patches as volumes, (B, k C, H, W); without gradients in one sweep."""
    if not torch.is_grad_enabled() and problem.gain is None:
        return sweep(problem)
    p, choice = problem, problem.choice
    z = logits_of(p, distances(p.embedding, p.grid))  # (B, Qh, Qw, M)
    result: Tensor = _aggregate(z, choice.strength, p.values, _flat(p.grid), choice.k, choice.rule == "hard")
    return result


@dataclass(frozen=True)
class Places:
    """Where tensors lie on the grid of an image that they are a part of: first row and column, each.

    Args:
        embedding, values: in pixels.
        queries: of scale and strength, in patches.
        result: what is computed: first row and column, height and width, in pixels.
    """

    embedding: tuple[int, int]
    queries: tuple[int, int]
    values: tuple[int, int]
    result: tuple[int, int, int, int]


def sweep(problem: Windows, places: Places | None = None, *, differences: bool = False, beside: bool = False) -> Tensor:
    """All that :func:`n3net.neighbors.match_images` does, without gradients, for a part of an image.

    The problem's tensors lie where ``places`` says, by default on the whole grid; its gain is in its scale already.
    """
    p, choice = problem, problem.choice
    places = Places((0, 0), (0, 0), (0, 0), (0, 0, *p.values.shape[2:])) if places is None else places
    flat = [*places.embedding, *places.queries, *places.values, *places.result]
    tensors = p.embedding, choice.scale, choice.strength, p.values
    euclidean, hard = choice.distance == "euclidean", choice.rule == "hard"
    result: Tensor = _neighbors(*tensors, _flat(p.grid), flat, choice.k, euclidean, differences, beside, hard)
    return result


def select(z: Tensor, strength: Tensor, k: int) -> Tensor:
    """:func:`n3net.selection.select_from_logits` with the rule "continuous": (..., M), (...) -> (..., k, M)."""
    result: Tensor = _selection(z, strength, k)
    return result


def sets(problem: Sets) -> Tensor:
    """All neighbours of all queries, (B, Q, k, C)."""
    if problem.candidates is not None:
        return native_sets.neighbors(problem)
    return all_pairs.neighbors(problem, select)
