"""The commands models, weights, eval, reproduce and inspect, as a person calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from n3net import weights
from n3net.cli import main
from n3net.errors import UserError
from n3net.evaluation.report import write
from n3net.models import create


class Run:
    """Calls the program in this process: exit code, stdout, stderr."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["n3net", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out = self.capsys.readouterr()
        return int(end.value.code or 0), out.out, out.err


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path / "user"))
    monkeypatch.delenv("N3NET_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "bm3d", None)  # as if it were not installed
    torch.manual_seed(0)
    weights.save(
        tmp_path / "user" / "mine.safetensors", create("n3net", features=4, depth=2), {"training": {"sigma": 25}}
    )
    return Run(monkeypatch, capsys)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    directory = tmp_path / "data" / "Set12"
    directory.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(2):
        Image.fromarray(rng.integers(0, 255, (92, 95), dtype=np.uint8)).save(directory / f"{i}.png")
    return directory


def test_plot_and_picture(run: Run, images: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra demo")
    plot, picture = tmp_path / "plot.svg", tmp_path / "picture.png"
    evaluation = ("eval", "gaussian", "--model", "mine", "--model", "bm3d", "--data", images, "--limit", 1)
    code, _, err = run(*evaluation, "--plot", plot, "--picture", picture, "--json", tmp_path / "out.json")
    assert code == 0, err
    assert "<svg" in plot.read_text()
    sheet = np.asarray(Image.open(picture))
    assert sheet.shape[0] > 2 * 92
    assert sheet.shape[1] > 4 * 2 * 92
    result = json.loads((tmp_path / "out.json").read_text())["results"][0]
    assert result["seconds_per_megapixel"] == pytest.approx(1e6 * result["seconds"] / (92 * 95))
    assert "--plot" in run(*evaluation, "--plot", tmp_path / "plot.txt")[2]


def test_methods_are_listed(run: Run) -> None:
    out = run("models")[1]
    assert "bm3d" in out
    assert "wsd-sr" in out
    code, _, err = run("models", "bm3d")
    assert code == 1
    assert "learns nothing" in err


def test_models(run: Run) -> None:
    code, out, _ = run("models")
    assert code == 0
    assert "427,474" in out
    entries = json.loads(run("models", "--json")[1])
    assert {"n3net", "dncnn-17"} <= {entry["name"] for entry in entries}
    assert json.loads(run("models", "n3net")[1])["config"]["k"] == 7
    code, _, err = run("models", "n3nt")
    assert code == 2
    assert "did you mean 'n3net'" in err


def test_weights(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("weights", "list")
    assert code == 0
    assert "mine" in out
    assert "authors-sigma25" in out  # can be fetched
    assert json.loads(run("weights", "list", "--json")[1])[-1]["sigma"] == "25"
    assert json.loads(run("weights", "info", "mine")[1])["model"]["name"] == "n3net"
    assert run("weights", "verify", "mine")[0] == 0
    path = tmp_path / "user" / "mine.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    code, _, err = run("weights", "verify")
    assert code == 1
    assert "truncated" in err
    code, _, err = run("weights", "list")
    assert code == 0
    assert "truncated" in err


def test_import(run: Run, tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 1, 3, padding=1))
    file = tmp_path / "dncnn_sigma15.pth"
    torch.save({f"model.{name}": value for name, value in net.state_dict().items()}, file)
    code, out, _ = run("weights", "import", file, "--name", "kair")
    assert code == 0
    assert "MIT" in out
    assert weights.info(weights.locate("kair"))["training"]["sigma"] == 15
    code, _, err = run("weights", "import", file, "--name", "kair")
    assert code == 2
    assert "--force" in err
    assert run("weights", "import", file, "-o", tmp_path / "x.safetensors", "--sigma", "20")[0] == 0


def test_fetch_says_what_is_allowed_before_it_starts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("N3NET_WEIGHTS_URL", "http://127.0.0.1:9")
    code, out, err = run("weights", "fetch", "authors-sigma25")
    assert code == 2
    assert "not for commercial purposes" in out
    assert "127.0.0.1" in err


def test_eval(run: Run, images: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"out.{kind}" for kind in ("json", "md", "html")]
    options = [x for kind, file in zip(("json", "markdown", "html"), files, strict=True) for x in (f"--{kind}", file)]
    code, out, err = run(
        "eval", "gaussian", "--model", "mine", "--model", "noisy", "--data", images, "--sigma", 25, "--sigma", 50,
        *options,
    )  # fmt: skip
    assert code == 0
    assert "| mine | Set12 | 25 |" in out
    assert "mine was not trained for σ = 50" in err
    results = json.loads(files[0].read_text())["results"]
    assert [(r["model"], r["sigma"], r["n"]) for r in results] == [
        ("mine", 25, 2), ("noisy", 25, 2), ("mine", 50, 2), ("noisy", 50, 2),
    ]  # fmt: skip
    assert "Set12/0.png" in files[1].read_text()
    assert files[2].read_text().count("<figure") == 4
    code, _, err = run("eval", "gaussian", "--model", "yours", "--data", images)
    assert code == 2
    assert "no weights 'yours'" in err


def test_reproduce(run: Run, images: Path, tmp_path: Path) -> None:
    run.monkeypatch.setattr("n3net.weights.store.SHIPPED", tmp_path / "nowhere")
    run.monkeypatch.setattr("n3net.evaluation.reproduce.METHODS", {})
    weights.save(tmp_path / "user" / "full.safetensors", create("n3net"), {"training": {"sigma": 25}})
    code, out, _ = run("reproduce", "table3", "--data", images.parent, "--json", tmp_path / "t.json")
    assert code == 0
    assert "30.55 / " in out
    assert "27.43 / –" in out
    assert [r["model"] for r in json.loads((tmp_path / "t.json").read_text())["results"]] == [
        "full"
    ]  # mine is smaller than the paper's
    assert run("reproduce", "table9")[0] == 2


def test_inspect(run: Run, images: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, out, _ = run(
        "inspect", "mine", images / "0.png", "--noise", 25, "-o", tmp_path / "x.png", "--pixel", "40,50", "--json",
        tmp_path / "x.json",
    )  # fmt: skip
    assert code == 0
    assert "block 2" in out
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert len(json.loads((tmp_path / "x.json").read_text())["mean_largest_weight"]) == 2
    assert run("inspect", "mine", images)[0] == 0
    code, _, err = run("inspect", "mine", images, "--pixel", "4", "-o", tmp_path / "y.png")
    assert code == 2
    assert "X,Y" in err
    code, _, err = run("inspect", "mine", images, "--noise", 25, "-o", tmp_path / "x.png")
    assert code == 2
    assert "--force" in err
    assert run("inspect", "mine", images / "0.png", "--noise", 25, "-o", tmp_path / "x.png", "--force")[0] == 0
    code, _, err = run("inspect", "mine", images, "--noise", 25, "-o", tmp_path / "x.txt")
    assert code == 2
    assert "x.txt: expected a name that ends in one of" in err
    Image.new("L", (8, 8)).save(tmp_path / "tiny.png")
    code, _, err = run("inspect", "mine", tmp_path / "tiny.png", "--noise", 25)
    assert code == 2
    assert "fewer patches" in err


def test_reports_are_refused_before_measuring(run: Run, images: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    gaussian = ("eval", "gaussian", "--model", "noisy", "--data", images)
    commands = (gaussian, ("reproduce", "table4"), ("inspect", "mine", images, "--noise", 25))
    for command in commands:
        code, out, err = run(*command, "--json", old)
        assert (code, out, "use --force" in err) == (2, "", True)
        code, out, err = run(*command, "--json", old / "x.json")
        assert (code, out, "x.json: cannot be written" in err) == (2, "", True)
    assert "given for 2 files" in run(*gaussian, "--json", tmp_path / "x", "--markdown", tmp_path / "x")[2]
    assert old.read_text() == "old"
    assert run("reproduce", "table4", "--json", old, "--force")[0] == 0
    assert json.loads(old.read_text())["title"] == "Table 4"
    assert {path.name for path in tmp_path.iterdir()} == {"data", "old.json", "user"}


def test_reports_are_utf8_in_any_locale(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from n3net.evaluation.report import write; " + (
        r"write(Path(sys.argv[1]), '\u03c3 = 25')"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, tmp_path / "a.md"], env=os.environ | ascii_only, check=True)
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == "σ = 25\n"


def test_write(tmp_path: Path) -> None:
    write(tmp_path / "a.json", {"σ": [float("inf"), {"x": (float("nan"), 1.5, 2, "inf", None, True)}]})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {
        "σ": [None, {"x": [None, 1.5, 2, "inf", None, True]}]
    }
    with pytest.raises(UserError, match=r"a.json exists"):
        write(tmp_path / "a.json", {})
    write(tmp_path / "a.json", {}, force=True)
    with pytest.raises(TypeError):
        write(tmp_path / "b.json", {"x": object()})
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_an_exact_result_is_null_in_json(run: Run, images: Path, tmp_path: Path) -> None:
    code, _, _ = run(
        "eval", "gaussian", "--model", "noisy", "--data", images, "--sigma", 0, "--json", tmp_path / "o.json"
    )
    assert code == 0
    assert "Infinity" not in (tmp_path / "o.json").read_text()
    assert json.loads((tmp_path / "o.json").read_text())["results"][0]["psnr"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("eval", "gaussian", "--model", "noisy", "--data", "data/Set12", "--limit", "0"), "--limit"),
        (("eval", "gaussian", "--model", "noisy", "--data", "data/Set12", "--limit", "-1"), "--limit"),
        (("eval", "gaussian", "--model", "noisy", "--data", "data/Set12", "--seed", "-1"), "--seed"),
        (("eval", "gaussian", "--model", "a=noisy", "--model", "a=mine", "--data", "data/Set12"), "2 are called a"),
        (("eval", "gaussian", "--model", "noisy", "--data", "small"), "a.png: 8 x 10 pixels are too few"),
        (("eval", "real", "--data", "broken"), "a_mean.png: not a readable"),
        (("reproduce", "table3", "--limit", "0"), "--limit"),
        (("inspect", "mine", "data/Set12", "--limit", "0"), "--limit"),
        (("inspect", "upscaler", "data/Set12", "--factor", "100"), "0.png: factor: 95 x 92 pixels are too few"),
    ],
)
def test_wrong_usage(
    run: Run, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("small/a.png", "broken/a_real.png", "broken/a_mean.png"):
        Path(name).parent.mkdir(exist_ok=True)
        Image.new("L", (8, 10)).save(name)
    Path("broken/a_mean.png").write_bytes(b"nothing")
    weights.save("user/upscaler.safetensors", create("n3net-sr", features=4, depth=2))
    weights.save("user/color.safetensors", create("dncnn-6", features=4, depth=2, channels=3, noise_map=True))
    code, _, err = run(*arguments)
    assert code == 2
    assert message in " ".join(err.split())
