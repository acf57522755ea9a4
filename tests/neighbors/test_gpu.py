"""The Triton backend against the reference, in Triton's interpreter on the CPU; and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from n3net import nearest
from n3net.neighbors import Matching
from problems import match_images

HERE = Path(__file__).parents[1]
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from n3net import nearest
from n3net.neighbors import Matching
from problems import match_images

def worst(function, tensors):
    results = []
    for backend in ("reference", "triton"):
        leaves = [x.clone().requires_grad_() for x in tensors]
        out = function(backend, *leaves)
        weight = torch.sin(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
        results.append([out.detach(), *torch.autograd.grad((out * weight).nansum(), leaves)])
    assert all(torch.equal(a.isnan(), b.isnan()) for a, b in zip(*results))
    return [float((a - b).nan_to_num().abs().max() / a.nan_to_num().abs().max()) for a, b in zip(*results)]

g = torch.Generator().manual_seed(0)
def rand(*shape):
    return torch.rand(shape, generator=g, dtype=torch.float64)

errors = {}
index = torch.randint(-1, 9, (2, 3, 5), generator=g)
index[0, 0] = -1
for distance, cold in (("euclidean", 0.3), ("squared", 0.01)):
    tensors = [2 * rand(2, 3, 5), 2 * rand(2, 9, 5), rand(2, 9, 3), cold * (rand(2, 3) + 0.2)]
    errors[distance] = worst(
        lambda backend, q, e, v, t: nearest(q, e, 3, t, values=v, candidates=index, distance=distance, backend=backend),
        tensors,
    )
matching = Matching(4, 2, 3)
embedding, values = rand(1, 1, 6, 8), rand(1, 1, 6, 8)
tensors = [embedding, values, rand(1, 2, 3), rand(1, 2, 3)]
errors["images"] = worst(lambda backend, *leaves: match_images(*leaves, 2, matching, backend), tensors)
values[0, 0, 0, 0] = torch.nan
errors["NaN"] = worst(lambda backend, e, s, c: match_images(e, values, s, c, 2, matching, backend),
    [embedding, rand(1, 2, 3), rand(1, 2, 3)])
print(json.dumps(errors))
"""


def test_equals_the_reference() -> None:
    """Forward and backward; queries without candidates, cold temperatures, patches that hold a NaN."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(HERE)], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    errors = json.loads(run.stdout.splitlines()[-1])
    assert set(errors) == {"euclidean", "squared", "images", "NaN"}
    for name, worst in errors.items():
        assert max(worst) < 1e-6, (name, worst)


def test_refuses_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    items, index = torch.rand(1, 5, 2), torch.zeros(1, 5, 3).long()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(ValueError, match="backend 'triton' cannot run: it runs on GPUs of NVIDIA"):
        nearest(items, items, 2, candidates=index, backend="triton")
    with pytest.raises(ValueError, match="cannot run: it needs candidates, or keep"):
        nearest(items, items, 2, backend="triton")
    with pytest.raises(ValueError, match="knows the rule 'continuous', not 'hard'"):
        nearest(items, items, 2, candidates=index, rule="hard", backend="triton")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ones = torch.ones(1, 3, 4)
    with pytest.raises(ValueError, match=r"triton is not installed: pip install 'n3net\[triton\]'"):
        match_images(torch.rand(1, 1, 8, 10), torch.rand(1, 1, 8, 10), ones, ones, 2, Matching(4, 2, 3), "triton")
