"""Public weights of other programs, under our names.

What a file is, is found out from what it holds. A new importer is a file here with an
:class:`~n3net.weights.importers.content.Importer`, and its place in ``IMPORTERS``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from n3net.errors import UserError
from n3net.models.registry import create
from n3net.weights.format import expected_shapes
from n3net.weights.importers import (
    caffe,
    dncnn,
    edsr,
    ffdnet,
    matlab,
    memnet,
    n3net_2018,
    nlnet,
    red30,
    torch_files,
    vdsr,
)
from n3net.weights.importers.content import Imported, Importer, Kind

IMPORTERS: list[Importer] = [
    *n3net_2018.IMPORTERS,
    *dncnn.IMPORTERS,
    *ffdnet.IMPORTERS,
    *nlnet.IMPORTERS,
    *red30.IMPORTERS,
    *vdsr.IMPORTERS,
    *memnet.IMPORTERS,
    *edsr.IMPORTERS,
]

READERS = {"torch": torch_files.read, "matlab": matlab.read, "caffe": caffe.read}


def import_file(path: str | Path) -> tuple[nn.Module, dict[str, Any]]:
    """A file of another program -> a model of ours in eval mode, and metadata for :func:`n3net.weights.save`."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    kind = kind_of(path)
    content = READERS[kind](path)
    for importer in IMPORTERS:
        if importer.kind != kind:
            continue
        try:
            found = importer.recognize(content, path.name)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}: looks like weights of {importer.origin}, but not all of them are there as they should be "
                f"({type(error).__name__}: {error})"
            ) from error
        if found is not None:
            model = _filled(path, found)
            training = {"imported": found.source, "file": path.name, **found.training}
            return model, {"training": training, "licence": found.licence}
    origins = dict.fromkeys(importer.origin for importer in IMPORTERS)
    raise UserError(
        f"{path}: no known architecture ({_first(content)}); n3net imports the weights of {', '.join(origins)}"
    )


def kind_of(path: Path) -> Kind:
    """What kind of file it is, by its first bytes."""
    with path.open("rb") as file:
        start = file.read(32)
    if matlab.is_matlab(start):
        return "matlab"
    # a NetParameter begins with its name or a layer
    return "caffe" if start[:1] in (b"\x0a", b"\x12") or start[:2] == b"\xa2\x06" else "torch"


def _filled(path: Path, found: Imported) -> nn.Module:
    """A model with its tensors in eval mode, or which of them are missing, too many or of another shape."""
    with torch.device("meta"):  # nothing is allocated before all of it is known to be in the file
        recipe: Any = create(found.name, **found.config).recipe
    target = expected_shapes(recipe)
    for name, shape in target.items():
        if name not in found.state and not name.endswith("num_batches_tracked"):
            raise UserError(f"{path}: looks like {found.source}, but {name} is missing")
        if name in found.state and found.state[name].shape != shape:
            raise UserError(
                f"{path}: looks like {found.source}, but {name} is {tuple(found.state[name].shape)}, expected {shape}"
            )
    spoilt = [name for name, tensor in found.state.items() if not bool(torch.isfinite(tensor).all())]
    if spoilt:
        raise UserError(f"{path}: refused: {spoilt[0]} holds values that are no numbers")
    unknown = [name for name in found.state if name not in target]
    if unknown:
        raise UserError(f"{path}: looks like {found.source}, but has a {unknown[0]}, which that has not")
    model = create(recipe.name, **recipe.config)
    model.load_state_dict(found.state, strict=False)
    return model.eval()


def _first(content: Any) -> str:
    """What a file begins with."""
    names = [layer.name for layer in content] if isinstance(content, list) else list(content)
    return f"its first parts are {', '.join(map(str, names[:3]))}" if names else "there is nothing in it"
