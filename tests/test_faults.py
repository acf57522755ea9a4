"""A few of the faults of ``make faults``: kills at random moments, files that may not grow, two programs at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

for module in ("lightning_fabric", "tensorboard", "yaml"):
    pytest.importorskip(module)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks and limits are Linux's")
def test_faults_do_no_harm() -> None:
    script = Path(__file__).with_name("faults.py")
    command = [sys.executable, str(script), "--moments", "4", "--only", "kills-batch,kills-training,ulimit-f,two"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kills-training" in done.stdout
