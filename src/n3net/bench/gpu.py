"""The backend ``triton``: what the compiler makes of it without a GPU, and how fast it is where there is one.

python -m n3net.bench.gpu  # registers, spills and shared memory for compute capability 7.5, 8.0 and 9.0
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from n3net.errors import UserError
from n3net.neighbors import Choice, Images, Matching, match_images
from n3net.neighbors.gpu import blocks
from n3net.neighbors.nearest import nearest

CAPABILITIES = (75, 80, 90)
# name: candidates, numbers that are compared, numbers that are aggregated, neighbours
PROBLEMS = {
    "64 candidates, 32 channels, k = 7": (64, 32, 32, 7),
    "images: 15 x 15 patches of 10 x 10 x 8": (225, 800, 800, 7),
}


def report() -> Iterator[dict[str, object]]:
    """A row for each kernel, problem and compute capability."""
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError:
        raise UserError("triton is not installed: pip install 'n3net[triton]'") from None
    from n3net.neighbors import triton_kernels

    for name, (m, e, c, k) in PROBLEMS.items():
        constants = {"M": m, "E": e, "C": c, "K": k, "EUCLIDEAN": True, **blocks(m, e, c, k)}
        for kernel in (triton_kernels.forward, triton_kernels.backward):
            types = {argument: _type(argument) for argument in kernel.arg_names if argument not in constants}
            signature = types | dict.fromkeys(constants, "constexpr")
            for capability in CAPABILITIES:
                target = GPUTarget("cuda", capability, 32)
                compiled = triton.compile(ASTSource(kernel, signature, constants), target=target)
                yield {
                    "kernel": kernel.__name__,
                    "problem": name,
                    "capability": f"{capability / 10:.1f}",
                    "shared memory (bytes)": compiled.metadata.shared,
                    **_assembled(compiled.asm["ptx"], capability),
                }


def _type(argument: str) -> str:
    return "i32" if argument in ("Q", "N") else "*i64" if argument == "index" else "*fp32"


def _assembled(ptx: str, capability: int) -> dict[str, object]:
    """What NVIDIA's assembler, which comes with triton, says of a program."""
    from triton.backends.nvidia.compiler import get_ptxas

    tool = get_ptxas(capability).path
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx, encoding="utf8")
        command = [tool, "-v", f"--gpu-name=sm_{capability}{'a' if capability == 90 else ''}", str(file)]
        run = subprocess.run([*command, "-o", f"{folder}/kernel.cubin"], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr)
    registers = re.search(r"Used (\d+) registers", run.stderr)
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill", run.stderr)]
    return {"registers": int(registers[1]) if registers else None, "spilled (bytes)": max(spills, default=0)}


def measure(device: str) -> Iterator[dict[str, object]]:
    """Milliseconds of the backends on a GPU, forward and with the gradient."""
    if not device.startswith("cuda") or not torch.cuda.is_available():
        raise UserError(f"--device {device}: there is no such GPU here; expected cuda, with a PyTorch that has it")
    torch.manual_seed(0)
    m, e, c, k = PROBLEMS["64 candidates, 32 channels, k = 7"]
    queries, items, values = (torch.randn(1, n, d, device=device) for n, d in ((10_000, e), (100_000, e), (100_000, c)))
    index = torch.randint(100_000, (1, 10_000, m), device=device)
    matching = Matching()
    grid = matching.grid(512, 512)
    images = [torch.randn(1, 8, 512, 512, device=device) for _ in range(2)]
    scale = torch.full((1, grid.query_rows, grid.query_cols), 0.02, device=device)
    choice = Choice(k=k, scale=scale, strength=torch.ones_like(scale))

    def of_sets(backend: str, *leaves: torch.Tensor) -> torch.Tensor:
        return nearest(leaves[0], leaves[1], k, values=leaves[2], candidates=index, backend=backend)

    def of_images(backend: str, *leaves: torch.Tensor) -> torch.Tensor:
        return match_images(Images(embedding=leaves[0], values=leaves[1], choice=choice, matching=matching), backend)

    problems: dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor]]] = {
        "64 candidates of 100,000 items, 10,000 queries": (of_sets, [queries, items, values]),
        "512 x 512 pixels, 8 channels": (of_images, images),
    }
    for name, (function, tensors) in problems.items():
        for backend in ("tiled", "triton"):
            yield {"problem": name, "backend": backend, "GPU": torch.cuda.get_device_name(device)} | _times(
                function, backend, tensors
            )


def _times(function: Callable[..., torch.Tensor], backend: str, tensors: list[torch.Tensor]) -> dict[str, object]:
    def forward() -> Any:
        with torch.no_grad():
            return function(backend, *tensors)

    def both() -> Any:
        leaves = [t.clone().requires_grad_() for t in tensors]
        return torch.autograd.grad(function(backend, *leaves).sum(), leaves)

    out: dict[str, object] = {}
    for name, call in (("forward (ms)", forward), ("with gradient (ms)", both)):
        call()
        torch.cuda.synchronize()
        times = []
        for _ in range(10):
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - start))
        out[name] = round(sorted(times)[5], 2)
    return out


def markdown(rows: Iterator[dict[str, object]]) -> Iterator[str]:
    """A table, line by line as its rows become known."""
    head: list[str] = []
    for row in rows:
        if not head:
            head = list(row)
            yield f"| {' | '.join(head)} |"
            yield f"|{'---|' * len(head)}"
        yield f"| {' | '.join(str(row[name]) for name in head)} |"


if __name__ == "__main__":
    for line in markdown(report()):
        print(line, flush=True)
