"""Checkpoints, whole and broken."""

from __future__ import annotations

from pathlib import Path

import torch

from n3net.training import checkpoint


def test_truncated_one_is_passed_over(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, {"step": step, "x": torch.rand(1000)})
    assert len(list(tmp_path.iterdir())) == checkpoint.KEEP
    newest = tmp_path / "step-000000003.pt"
    whole = newest.read_bytes()
    for content in (whole[:-1], whole[: len(whole) // 2], b"", whole[:2000] + b"\0\1\2\3" + whole[2004:]):
        newest.write_bytes(content)
        state, broken = checkpoint.latest(tmp_path)
        assert state is not None
        assert state["step"] == 2
        assert broken == [newest]
