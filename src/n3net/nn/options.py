"""Where the paper and the program published with it differ, as one small object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

from n3net.neighbors.grid import Border
from n3net.neighbors.problem import Distance
from n3net.selection import Update


@dataclass(frozen=True)
class N3Options:
    """How an N3 block turns features into neighbours. The defaults are the paper's text.

    Args:
        distance: of two items, ``"euclidean"`` or ``"squared"`` (without the root).
        normalize: divide the distances by their standard deviation, with a learned factor: true for that of all
            distances, a batch norm without its shift, because a selection does not change when all logits shift;
            ``"query"`` for that of each query's own candidates.
        temperature: ``"exp"``, the net predicts log t; ``"inverse"``, it predicts 1/t, of any sign.
        temperature_scale: t where the net of ``"exp"`` predicts 0.
        temperature_at: which of a patch's temperatures counts, the ``"center"`` pixel's or the ``"mean"`` of log t.
        update: of the logits, see :func:`n3net.select`.
        neighbors: concatenate the neighbours' ``"values"`` N_j, or their ``"differences"`` N_j - Y from the input.
        border: of an image, see :class:`n3net.neighbors.grid.Grid`.
    """

    distance: Distance = "euclidean"
    normalize: bool | Literal["query"] = False
    temperature: Literal["exp", "inverse"] = "exp"
    temperature_scale: float = 1.0
    temperature_at: Literal["center", "mean"] = "center"
    update: Update = "tempered"
    neighbors: Literal["values", "differences"] = "values"
    border: Border = "shift"

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value, choices = getattr(self, name), get_args(hint)
            if get_origin(hint) is Literal and value not in choices:
                raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
        if not isinstance(self.normalize, bool) and self.normalize != "query":
            raise ValueError(f"normalize: expected true, false or 'query', got {self.normalize!r}")
        if not self.temperature_scale > 0:
            raise ValueError(f"temperature_scale: expected a positive number, got {self.temperature_scale!r}")
        if self.temperature == "inverse" and self.update == "tempered":
            raise ValueError("temperature='inverse' may be 0 or negative, so it needs update='untempered'")


PRESETS = {
    "paper": N3Options(),
    "reference-2018": N3Options(
        distance="squared",
        normalize=True,
        temperature_scale=0.1,
        temperature_at="mean",
        update="untempered",
        neighbors="differences",
    ),
    "reference-2018-sets": N3Options(distance="squared", temperature="inverse", update="untempered"),
}


def as_options(options: str | N3Options) -> N3Options:
    """A preset by name, or the options themselves."""
    if isinstance(options, N3Options):
        return options
    if options not in PRESETS:
        raise ValueError(f"options: expected an N3Options or one of {', '.join(map(repr, PRESETS))}, got {options!r}")
    return PRESETS[options]
