"""What ``n3net match`` does between nearest neighbours and the pose, with the paper's network."""

from __future__ import annotations

from collections.abc import Callable

import torch

from n3net.bench.harness import Round, Sample
from n3net.bench.measure import peak_memory, timed


def seconds(matches: int = 2000) -> Round:
    call = scoring(matches)
    call()
    return lambda: Sample(timed(call))


def memory(matches: int = 20_000) -> Round:
    code = f"from n3net.bench.correspondence import scoring; scoring({matches})()"
    return lambda: Sample(peak_memory("", code, whole=True))


def scoring(matches: int) -> Callable[[], object]:
    from n3net.correspondence.filtering import score
    from n3net.correspondence.matchfile import Pair
    from n3net.models.cnnet import CorrespondenceN3Net

    torch.manual_seed(0)
    net = CorrespondenceN3Net().eval()
    pair = Pair(torch.rand(matches, 2).numpy(), torch.rand(matches, 2).numpy())
    return lambda: score(pair, net)
