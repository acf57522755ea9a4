"""Where weights are found by name: those that come with the package, and those a user fetched or imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3net.checking import nearest
from n3net.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from n3net.models import Model

SHIPPED = Path(__file__).parent / "files"
CONFIGS = Path(__file__).parents[1] / "configs"  # weights are named as the config that they are trained with
SUFFIX = ".safetensors"
NN3D = "nn3d:"  # before the name of a denoiser: NN3D's filter and it take turns


def user_directory() -> Path:
    """``$N3NET_WEIGHTS``, or ``n3net/weights`` in the user's data directory."""
    if "N3NET_WEIGHTS" in os.environ:
        return Path(os.environ["N3NET_WEIGHTS"]).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "n3net" / "weights"


def available() -> dict[str, Path]:
    """All names that :func:`load` knows; where the user has a file of a shipped name, the user's counts."""
    found = {}
    for directory in (SHIPPED, user_directory()):
        found.update({path.stem: path for path in sorted(directory.glob(f"*{SUFFIX}"))})
    return found


def locate(name_or_path: str | Path) -> Path:
    """The file of a name, or the path itself."""
    path = Path(name_or_path)
    if path.is_file():
        return path
    names = available()
    if str(name_or_path) in names:
        return names[str(name_or_path)]
    if path.suffix or len(path.parts) > 1:
        raise UserError(f"{path}: there is no such file")
    if (CONFIGS / f"{path}.yaml").is_file():
        raise UserError(
            f"the weights {str(path)!r} are not part of this installation: 'n3net train {path}' makes "
            f"runs/{path}/best.safetensors, which --model takes; or give another file or name ('n3net weights list')"
        )
    hint = nearest(str(name_or_path), names)
    raise UserError(f"there are no weights {str(name_or_path)!r}{hint} ('n3net weights list' tells more)")


def load(name_or_path: str | Path) -> Model:
    """A trained model, in eval mode, ready to run.

    Args:
        name_or_path: a name of ``n3net weights list``, or a file that :func:`n3net.weights.save` wrote. With ``nn3d:``
            before it, NN3D on that denoiser; ``nn3d:A,B`` has one for each of its two rounds.

    Returns:
        The module; its ``recipe`` says what it is, its ``record`` how it was trained.
    """
    from n3net.weights.format import read

    name = str(name_or_path)
    return _nn3d(name.removeprefix(NN3D)) if name.startswith(NN3D) else read(locate(name_or_path))


def _nn3d(names: str) -> Model:
    from n3net.models import Denoiser
    from n3net.models.nn3d import with_filter

    bases = [load(name) for name in ([names] if Path(names).is_file() else names.split(","))]
    for name, base in zip(names.split(","), bases, strict=False):
        if not isinstance(base, Denoiser):
            raise UserError(f"{NN3D}{name}: expected a denoiser, and this one is not")
    if len(bases) == 1 and not bases[0].noise_map:
        raise UserError(
            f"{NN3D}{names}: knows one noise level only, and the second round has half the noise of the first; "
            f"give two, {NN3D}{names},OTHER"
        )
    try:
        model = with_filter(bases)  # type: ignore[arg-type]
    except ValueError as error:
        raise UserError(f"{NN3D}{names}: {error}") from error
    model.recipe, model.record = bases[0].recipe, bases[0].record
    return model


def load_for(model: str | Path | nn.Module, *kinds: type[Model]) -> Any:
    """A model of some kind: the module itself, or what :func:`n3net.load` takes."""
    from torch import nn

    if isinstance(model, nn.Module):
        if not isinstance(model, kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"model: expected n3net.models.{expected}, a name or a file, got {type(model).__name__}")
        return model
    loaded: Any = load(model)
    if not isinstance(loaded, kinds):
        raise UserError(f"{model}: a {loaded.recipe.name}, which is not for {kinds[0].purpose}")
    return loaded
