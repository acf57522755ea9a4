"""What the page of neighbours is given: enough to compute the blocks' own weights."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from n3net.errors import UserError
from n3net.inspection.choices import look
from n3net.inspection.exploring import MAGIC, MODULES, bundle, explore, page
from n3net.models import create
from n3net.models.preparing import prepare
from n3net.nn import N3Options
from n3net.selection import select_from_logits

SIZE = (96, 103)


@pytest.fixture(scope="module", params=["paper", "reference-2018", "query"])
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    options = N3Options(normalize="query") if request.param == "query" else request.param
    return create("n3net", features=8, depth=2, noise_map=True, options=options).eval()


def read(document: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The header and the arrays, as the page takes them apart."""
    assert document.startswith(MAGIC)
    start = len(MAGIC) + 8
    length = int.from_bytes(document[start - 8 : start], "little")
    head = json.loads(document[start : start + length])
    arrays = []
    for place in head["arrays"]:
        count = int(np.prod(place["shape"]))
        begin = start + length + place["start"]
        assert begin % 8 == 0
        arrays.append(np.frombuffer(document, place["type"], count, begin).reshape(place["shape"]))
    return head, arrays


def test_weights_follow_from_what_is_written(model: Any) -> None:
    image = torch.rand(1, *SIZE, generator=torch.Generator().manual_seed(1))
    head, arrays = read(explore(model, image, 20.0, "a"))
    out, views = look(model, image, 20.0)
    assert (head["width"], head["height"], head["title"], head["sigma"]) == (SIZE[1], SIZE[0], "a", 20.0)
    np.testing.assert_array_equal(arrays[1][..., 0], (out[0].clamp(0, 1) * 255).round().to(torch.uint8))
    for block, view in zip(head["blocks"], views, strict=True):
        d, scale, inverse = (torch.from_numpy(arrays[block[n]].copy()) for n in ("distances", "scale", "inverse"))
        strength = inverse if block["update"] == "tempered" else torch.ones_like(inverse)
        z = -scale[..., None] * d  # inf where there is no candidate
        weights = select_from_logits(z, block["k"], strength[..., None])
        torch.testing.assert_close(weights, view.weights, atol=1e-5, rtol=1e-4)
        assert tuple(block["pads"]) == view.pads
        assert (block["rows"], block["cols"]) == tuple(view.temperature.shape)


def test_patches_of_a_folded_network_are_squares_of_the_image() -> None:
    torch.manual_seed(0)
    model = create("n3net-fast", features=8, depth=2, window=5, k=2).eval()
    image = torch.rand(1, 61, 80, generator=torch.Generator().manual_seed(1))
    (view,), (block,) = look(model, image)[1], read(explore(model, image))[0]["blocks"]
    assert block["cell"] == view.grid.cell == 6
    assert tuple(block["pads"]) == view.pads == (2, 2, 2, 2)  # 31 x 40 pixels of the network are 33 x 42 with zeros
    assert view.query_at(12.0, 11.0) == (1, 1)
    assert view.corner(1, 1) == (4, 4)


def test_a_prepared_network_gives_the_same(model: Any) -> None:
    image = torch.rand(1, 80, 85, generator=torch.Generator().manual_seed(2))
    plain, ready = (read(explore(net, image, 20.0))[1] for net in (model, prepare(model)))
    for a, b in zip(plain[2:], ready[2:], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)


def test_too_large_or_without_blocks_is_refused_in_words(model: Any) -> None:
    with pytest.raises(UserError, match="too many to explore"):
        explore(model, torch.zeros(1, 1200, 1200), 20.0)
    with pytest.raises(UserError, match="no N3 blocks"):
        explore(create("dncnn-6"), torch.zeros(1, 80, 80))


def test_the_page_stands_alone(model: Any) -> None:
    document = explore(model, torch.rand(1, 80, 80), 20.0, 'a <b> & "c" {{data}}')
    text = page(document).decode()
    assert "<title>a &lt;b&gt; &amp; &quot;c&quot; {{data}}" in text
    found = re.search(r'id="data">([^<]*)<', text)
    assert found is not None
    assert base64.b64decode(found[1]) == document
    script = text[text.index('<script type="module">') :]
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert not re.search(r"(src|href)=|url\(|https?://", text.replace(found[1], ""))
    assert "default-src 'none'" in text


def test_modules_are_bundled_in_the_order_of_their_imports() -> None:
    folder = Path(__file__).parents[2] / "src" / "n3net" / "inspection" / "page"
    known: set[str] = set()
    for name in MODULES:
        text = (folder / name).read_text()
        assert set(re.findall(r'^import .* from "\./(.*)";', text, re.MULTILINE)) <= known
        known.add(name)
    joined = bundle([(folder / name).read_text() for name in MODULES])
    names = re.findall(r"^(?:function|class|const|let) (\w+)", joined, re.MULTILINE)
    assert len(names) == len(set(names))


def test_inspect_writes_the_page(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from n3net.weights import save

    monkeypatch.setenv("N3NET_WEIGHTS", str(tmp_path))
    torch.manual_seed(0)
    save(tmp_path / "mine.safetensors", create("n3net", features=8, depth=2, noise_map=True))
    pixels = np.random.default_rng(0).integers(0, 256, (80, 90), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    target = tmp_path / "seen.html"
    arguments = ("inspect", "mine", str(tmp_path / "photo.png"), "--sigma", "20", "-o", str(target))
    code, out, err = command(*arguments)
    assert (code, err.strip()) == (0, "")
    assert "block 2" in out
    assert target.read_text().startswith("<!doctype html>")
    assert command(*arguments)[0] == 2  # it exists
