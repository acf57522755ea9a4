"""Labels of what is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from n3net.evaluation.names import split_label

pytestmark = pytest.mark.usefixtures("user")


def test_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("lr=1e-3/best.safetensors")
    path.parent.mkdir()
    path.touch()
    for model in (f"{path}", f"nn3d:{path}", f"{path}+mutual", f"{path}+best"):
        assert split_label(model) == ("", model)
        assert split_label(f"mine={model}") == ("mine", model)
        assert split_label(f"k=7={model}") == ("k=7", model)
    assert split_label("gray") == ("", "gray")
    assert split_label("k=7=gray") == ("k=7", "gray")
