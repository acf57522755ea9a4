"""The code and the commands of README and docs, run: `python tests/pages.py README.md` runs those of one page.

Blocks of Python run one after the other in one namespace, as a reader would run them, with the inputs that the page
speaks of made up. Commands of n3net run in a folder of their own for each, with small made up files under the names
that they read; those of ONLY_PARSED are parsed, so that each option in them exists. What is not n3net's must be known.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image

from scripts import script

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "src/n3net/weights/files").glob("*.md")])

# Commands, or options of them, that are only parsed, and why.
ONLY_PARSED = {
    "serve": "runs until it is stopped",
    "bench": "takes minutes",
    "demo": "takes seconds; tests/evaluation/test_demo.py runs it",
    "weights fetch": "needs a network",
    "weights import": "needs files of other programs; tests/weights/test_importers.py makes some",
    "data from-images": "takes COLMAP a minute",
    "data matches": "needs photographs with known cameras; tests/correspondence/test_scenes.py draws some",
    "eval dnd": "needs the data; tests/evaluation/test_dnd.py makes up some",
    "filter database.db": "needs a database of COLMAP; tests/correspondence/test_adapters.py makes one",
    "--ray": "starts a cluster; tests/jobs/test_ray.py does",
    "--workers": "starts processes; tests/jobs/test_batch.py does",
    "s3://": "needs a server; tests/jobs/test_storage.py starts one",
    "--install-completion": "changes files of the shell; tests/cli/test_help.py does that elsewhere",
    "--model bm3d-package": "is not free for everyone, so it is not installed",
    "authors-": "needs the authors' weights, which are not ours to pass on",
    "...": "is not all of a command",
}
ONLY_COMPILED = {"torch.onnx.export": "takes half a minute; tests/nn/test_blocks.py exports"}  # blocks of Python
# First words of lines that are not n3net's.
OTHERS = (
    "colmap",
    "cp",
    "done",
    "exec",
    "export",
    "for",
    "head=",
    "make",
    "pip",
    "python",
    "ray",
    "srun",
    "torchrun",
    ".",
)
SMALL = (48, 40)  # width and height of made up pictures


@dataclass
class Page:
    """What a page says that can be run."""

    path: Path
    python: list[str] = field(default_factory=list)  # on the lines of the page
    lines: list[str] = field(default_factory=list)  # of blocks of commands
    mentioned: list[str] = field(default_factory=list)  # `n3net ...` within sentences

    @property
    def commands(self) -> list[list[str]]:
        """Arguments of n3net, of each line that calls it."""
        return [arguments for line in self.lines for arguments in arguments_of(line)]


def read(path: Path) -> Page:
    page, text = Page(path), path.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        language, block = found.groups()
        if language == "python":
            page.python.append("\n" * text.count("\n", 0, found.start(2)) + block)
        elif language in ("", "bash"):
            lines = block.replace("\\\n", " ").splitlines()
            page.lines += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    page.mentioned = [" ".join(m.split()) for m in re.findall(r"`(n3net [a-z][^`]*)`", outside)]
    return page


def arguments_of(line: str) -> Iterator[list[str]]:
    """The arguments of each n3net on a line, with places where something is to be filled in filled."""
    words = shlex.split(line, comments=True)
    for word in words:
        if word == ";" or word.endswith(";"):
            first, second = line.split(";", 1)
            yield from arguments_of(first)
            yield from arguments_of(second)
            return
    calls = [i for i, word in enumerate(words) if word == "n3net" or word.endswith("/n3net")]
    if calls:
        yield [filled(word) for word in words[calls[0] + 1 :]]


def filled(word: str) -> str:
    word = {"NAME": "gray", "DIR": "data", "WEIGHTS": "gray", "IMAGE": "image.png", "FILE": "file.png"}.get(word, word)
    return re.sub(r"\$\{?\w+\}?", "1", word)  # variables of the shell


def is_known(line: str) -> bool:
    """Whether a line is n3net's, or of another program with targets, files and extras that exist."""
    if next(iter(arguments_of(line)), None) is not None:
        return True
    words = shlex.split(line, comments=True)
    if not words or " -> " in line:  # what a command prints
        return True
    if words[0] == "make":
        return re.search(rf"(?m)^{words[1]}:", (ROOT / "Makefile").read_text()) is not None
    if words[0] == "python" and words[1] != "-m":
        return (ROOT / words[1]).is_file()
    if words[:2] == ["pip", "install"]:
        extras = {e for extras in re.findall(r"\[([\w,]+)\]", line) for e in extras.split(",")}
        return extras <= set(re.findall(r"(?m)^(\w+) = \[", (ROOT / "pyproject.toml").read_text()))
    return words[0].startswith(OTHERS)


