"""Our file format: safetensors, with one JSON document in its metadata under the key ``n3net``.

| field    | meaning                                                                            |
|----------|------------------------------------------------------------------------------------|
| format   | version of this table, 1                                                           |
| model    | {"name", "config"}: what :func:`n3net.models.create` builds, options included      |
| training | how the weights came about: data, noise levels, steps, seed ... or where from      |
| licence  | of the weights                                                                     |
| digest   | SHA-256 of names, types, shapes and bytes of all tensors                           |

Other fields are kept as they are.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from safetensors.torch import save as serialize
from torch import Tensor, nn

from n3net.checking import shown
from n3net.errors import UserError
from n3net.io.files import writing
from n3net.models.interface import Model, Recipe
from n3net.models.registry import MODELS, create, is_known
from n3net.version import __version__

FORMAT = 1
KEY = "n3net"
MAX_HEADER = 10_000_000
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def save(path: str | Path, model: nn.Module, metadata: dict[str, Any] | None = None) -> Path:
    """Write a model that :func:`n3net.models.create` built, at once or not at all.

    Args:
        path: of the file, which is replaced if it exists.
        model: as it was created: not with its batch norm folded.
        metadata: JSON values, usually ``training`` (how the weights came about) and ``licence``.
    """
    if not isinstance(model, Model) or not hasattr(model, "recipe"):
        raise ValueError("save: this model was not built by n3net.models.create, so no file could tell how to build it")
    recipe = model.recipe
    tensors = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    problem = _difference({n: tuple(t.shape) for n, t in tensors.items()}, expected_shapes(recipe))
    if problem:
        raise ValueError(f"save: the model is not as it was created ({problem}); was its batch norm folded?")
    document = {
        **(metadata or {}),
        "format": FORMAT,
        "n3net": __version__,
        "model": {"name": recipe.name, "config": recipe.config, **_module(recipe.name)},
        "digest": digest(tensors),
    }
    document.setdefault("training", {})
    document.setdefault("licence", "not stated")
    path = Path(path)
    with writing(path, force=True, durable=True) as file:
        file.write(serialize(tensors, {KEY: json.dumps(document)}))
    return path


def _module(name: str) -> dict[str, str]:
    """The module that a model of somebody else's comes from."""
    module = MODELS[name].build.__module__
    return {} if module.startswith("n3net.") else {"module": module}


def info(path: str | Path) -> dict[str, Any]:
    """The metadata of a file, without its tensors; ``parameters`` and ``bytes`` are added."""
    path = Path(path)
    document, tensors = _read_header(path)
    count = sum(math.prod(t["shape"]) for name, t in tensors.items() if not _is_statistic(name))
    return {**document, "parameters": count, "bytes": path.stat().st_size}


def read(path: str | Path) -> Model:
    """The model of a file, in eval mode; its metadata is its attribute ``record``."""
    path = Path(path)
    document, header = _read_header(path)
    recipe = _recipe(path, document)
    config = recipe.config
    layers = [config.get(key) for key in ("stages", "depth")]
    if math.prod(n for n in layers if isinstance(n, int)) > len(header):  # without the time it takes to build it
        raise UserError(f"{path}: it has {len(header)} tensors, too few for the model it names, {recipe.name!r}")
    problem = _difference({name: tuple(t["shape"]) for name, t in header.items()}, expected_shapes(recipe))
    if problem:
        raise UserError(f"{path}: its tensors are not those of the model it names, {recipe.name!r}: {problem}")
    try:
        tensors = load(path.read_bytes())
    except SafetensorError as error:
        raise UserError(f"{path}: not a valid safetensors file ({error})") from error
    if document.get("digest") != digest(tensors):
        raise UserError(f"{path}: the file is damaged, its contents do not match its own checksum; get it again")
    wrong = next((name for name, t in tensors.items() if not bool(torch.isfinite(t).all())), None)
    if wrong is not None:
        raise UserError(f"{path}: {wrong} holds values that are no numbers; it cannot be used")
    model = create(recipe.name, **recipe.config)
    model.load_state_dict(tensors)
    model.record = document
    return model.eval()


