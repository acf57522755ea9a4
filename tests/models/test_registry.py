"""The registry and the baselines."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from n3net.errors import UserError
from n3net.models import (
    ALIASES,
    MODELS,
    NN3D,
    Denoiser,
    DnCNN,
    N3Net,
    count_parameters,
    create,
    describe,
    fold_batch_norm,
)
from n3net.models.nn3d import haar_matrix
from n3net.nn import PRESETS, N3Options

DENOISERS = [name for name in MODELS if describe(name)["task"] == "denoising" and name != "cbdnet"]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", DENOISERS)
def test_every_model_runs_and_learns(name: str, channels: int) -> None:
    few = {"stages": 2, "radius": 4}
    sizes = {"red30": {"features": 8}, "nn3d": {"depth": 3, "group": 4}, "nlnet": few, "unlnet": few}
    small: dict[str, Any] = sizes.get(name, {})
    model = create(name, channels=channels, **small)
    x = torch.rand(1, channels, 41, 50)
    out = model(x, sigma=25.0)
    assert out.shape == x.shape
    out.square().mean().backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in trained)


@pytest.mark.parametrize("name", [*MODELS, *ALIASES])
def test_every_model_is_described(name: str) -> None:
    entry = describe(name)
    assert entry["name"] in MODELS
    assert entry["parameters"] > 0
    assert entry["paper"]


@pytest.mark.parametrize(
    ("name", "thousands"), [("n3net", 706), ("n3net-light", 427), ("dncnn-17", 556), ("ffdnet", 486), ("red30", 4135)]
)
def test_parameters_are_the_papers(name: str, thousands: int) -> None:
    with torch.device("meta"):
        assert round(count_parameters(create(name)) / 1000) == thousands


@pytest.mark.parametrize(
    ("name", "config", "parameters"),
    [
        ("ffdnet", {"norm": False}, 485_316),
        ("ffdnet", {"norm": False, "channels": 3}, 852_108),
        ("nlnet", {}, 23_805),
        ("nlnet", {"patch_size": 5}, 9_045),
        ("nlnet", {"channels": 3}, 21_285),
        ("unlnet", {}, 24_285),
        ("unlnet", {"channels": 3}, 47_035),
        ("memnet", {}, 695_497),
        ("memnet-10", {}, 1_422_029),
        ("mdsr", {}, 7_953_987),
        ("mdsr-baseline", {}, 3_227_203),
        ("edsr-baseline", {}, 1_369_859),
        ("cbdnet", {}, 6_793_478),
        ("vdsr", {}, 665_921),
    ],
)
def test_parameters_are_those_of_public_files(name: str, config: dict[str, Any], parameters: int) -> None:
    with torch.device("meta"):
        assert count_parameters(create(name, **config)) == parameters


@pytest.mark.parametrize("k", range(8))
def test_neighbours_widen_the_network(k: int) -> None:
    with torch.device("meta"):
        net = create("n3net", k=k).net
    assert isinstance(net, N3Net)
    assert len(net.blocks) == (2 if k else 0)
    assert net.stages[1].layers[0].in_channels == 8 * (k + 1)


def test_a_recipe_builds_the_same_model_again() -> None:
    model = create("n3net", channels=3, noise_map=True, k=2, options="reference-2018", first_norm=False)
    recipe = model.recipe
    again = create(recipe.name, **recipe.config)
    again.load_state_dict(model.state_dict())
    assert again.recipe == recipe
    x = torch.rand(1, 3, 40, 40)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x, sigma=10), again.eval()(x, sigma=10))


@pytest.mark.parametrize("options", ["reference-2018", PRESETS["reference-2018"], {"distance": "squared"}, N3Options()])
def test_options_in_all_forms(options: Any) -> None:
    with torch.device("meta"):
        config = create("n3net", options=options).recipe.config
    assert isinstance(config["options"], dict)


@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("n3nett", {}, "did you mean 'n3net'"),
        ("n3net", {"stagse": 2}, "did you mean 'stages'"),
        ("n3net", {"k": "7"}, "expected an integer, got '7'"),
        ("n3net", {"k": True}, "expected an integer, got True"),
        ("n3net", {"noise_map": 1}, "expected true or false, got 1"),
        ("n3net", {"depth": 10**9}, "expected 0 to 256"),
        ("n3net", {"depth": 1}, "at least 2"),
        ("n3net", {"channels": 2}, "1 (gray) or 3 (colour)"),
        ("n3net", {"rule": "soft"}, "'continuous'"),
        ("n3net", {"match_on": "clean"}, "'denoised'"),
        ("n3net", {"options": "2018"}, "presets are paper"),
        ("n3net", {"options": {"distanse": "squared"}}, "distanse"),
        ("n3net", {"options": {"distance": "cosine"}}, "cosine"),
        ("nn3d", {"group": 6}, "power of 2"),
        ("red30", {"depth": 7}, "even number"),
    ],
)
def test_wrong_configs_are_named(name: str, overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        create(name, **overrides)
    assert words in str(error.value)


@pytest.mark.parametrize("name", ["n3net-light", "dncnn-6"])
def test_a_correction_in_units_of_the_noise(name: str) -> None:
    torch.manual_seed(0)
    model = create(name, channels=3, noise_map=True, relative=True, features=4).eval()
    x = torch.rand(2, 3, 40, 45)
    with torch.no_grad():
        assert torch.equal(model(x, 0), x)
        level = torch.full((2, 1, 40, 45), 51.0)
        net: Any = model.net
        expected = x + 0.2 * (net(torch.cat([x, level / 255], 1)) - x)
        torch.testing.assert_close(model(x, 51), expected)
        torch.testing.assert_close(model(x, level), expected)
    with pytest.raises(UserError, match="only with a noise map"):
        create(name, relative=True)


@pytest.mark.parametrize(
    ("name", "config"), [("n3net-light", {"noise_map": True, "relative": True}), ("n3net-sr", {"unit": 0.1})]
)
def test_autocast(name: str, config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = create(name, depth=3, features=4, **config).eval()
    x, level = torch.rand(1, 1, 40, 45), [25.0] if "relative" in config else []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        out = model(x, *level)
    assert out.dtype == torch.float32
    with torch.no_grad():
        torch.testing.assert_close(out, model(x, *level), atol=2e-3, rtol=0)  # it changes x by 0.06


def test_the_guide_stays_as_it_is() -> None:
    model = create("knn-denoised").train()
    guide = model.net.guide
    assert isinstance(guide, DnCNN)
    assert not guide.training
    assert not any(p.requires_grad for p in guide.parameters())
    before = {name: t.clone() for name, t in guide.state_dict().items()}
    model(torch.rand(1, 1, 40, 40)).sum().backward()
    assert all(torch.equal(before[name], t) for name, t in guide.state_dict().items())


def test_dncnn_without_norm_is_a_folded_one() -> None:
    with_norm = create("dncnn-6").eval()
    for module in with_norm.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean)
            torch.nn.init.uniform_(module.running_var, 0.5, 2)
    folded = fold_batch_norm(with_norm).net.layers
    without = create("dncnn-6", norm=False).eval()
    convolutions = [layer for layer in folded if isinstance(layer, torch.nn.Conv2d)]
    targets = [layer for layer in without.net.layers if isinstance(layer, torch.nn.Conv2d)]
    for source, target in zip(convolutions, targets, strict=True):
        target.load_state_dict(source.state_dict())
    x = torch.rand(1, 1, 20, 20)
    with torch.no_grad():
        torch.testing.assert_close(without(x), with_norm(x), atol=1e-4, rtol=1e-4)


def test_haar_is_orthonormal() -> None:
    h = haar_matrix(8)
    torch.testing.assert_close(h @ h.T, torch.eye(8))
    torch.testing.assert_close(h[0], torch.full((8,), 8**-0.5))


def test_the_non_local_step_averages_what_repeats() -> None:
    """Stripes with a little noise: patches repeat, so the filter brings the picture closer to the stripes."""
    stripes = (torch.arange(80) // 5 % 2).float().expand(1, 1, 80, 80)
    noisy = stripes + 0.05 * torch.randn(stripes.shape, generator=torch.Generator().manual_seed(0))
    step = NN3D([Denoiser(torch.nn.Identity())])
    members = step.find(noisy)
    out = step.filter(noisy, members, torch.tensor([0.2]))
    assert (out - stripes).square().mean() < 0.3 * (noisy - stripes).square().mean()
    torch.testing.assert_close(step.filter(noisy, members, torch.tensor([0.0])), noisy)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(step.filter(noisy, members, torch.tensor([0.2])), out, rtol=0, atol=0.008)
