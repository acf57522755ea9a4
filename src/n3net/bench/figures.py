"""All figures, in the order of the report. A new one is a function that makes its rounds, and a line here."""

from __future__ import annotations

from n3net.bench import batches, commands, correspondence, engine, inference, training
from n3net.bench.harness import Figure

STEP = "one training step as in the config gray"

FIGURES = (
    Figure(
        "n3net_over_dncnn17_folded",
        "N3Net as n3net denoise runs it / DnCNN-17 by PyTorch, folded, channels last; gray 512 x 512",
        0.55,
        inference.n3net_over_folded,
    ),
    Figure(
        "n3net_over_dncnn17_plain",
        "N3Net as n3net denoise runs it / DnCNN-17 by PyTorch, as it is",
        0.50,
        inference.n3net_over_plain,
    ),
    Figure(
        "dncnn17_over_folded",
        "DnCNN-17 as n3net runs it / by PyTorch, folded, channels last",
        0.36,
        inference.dncnn_over_folded,
    ),
    Figure(
        "n3net_over_dncnn17_forward",
        "N3Net / DnCNN-17, both as n3net runs them, forward",
        1.55,
        inference.n3net_over_dncnn,
    ),
    Figure(
        "ffdnet_over_torch",
        "FFDNet, colour, as n3net runs it / by PyTorch, folded, channels last",
        0.40,
        inference.ffdnet_over_torch,
    ),
    Figure("train_over_torch", f"{STEP} / with PyTorch's convolutions", 0.42, training.over_torch),
    Figure(
        "train_over_torch_one_thread",
        f"{STEP} / with PyTorch's convolutions, one thread",
        0.42,
        training.over_torch,
        threads=1,
    ),
    Figure("train_over_naive", f"{STEP} / by PyTorch, with the block the 2018 way", 0.12, training.over_naive),
    Figure(
        "photo_overhead",
        "n3net denoise, colour, 12 megapixels: time beyond the network's on its pixels / the latter",
        0.15,
        commands.photo_overhead,
        least=3,
        scale=1.0,
        slow=True,
    ),
    Figure(
        "large_image_mib",
        "n3net denoise, gray, 100 megapixels: peak memory (MiB)",
        1536,
        commands.large_image,
        least=1,
        slow=True,
    ),
    Figure("pixel_cost_growth", "engine, time per pixel: 2048 x 2048 / 512 x 512", 1.10, engine.pixel_cost_growth),
    Figure(
        "block_memory_mib",
        "engine, memory beyond in- and output, 1024 x 1024, inference (MiB)",
        200,
        engine.block_memory,
        least=3,
    ),
    Figure("match_seconds", "N3Net for correspondences, 2,000 matches scored (s)", 0.5, correspondence.seconds),
    Figure(
        "match_memory_mib",
        "N3Net for correspondences, 20,000 matches scored, whole process (MiB)",
        2048,
        correspondence.memory,
        least=3,
    ),
    Figure(
        "n3net_over_dncnn17_train",
        "N3Net / DnCNN-17, by PyTorch's convolutions, one training step, 8 x 80 x 80",
        1.45,
        training.n3net_over_dncnn,
    ),
    Figure(
        "n3net_over_dncnn17_train_memory",
        "N3Net / DnCNN-17, peak memory of that step",
        1.6,
        training.n3net_over_dncnn_memory,
        least=3,
    ),
    Figure(
        "batch_overhead",
        "a file of 512 x 512 by a worker process, claim and manifest included: time beyond the plain way's",
        0.05,
        batches.overhead,
        scale=1.0,
    ),
    Figure(
        "batch_two_workers",
        "time for an image of 512 x 512: two worker processes / one, each with one thread",
        0.55,
        batches.two_workers,
    ),
    Figure("batch_worker_mib", "a worker process after an image of 512 x 512 (MiB)", 300, batches.memory, least=1),
    Figure(
        "batch_tiny_ms",
        "10,000 files of 32 x 32 by two workers, start-up included: time for each (ms)",
        25,
        batches.tiny_files,
        least=1,
        slow=True,
    ),
    Figure("block_over_naive", "engine, 512 x 512: n3net / the 2018 way", 1 / 40, engine.block_over_naive, least=3),
)
