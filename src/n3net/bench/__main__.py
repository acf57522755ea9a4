"""The process of one figure: ``python -m n3net.bench KEY THREADS SECONDS``, one line of JSON for each round."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict

import torch

from n3net.bench.figures import FIGURES
from n3net.bench.harness import rounds
from n3net.errors import UserError
from n3net.memory import reuse_freed_memory


def main(key: str, threads: str, seconds: str) -> None:
    lines, sys.stdout = sys.stdout, sys.stderr  # whatever is measured may print
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # tidies up
    reuse_freed_memory()  # as the command line does; what we are compared with has it, too
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    figure = next(figure for figure in FIGURES if figure.key == key)
    for sample in rounds(figure, float(seconds)):
        print(json.dumps(asdict(sample)), file=lines, flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except UserError as error:
        sys.exit(str(error))
