"""Parts of what N3 blocks match are cut out of the whole, whatever else is there."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from n3net.neighbors import Matching
from n3net.neighbors.parts import Layout, Part, Parts, match_part
from problems import match_images

BACKENDS = ["reference", "dense", "tiled", "native"]


def maps(matching: Matching, height: int, width: int, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    grid = matching.grid(height, width)
    sizes = {
        "embedding": (3, height, width),
        "values": (2, height, width),
        "scales": (2, grid.query_rows, grid.query_cols),
    }
    return {name: torch.rand(1, *size, generator=generator, dtype=dtype) for name, size in sizes.items()}


def needed(side: Any, part: slice) -> tuple[slice, slice]:
    """Literally: patches in the windows of all that have a pixel of the part, one by one, and their pixels."""
    m, n = side.matching, side.patches
    first = [q * m.stride - side.before for q in range(n)]
    patches = set()
    for q in range(n):
        if any(first[q] <= x < first[q] + m.patch_size for x in range(part.start, part.stop)):
            start = q - m.window // 2
            if m.border == "shift":
                start = min(max(start, 0), max(n - m.window, 0))
            patches |= {p for p in range(start, start + m.window) if 0 <= p < n}
    pixels = {x for p in patches for x in range(first[p], first[p] + m.patch_size) if 0 <= x < side.size}
    return slice(min(patches), max(patches) + 1), slice(min(pixels), max(pixels) + 1)


MATCHINGS = [
    Matching(10, 5, 3),
    Matching(6, 3, 5, "clip"),
    Matching(4, 4, 4),
    Matching(7, 3, 3),
    Matching(5, 2, 4, "clip"),
    Matching(3, 1, 3),
]


@pytest.mark.parametrize("matching", MATCHINGS, ids=str)
@pytest.mark.parametrize("size", [41, 12, 3])
def test_sides_say_what_is_seen(matching: Matching, size: int) -> None:
    side = Layout.of(matching, size, size).rows
    for start, stop in itertools.combinations(range(size + 1), 2):
        part = slice(start, stop)
        patches = side.seen(side.touching(part))
        assert (patches, side.pixels(patches)) == needed(side, part)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("matching", MATCHINGS, ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"distance": "euclidean", "rule": "hard"}, {"differences": True, "beside": True}]
)
def test_parts_are_those_of_the_whole(backend: str, matching: Matching, options: dict[str, Any]) -> None:
    height, width = 43, 38
    given = maps(matching, height, width)
    scale, strength = given["scales"].unbind(1)
    whole = match_images(given["embedding"], given["values"], scale, strength, 2, matching, **options)
    layout = Layout.of(matching, height, width)
    for rows, cols in [(slice(0, 9), slice(0, 7)), (slice(16, 27), slice(19, 20)), (slice(30, 43), slice(3, 38))]:
        patches, pixels = zip(*(needed(s, p) for s, p in ((layout.rows, rows), (layout.cols, cols))), strict=True)
        # What is not needed is not there, beyond a row above and a column to the left: nothing else can have been read.
        parts = {}
        for name, tensor in given.items():
            y, x = patches if name == "scales" else pixels
            top, left = max(y.start - 1, 0), max(x.start - 1, 0)
            parts[name] = Part(tensor[..., top : y.stop, left : x.stop].clone(), top, left)
        out = match_part(Parts(**parts, k=2, layout=layout, **options), rows, cols, backend)
        torch.testing.assert_close(out, whole[..., rows, cols], atol=1e-12, rtol=0)


@pytest.mark.parametrize("layout", ["channels first", "channels last"])
def test_memory_format_does_not_matter(layout: str) -> None:
    matching = Matching(10, 5, 5)
    given = maps(matching, 60, 50, torch.float32)
    if layout == "channels last":
        given = {name: t.contiguous(memory_format=torch.channels_last) for name, t in given.items()}
    scale, strength = given["scales"].unbind(1)
    whole = match_images(given["embedding"], given["values"], scale, strength, 3, matching)
    part = slice(11, 34)
    parts = {name: Part(t) for name, t in given.items()}
    out = match_part(Parts(**parts, k=3, layout=Layout.of(matching, 60, 50)), part, part)
    torch.testing.assert_close(out, whole[..., part, part], atol=1e-6, rtol=0)


def test_what_is_missing_is_said() -> None:
    matching = Matching(10, 5, 3)
    given = {name: Part(t) for name, t in maps(matching, 60, 50).items()}
    given["values"] = Part(given["values"].tensor[..., 12:, :], 12)
    layout = Layout.of(matching, 60, 50)
    with pytest.raises(ValueError, match=r"rows 10 to 60 .* not in the part that is there: 48 x 50 from 12, 0 on"):
        match_part(Parts(**given, k=2, layout=layout), slice(20, 60), slice(0, 50))