def parse(arguments: list[str]) -> Any:
    """The context of the command that would run, or an error of usage."""
    arguments = _redirected(arguments)[0]
    context: Any = None
    command: Any = root()
    name, rest = "n3net", list(arguments)
    while True:
        context = command.make_context(name, list(rest), parent=context)
        if not hasattr(command, "get_command"):
            return context
        rest = [*context._protected_args, *context.args]
        name = rest.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"n3net has no command {name!r}"
        command = found


def root() -> Any:
    import typer

    from n3net import cli

    return typer.main.get_command(cli.root)


def check_names(text: str) -> None:
    """`n3net ...` in a sentence may leave things out, but commands and options that it names exist."""
    words = shlex.split(text)[1:]
    command: Any = root()
    while words and hasattr(command, "get_command") and re.fullmatch("[a-z][a-z-]*", words[0]):
        found = command.get_command(None, words.pop(0))
        assert found is not None, f"{text}: no such command"
        command = found
    options = {name for option in command.params for name in [*option.opts, *option.secondary_opts]}
    wrong = [word for word in words if re.fullmatch("-{1,2}[a-z-]+", word) and word not in options | {"--help", "-h"}]
    assert not wrong, f"{text}: no option {wrong}"


def why_not(arguments: list[str]) -> str | None:
    """Why a command is not run."""
    line = " ".join(["", *arguments])
    return next((why for part, why in ONLY_PARSED.items() if f" {part}" in line), None)


def try_command(arguments: list[str]) -> str:
    """Runs a command in a folder of its own, or says why it was only parsed."""
    why = why_not(arguments)
    if why is None:
        with folder():
            run_command(arguments)
    elif "..." in arguments or arguments[0].startswith("--"):
        check_names(shlex.join(["n3net", *arguments]))
    else:
        parse(arguments)
    return why or "runs"


def run_command(arguments: list[str]) -> None:
    """Runs ``n3net`` in the current folder, with what it reads made up; raises if it fails."""
    arguments, redirected = _redirected(arguments)
    if "--help" not in arguments:
        make_inputs(arguments, parse(arguments).params)
    if arguments[0] == "train" and "--show" not in arguments:
        arguments = [*arguments, "--show"]  # checks every key of the config, and trains nothing
    if "--count" in arguments:
        arguments[arguments.index("--count") + 1] = "3"
    code, output = call(arguments, redirected.get("<"))
    assert code == 0, f"n3net {shlex.join(arguments)}: exit code {code}\n{output}"


