"""The layers of the package: who may import whom, lazily or not, and which names are promised."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "n3net"

BASE = {"errors", "checking", "version", "modes", "memory", "selection"}  # single files that everything may use

# Each folder and those below it that it may import. Only folders further up in this table are named: no cycles.
MAY_IMPORT = {
    "kernel": "",
    "neighbors": "kernel",
    "nn": "kernel neighbors",
    "io": "",
    "noise": "io",
    "imaging": "io",
    "raw": "io noise imaging",
    "models": "nn neighbors noise",
    "methods": "models kernel neighbors noise imaging io",
    "weights": "models nn io",
    "restoration": "methods weights models nn neighbors raw noise imaging io",
    "correspondence": "weights models io",
    "tasks": "correspondence weights models raw noise imaging io",
    "training": "tasks weights models nn io",
    "evaluation": "restoration methods correspondence weights models raw noise imaging io",
    "inspection": "restoration models nn neighbors imaging io",
    "jobs": "evaluation restoration methods correspondence weights models raw noise imaging io",
    "bench": "jobs training tasks restoration methods correspondence weights models nn neighbors kernel",
    "serve": "jobs inspection restoration correspondence weights models nn neighbors raw noise imaging io",
    "cli": "serve jobs bench inspection evaluation training restoration correspondence methods weights models raw "
    "noise imaging io",
}

PUBLIC = {
    "n3net": "__version__ denoise load match models nearest nn select upscale weights",
    "n3net.nn": "N3Block N3Block1d N3Block2d N3Options PRESETS",
    "n3net.models": "CNNet CorrespondenceN3Net Denoiser DnCNN FFDNet N3Net NN3D RED30 Upscaler create",
    "n3net.weights": "available digest import_file info load locate save user_directory",
}


def modules() -> dict[str, Path]:
    """Dotted names below ``n3net``, and their files."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").removesuffix("."): path
        for path in sorted(ROOT.rglob("*.py"))
    }


def imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """Each module of ours that a file imports, at its top or within a function, and the name that it takes from it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((a.name.removeprefix("n3net").lstrip("."), None) for a in node.names if _ours(a.name))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            if _ours(node.module or ""):
                module = (node.module or "").removeprefix("n3net").lstrip(".")
                yield from ((module or a.name, a.name) for a in node.names)


def _ours(name: str) -> bool:
    return name == "n3net" or name.startswith("n3net.")


def folder(module: str) -> str:
    return module.partition(".")[0]


def test_the_table_has_no_cycles() -> None:
    above: set[str] = set()
    for name, below in MAY_IMPORT.items():
        assert set(below.split()) <= above, f"{name} imports a folder that stands below it in the table"
        above.add(name)


def test_every_folder_is_in_the_table() -> None:
    found = {folder(name) for name in modules() if name and (ROOT / folder(name)).is_dir()}
    loose = {name for name in modules() if name and (ROOT / f"{name}.py").is_file()}
    assert found == set(MAY_IMPORT)
    assert loose == BASE | {"__main__"}


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_dependencies_point_downwards(name: str) -> None:
    allowed = BASE | {name} | set(MAY_IMPORT[name].split())
    wrong = [
        f"{module} imports {target}"
        for module, path in modules().items()
        if folder(module) == name
        for target, taken in imports(path)
        if folder(target) not in allowed and not (target == taken and taken in PUBLIC["n3net"].split())
    ]
    assert not wrong


def test_contributing_draws_the_layers_as_they_are() -> None:
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = re.split(r"^```\w*$", text, flags=re.MULTILINE)[1].strip().splitlines()
    names = [line[:35].split() for line in drawn[:-1]] + [drawn[-1].split("      ")[0].split()]
    level = {name: i for i, row in enumerate(names) for name in row}
    assert set(MAY_IMPORT) | BASE == set(level)
    assert not [(name, b) for name, below in MAY_IMPORT.items() for b in below.split() if level[b] <= level[name]]
    named = set(re.findall(r"`([\w/]+/\w+\.(?:py|cpp))`", text))
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).is_file() and not (ROOT.parents[1] / name).is_file()]


def test_single_files_import_single_files_only() -> None:
    wrong = [(m, t) for m, path in modules().items() if m in BASE for t, _ in imports(path) if t not in BASE]
    assert not wrong


def test_private_names_stay_where_they_are() -> None:
    taken = [
        f"{module}: {target}.{name}"
        for module, path in modules().items()
        for target, name in imports(path)
        if name is not None and name.startswith("_") and not name.startswith("__")
    ]
    assert not taken


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_there(module: str) -> None:
    found = importlib.import_module(module)
    missing = [name for name in PUBLIC[module].split() if not hasattr(found, name)]
    assert not missing


def test_modules_need_no_import_of_their_own_and_none_is_heavy() -> None:
    program = (
        "import sys, n3net; assert not {'torch', 'numpy', 'PIL'} & {*sys.modules}; "
        "n3net.nn.N3Block2d; n3net.models.create; n3net.weights.available; assert 'models' in dir(n3net)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
