"""The corpus, and a little fuzzing of each door; ``make fuzz`` does more of it."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_doors import DOORS

from fuzz import CORPUS, corpus, mutated, tried

NEEDS = {"raw": "rawpy", "config": "yaml", "override": "yaml", "database": "pycolmap"}
FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CORPUS)))
def test_the_corpus(path: Path) -> None:
    pytest.importorskip(NEEDS.get(path.parent.name, "numpy"))
    assert tried(path.parent.name, path.read_bytes()) is None


def test_the_corpus_is_small_and_complete() -> None:
    assert max(path.stat().st_size for path in FILES) < 5000
    assert {path.parent.name for path in FILES} | {"database"} == set(DOORS)


@pytest.mark.parametrize("door", DOORS)
def test_changed_files(door: str) -> None:
    pytest.importorskip(NEEDS.get(door, "numpy"))
    files = corpus(door)

    @settings(max_examples=5 if door == "database" else 40, deadline=None, database=None)
    @given(st.randoms(use_true_random=False))
    def try_one(rng: random.Random) -> None:
        assert tried(door, mutated(files, rng)) is None

    try_one()
