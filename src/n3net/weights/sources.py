"""Where the weights of each model come from: with n3net, by 'n3net weights fetch', or from a file of their authors."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from n3net.errors import UserError
from n3net.models.registry import MODELS
from n3net.weights.fetch import SOURCES
from n3net.weights.format import info
from n3net.weights.importers import IMPORTERS
from n3net.weights.store import SHIPPED, available


@dataclass(frozen=True)
class Weights:
    """Of one model, by name.

    Args:
        shipped: names of weights that come with n3net.
        own: names of weights among the user's own.
        fetched: names that 'n3net weights fetch' knows.
        imported: repositories whose files 'n3net weights import' reads.
    """

    shipped: list[str]
    own: list[str]
    fetched: list[str]
    imported: list[str]

    def __str__(self) -> str:
        kinds = {"shipped": self.shipped, "yours": self.own, "fetch": self.fetched, "import": self.imported}
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names) or "train it"


def weights_of_models() -> dict[str, Weights]:
    """What there is for each model of the registry; variants of one architecture count for the name they have."""
    out = {name: Weights([], [], [], []) for name in MODELS}
    for name, path in available().items():
        with suppress(UserError):
            model = info(path)["model"]["name"]
            if model in out:
                (out[model].shipped if path.parent == SHIPPED else out[model].own).append(name)
    out["n3net"].fetched.extend(SOURCES)
    for importer in IMPORTERS:
        for model in importer.models:
            out[model].imported.append(importer.origin)
    return out