def _redirected(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    found = {sign: arguments[i + 1] for i, sign in enumerate(arguments) if sign in "<>"}
    taken = [word for pair in found.items() for word in pair]
    return [word for word in arguments if word not in taken], found


def call(arguments: list[str], source: str | None = None) -> tuple[int, str]:
    """``n3net`` in this process, with standard input from a file: exit code, and what it says."""
    from n3net import cli

    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    data = io.TextIOWrapper(io.BytesIO(_picture(Path("x.png")) if source else b""))
    before, sys.argv, sys.stdin = (sys.argv, sys.stdin), ["n3net", *arguments], data
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv, sys.stdin = before
    out.flush()
    return code, out.buffer.getvalue().decode(errors="replace") + err.getvalue()  # type: ignore[attr-defined]


def make_inputs(arguments: list[str], parameters: dict[str, Any]) -> None:
    """The files and folders that a command reads, by the names that it has for them."""
    command = arguments[0]
    if command in ("denoise", "upscale"):
        for name in parameters["inputs"]:
            _make(name)
    if command == "upscale" and parameters["reference"]:
        factor = round(parameters["factor"])
        _make(str(parameters["reference"]), (SMALL[0] * factor, SMALL[1] * factor))
    elif parameters.get("reference"):
        _make(str(parameters["reference"]))
    if command == "match":
        _photographs(Path(parameters["images"] or "."))
        if parameters["pairs"]:
            Path(parameters["pairs"]).write_text("left.jpg right.jpg\n")
        for file in parameters["intrinsics"] or []:
            Path(file).write_text("300 0 160 0 300 120 0 0 1\n")
    if command == "inspect":
        _make(str(parameters["image"]))
    if command == "filter":
        _matches(Path(arguments[1]))
    if command == "data" and arguments[1] == "info":
        _pairs(Path(arguments[2]))
    for data in _listed(parameters.get("data")):
        _dataset(str(data), arguments)
    models = [str(model) for model in _listed(parameters.get("model"))]
    like = "match" if "correspondence" in arguments else "color" if "color" in models else "gray"
    for model in models:
        file = Path(model.partition("=")[2] or model)
        if file.suffix == ".safetensors":
            _weights(file, like)
    if command == "reproduce" and parameters.get("weights"):
        Path(parameters["weights"]).mkdir(parents=True)
    if command == "train" and (ROOT / arguments[1]).is_file():
        shutil.copytree((ROOT / arguments[1]).parent, Path(arguments[1]).parent)
    elif command == "train" and arguments[1].endswith(".yaml"):
        Path(arguments[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(arguments[1]).write_text("base: gray\n")


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _make(name: str, size: tuple[int, int] = SMALL) -> None:
    """A picture, a raw file, or what a folder or a pattern stands for."""
    path = Path(re.sub(r"\*\*?", "x", name))
    if name == "-":
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".dng", ".nef"):
        pictures().write_dng(path, np.full((96, 128, 3), 0.4), 2e-3, 1e-5, np.random.default_rng(0))
    elif path.suffix:
        path.write_bytes(_picture(path, size))
    else:
        path.mkdir(exist_ok=True)
        for n in "ab":
            (path / f"{n}.png").write_bytes(_picture(Path("a.png"), size))


def _picture(path: Path, size: tuple[int, int] = SMALL) -> bytes:
    """Waves of colour, and noise."""
    rng, (width, height) = np.random.default_rng(size[0]), size
    x, y = np.meshgrid(np.arange(width) / width, np.arange(height) / height)
    waves = np.dstack([128 + 90 * np.sin(6 * x + n) * np.cos(5 * y - n) for n in range(3)])
    pixels = np.clip(waves + rng.normal(0, 10, waves.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, {".jpg": "JPEG", ".tif": "TIFF", ".webp": "WEBP"}.get(path.suffix, "PNG"))
    return file.getvalue()


def _photographs(folder: Path) -> None:
    """Two views of a texture, left.jpg and right.jpg."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 255, (60, 80), np.uint8)).resize((400, 300), Image.Resampling.BICUBIC)
    for n, name in enumerate(("left.jpg", "right.jpg")):
        coarse.crop((8 * n, 5 * n, 320 + 8 * n, 240 + 5 * n)).save(folder / name)


def _matches(path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 600, (50, 2))
    np.savez(path, points0=x, points1=x + rng.normal(0, 1, x.shape) + 9, size0=(640, 480), size1=(640, 480))


def _pairs(path: Path, count: int = 3) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    code, output = call(["data", "synthetic", "-o", str(path), "--count", str(count)])
    assert code == 0, output


def _dataset(name: str, arguments: list[str]) -> None:
    path = Path(name)
    if arguments[:2] == ["eval", "correspondence"]:
        _pairs(path if path.suffix else path / "a.pairs")
    elif arguments[:2] == ["eval", "real"]:
        for kind in ("real", "mean"):
            _make(str(path / f"a_{kind}.png"))
    elif arguments[0] == "reproduce":
        path.mkdir(exist_ok=True)
        for folder in {"table5": ["Set5"], "supplement-sr": ["BSD100"], "table6": []}.get(arguments[1], ["Set12"]):
            _make(str(path / folder / "a.png"))
    else:
        _make(str(path / "a.png"))


def _weights(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(spec_of("n3net.weights")).parent / "files" / f"{name}.safetensors", path)


def spec_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


def pictures() -> ModuleType:
    """The script docs/pictures.py."""
    return script(ROOT / "docs" / "pictures.py")


def run_python(page: Page) -> None:
    """Runs the blocks of a page in the current folder."""
    names: dict[str, Any] = {"__name__": page.path.stem}
    MADE_UP.get(page.path.stem, lambda names: None)(names)
    for block in page.python:
        code = compile(block.replace('"cuda"', '"cpu"').replace('"NAME"', '"gray"'), str(page.path), "exec")
        if not any(part in block for part in ONLY_COMPILED):
            exec(code, names)


def _images(names: dict[str, Any]) -> None:
    """What pages about images speak of."""
    pixels = np.asarray(Image.open(io.BytesIO(_picture(Path("a.png")))))
    names.update(noisy=pixels, image=pixels, level_map=np.full(pixels.shape[:2], 10.0))
    _weights(Path("my.safetensors"), "color")


def _upscaling(names: dict[str, Any]) -> None:
    _images(names)
    _weights(Path("my.safetensors"), "upscale")


def _tensors(names: dict[str, Any]) -> None:
    names.update(noisy=torch.rand(1, 3, 40, 48), clean=torch.rand(1, 1, 16, 16))
    if importlib.util.find_spec("rawpy"):
        _make("night.dng")


def _state_of_2018(names: dict[str, Any]) -> None:
    from n3net.nn import N3Block2d

    own = {"embedding": "embedcnn", "temperature": "tempcnn", "normalization": "n3aggregation.aggregation.nnn.bn"}
    state = {}
    for key, value in N3Block2d(8, 7, options="reference-2018").state_dict().items():
        net, _, rest = key.partition(".")
        state[f"nls.0.{own[net]}.{rest}"] = value.reshape(1) if net == "normalization" else value
    torch.save(state, "model.pth")


def _views(names: dict[str, Any]) -> None:
    """Two photographs, and their matches as OpenCV, kornia and a database have them."""
    import cv2

    import n3net

    _photographs(Path())
    sift = cv2.SIFT.create(200)
    found = [sift.detectAndCompute(cv2.imread(name, 0), None) for name in ("left.jpg", "right.jpg")]
    (kp0, d0), (kp1, d1) = found
    dmatches = cv2.BFMatcher().match(d0, d1)
    k = np.array([[400.0, 0, 160], [0, 400, 120], [0, 0, 1]])
    lafs = [torch.tensor([[[1.0, 0.0, p.pt[0]], [0.0, 1.0, p.pt[1]]] for p in kp])[None] for kp in (kp0, kp1)]
    names.update(kp0=kp0, kp1=kp1, d0=d0, d1=d1, dmatches=dmatches, K0=k, K1=k, lafs0=lafs[0], lafs1=lafs[1])
    names.update(k0=torch.from_numpy(k), k1=torch.from_numpy(k))
    names["distances"] = torch.tensor([[m.distance] for m in dmatches])
    names["indices"] = torch.tensor([[m.queryIdx, m.trainIdx] for m in dmatches])
    names["results"] = [n3net.match("left.jpg", "right.jpg")]


def _geometry(names: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    names.update(x0=x, x1=x, ratio=None, mutual=None, rotation=np.eye(3), translation=np.array([1.0, 0, 0]))


MADE_UP: dict[str, Callable[[dict[str, Any]], None]] = {
    "denoise": _images,
    "methods": _images,
    "upscale": _upscaling,
    "models": _tensors,
    "raw": _tensors,
    "from-2018": _state_of_2018,
    "match": _views,
    "correspondence-training": _geometry,
}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """An empty one, with the data of nobody."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def main() -> None:
    for name in sys.argv[1:]:
        page = read(Path(name).resolve())
        with folder():
            run_python(page)
        for arguments in page.commands:
            print(f"n3net {shlex.join(arguments)}: {try_command(arguments)}", flush=True)


if __name__ == "__main__":
    main()
