"""Configs: their values, names, overrides and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from n3net.checking import from_mapping
from n3net.errors import UserError
from n3net.models import create
from n3net.nn import PRESETS, N3Options
from n3net.tasks import task_class
from n3net.tasks.gaussian import GaussianOptions
from n3net.training import config
from n3net.training.loop import train
from n3net.weights import load, save
from runs import tiny

for module in ("lightning_fabric", "tensorboard", "yaml"):
    pytest.importorskip(module)


@pytest.mark.parametrize("name", config.names())
def test_packaged(name: str) -> None:
    settings = config.load(name)
    kind = task_class(settings.task)
    from_mapping(kind.Options, settings.data, "data")
    create(**settings.model)
    assert from_mapping(config.Config, config.to_mapping(settings)) == settings


def test_paper_protocol() -> None:
    c = config.load("gaussian-50")
    assert (c.epochs, c.batch_size, c.optimizer.lr, c.schedule.final, c.optimizer.weight_decay) == (
        50,
        32,
        1e-3,
        1e-8,
        1e-4,
    )
    assert (c.data["sigma"], c.data["crop"], c.data["crops_per_image"]) == (50, 80, 512)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("optimizer.rl=1", "optimizer.rl: there is no such key, did you mean 'optimizer.lr'?"),
        ("batchsize=3", "did you mean 'batch_size'?"),
        ("batch_size=eight", "batch_size: expected an integer, got 'eight'"),
        ("batch_size=2.5", "batch_size: expected an integer"),
        ("optimizer.lr=fast", "optimizer.lr: expected a number"),
        ("optimizer.lr=-1", "optimizer.lr: expected a positive number"),
        ("optimizer.name=adagrad", "optimizer.name: expected 'adam' or 'adamw' or 'sgd' or 'muon'"),
        ("optimizer=7", "optimizer: expected keys and values"),
        ("channels_last=1", "channels_last: expected true or false"),
        ("budget=tomorrow", "budget"),
        ("save_every=often", "save_every"),
        ("optimizer.lr", "expected key=value"),
        ("ema=1", "ema: expected a decay"),
        ("data.train=[a", "data.train: expected a value in YAML, such as 3, name or [a, b], got '[a'"),
        ("precision=16-mixed", "precision: expected bf16-mixed, as 16-mixed scales"),
    ],
)
def test_errors_name_the_key(override: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        config.load("gray", [override])
    assert words in str(error.value)


def test_errors_of_the_task_and_the_model(folder: Path, tmp_path: Path) -> None:
    for override, words in [
        ("data.sigmas=3", "data.sigmas: there is no such key, did you mean 'data.sigma'?"),
        ("model.kk=3", "no option 'kk'"),
        ("task=gausian", "task: expected gaussian"),
        ("data.train=[nowhere]", "there is no such folder or image"),
        ("data.validation=[train]", "is also a training image"),
        ("data.crop=100", "crops need at least 100"),
        ("model.noise_map=false", "noise_map: true"),
        ("data.validation_images=-1", "data.validation_images: expected at least 0, got -1"),
        ("data.guide=dncnn-17", "data.guide: n3net takes none, got dncnn-17"),
        ("model.match_on=denoised", "data.guide: n3net needs the weights of the DnCNN that it matches on"),
    ]:
        with pytest.raises(UserError) as error:
            train(tiny(folder, override), tmp_path / "run")
        assert words in str(error.value)


@pytest.mark.parametrize("name", ["vdsr", "cnnet", "raw-dncnn"])
def test_models_for_something_else(folder: Path, name: str) -> None:
    options = GaussianOptions(["train"], ["validation"], str(folder), crop=16)
    task = task_class("gaussian")(options, {"name": name}, 0)
    with pytest.raises(UserError, match=f"model: {name} is not for denoising"):
        task.build_model()


def test_guides(folder: Path, tmp_path: Path) -> None:
    model = {"name": "knn-denoised", "depth": 3, "features": 4}
    for depth in (17, 16):
        guide = tmp_path / f"{depth}.safetensors"
        save(guide, create("dncnn", depth=depth), {})
        options = GaussianOptions(["train"], ["validation"], str(folder), crop=16, guide=str(guide))
        task = task_class("gaussian")(options, model, 0)
        if depth == 17:
            loaded = task.build_model().get_submodule("net.guide").state_dict()
            for name, tensor in load(guide).get_submodule("net").state_dict().items():
                assert torch.equal(loaded[name], tensor)
        else:
            with pytest.raises(UserError, match="is no DnCNN like the guide of knn-denoised"):
                task.build_model()


def test_unknown_config() -> None:
    with pytest.raises(UserError, match="did you mean 'gray'"):
        config.load("grey")


def test_last_length_counts() -> None:
    c = config.load("gaussian-25", ["steps=7"])
    assert (c.epochs, c.steps, c.budget) == (None, 7, None)
    assert config.load("gray", ["budget=1h30m"]).budget == "1h30m"


def test_one_option_of_a_preset() -> None:
    options = config.load("gray", ["model.options.neighbors=values"]).model["options"]
    assert N3Options(**options) == replace(PRESETS["reference-2018"], neighbors="values")
    assert config.load("gray", ["model.options=paper"]).model["options"] == "paper"


def test_overrides_are_typed() -> None:
    c = config.load("gray", ["optimizer.lr=5e-4", "data.sigma=[5, 10]", "optimizer.clip=null"])
    assert c.optimizer.lr == 5e-4
    assert c.optimizer.clip is None
    assert c.data["sigma"] == [5, 10]