def digest(tensors: dict[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and bytes."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        t = tensors[name]
        sha.update(f"{name} {t.dtype} {tuple(t.shape)}\n".encode())
        sha.update(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def expected_shapes(recipe: Recipe) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors that a model of this recipe has, without making them."""
    with torch.device("meta"):
        model = create(recipe.name, **recipe.config)
    return {name: tuple(t.shape) for name, t in model.state_dict().items()}


def _read_header(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our document and the description of the tensors, after checking that the file can be what it says.

    By hand, not by ``safe_open``: a header is limited before it is parsed, and words say what a damaged file lacks.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if size < 8 or start[:2] in (b"PK", b"\x80\x02") or length >= 2**40:  # letters, or another format's first bytes
            raise UserError(f"{path}: not a safetensors file; files of other programs need 'n3net weights import'")
        if length > min(size - 8, MAX_HEADER):
            raise UserError(
                f"{path}: not a safetensors file, or a truncated one: it announces a header of {length} bytes, "
                f"the file has {size} (at most {MAX_HEADER} are accepted)"
            )
        try:
            header = json.loads(file.read(length))
            metadata = header.pop("__metadata__", {})
            end = max((_check_tensor(t) for t in header.values()), default=0)
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
            raise UserError(f"{path}: the header of this safetensors file makes no sense ({error})") from error
    if 8 + length + end != size:
        what = "truncated" if 8 + length + end > size else "too long"
        raise UserError(f"{path}: the file is {what}: its tensors need {8 + length + end} bytes, it has {size}")
    try:
        document = json.loads(metadata[KEY])
        if not isinstance(document, dict):
            raise ValueError("no object")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: a safetensors file, but not one of n3net: its metadata does not say what model it is for"
        ) from error
    if document.get("format") != FORMAT:
        raise UserError(
            f"{path}: format {shown(document.get('format'))} is unknown to n3net {__version__}, which reads {FORMAT}"
        )
    _check_document(path, document)
    return document, header


def _check_document(path: Path, document: dict[str, Any]) -> None:
    """What others rely on: the table at the top of this file."""
    document.setdefault("training", {})
    document.setdefault("licence", "not stated")
    model = document.get("model")
    model = model if isinstance(model, dict) else {}
    for name, value, kind in (
        ("model.name", model.get("name"), str),
        ("model.config", model.get("config"), dict),
        ("training", document["training"], dict),
        ("licence", document["licence"], str),
    ):
        if not isinstance(value, kind):
            what = "a word" if kind is str else "keys and values"
            raise UserError(f"{path}: its {name} makes no sense: expected {what}, got {shown(value)}")


def _check_tensor(tensor: dict[str, Any]) -> int:
    """Where a tensor ends, if type, shape and place agree."""
    first, last = tensor["data_offsets"]
    shape = tensor["shape"]
    if not all(isinstance(n, int) and n >= 0 for n in [first, last, *shape]):
        raise ValueError("a size is not a number")
    if math.prod(shape) * BYTES[tensor["dtype"]] != last - first:
        raise ValueError(f"a tensor of shape {shape} in {last - first} bytes")
    return int(last)


def _recipe(path: Path, document: dict[str, Any]) -> Recipe:
    name, config = document["model"]["name"], document["model"]["config"]
    if not is_known(name):
        module = document["model"].get("module")
        needs = ""
        if isinstance(module, str):
            needs = (
                f"; it comes from the module {shown(module)}: import that first, "
                "or install a package that names it as an entry point of the group n3net.models"
            )
        raise UserError(f"{path}: made for the model {shown(name)}, which n3net {__version__} does not have{needs}")
    return Recipe(name, config)


def _difference(found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]) -> str | None:
    for name, shape in expected.items():
        if name not in found:
            return f"{name} is missing"
        if found[name] != shape:
            return f"{name} is {found[name]}, expected {shape}"
    extra = next((name for name in found if name not in expected), None)
    return None if extra is None else f"{extra} is not part of it"


def _is_statistic(name: str) -> bool:
    return name.endswith(("running_mean", "running_var", "num_batches_tracked"))
