"""Tables on a terminal, in plain text: a line is a line, whatever the width."""

from __future__ import annotations

from collections.abc import Sequence

from n3net.checking import printable


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; what looks like numbers stands to the right."""
    columns = []
    for title, *cells in zip(head, *([printable(cell) for cell in row] for row in rows), strict=True):
        width = max(map(len, [title, *cells]))
        numbers = all(not cell or cell[0].isdigit() or cell == "–" for cell in cells)
        columns.append([text.rjust(width) if numbers else text.ljust(width) for text in [title, "─" * width, *cells]])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))
