"""The paper's tables as data: what it reports, and which of our models stands for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reported:
    """One number of a table.

    Args:
        row, column: where it stands.
        dataset, level: what was measured on, and the noise level or the factor.
        psnr, ssim: what the paper reports, None where it reports nothing.
        model: our model of the same kind, or a method that learns nothing; None where there is none.
        config: what the model's config must say.
    """

    row: str
    column: str
    dataset: str
    level: float
    psnr: float | None
    ssim: float | None = None
    model: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    title: str
    figures: tuple[Reported, ...]
    corner: str = ""  # what its rows are
    task: str = "gaussian"  # of 'n3net eval'


def _table1() -> Table:
    rows: list[tuple[str, str, float, float]] = [
        ("(i) 1 x DnCNN (d = 17)", "dncnn-17", 29.97, 0.879),
        ("(ii) 1 x DnCNN (d = 18)", "dncnn-18", 29.92, 0.885),
        ("(iii) 3 x DnCNN (d = 6), KNN block, noisy input", "knn-input", 30.07, 0.891),
        ("(iv) 3 x DnCNN (d = 6), KNN block, DnCNN output", "knn-denoised", 30.08, 0.890),
        ("(v) 3 x DnCNN (d = 6), Concrete block", "concrete", 29.97, 0.889),
        ("(ours light) 2 x DnCNN (d = 6), N3 block", "n3net-light", 29.99, 0.888),
        ("(ours full) 3 x DnCNN (d = 6), N3 block", "n3net", 30.19, 0.892),
    ]
    return Table(
        "Table 1. Architectures for gray image denoising, Urban100, σ = 25",
        tuple(Reported(row, "Urban100", "Urban100", 25, p, s, model, _seven(model)) for row, model, p, s in rows),
        "model",
    )


def _seven(model: str) -> dict[str, int]:
    return {} if model.startswith("dncnn") else {"k": 7}


def _table2() -> Table:
    values = {
        25: (30.17, 30.21, 30.15, 30.27, 30.27, 30.22, 30.19),
        50: (26.76, 26.81, 26.78, 26.86, 26.83, 26.80, 26.82),
    }
    return Table(
        "Table 2. N3Net with k neighbours, Urban100",
        tuple(
            Reported(f"Urban100, σ = {sigma}", f"k = {k}", "Urban100", sigma, value, None, "n3net", {"k": k})
            for sigma, row in values.items()
            for k, value in enumerate(row, start=1)
        ),
        "data",
    )


# Columns of Table 3 and what stands for them here.
_METHODS = {
    "DnCNN": ("dncnn-17", {"depth": 17}),
    "BM3D": ("bm3d", {}),
    "NLNet": ("nlnet", {"patch_size": 7}),
    "UNLNet": ("unlnet", {"patch_size": 7}),
    "NN3D": ("nn3d", {}),
    "RED30": ("red30", {}),
    "FFDNet": ("ffdnet", {}),
    "N3Net": ("n3net", {"k": 7}),
}
_TABLE3 = {
    ("Set12", 25): (30.44, 29.96, 30.31, 30.27, 30.45, None, 30.43, 30.55),
    ("Set12", 50): (27.19, 26.70, 27.04, 27.07, 27.24, 27.24, 27.31, 27.43),
    ("Set12", 70): (25.56, 25.21, None, None, 25.61, 25.71, 25.81, 25.90),
    ("BSD68", 25): (29.23, 28.56, 29.03, 28.99, 29.19, None, 29.19, 29.30),
    ("BSD68", 50): (26.23, 25.63, 26.07, 26.07, 26.19, None, 26.29, 26.39),
    ("BSD68", 70): (24.85, 24.46, None, None, 24.89, None, 25.04, 25.14),
    ("Urban100", 25): (29.97, 29.71, 29.92, 29.80, 30.09, None, 29.92, 30.19),
    ("Urban100", 50): (26.28, 25.95, 26.15, 26.14, 26.47, 26.32, 26.52, 26.82),
    ("Urban100", 70): (24.36, 24.27, None, None, 24.53, 24.63, 24.87, 25.15),
}


def _table3() -> Table:
    return Table(
        "Table 3. Gray image denoising",
        tuple(
            Reported(f"{dataset}, σ = {sigma}", method, dataset, sigma, value, None, model, config)
            for (dataset, sigma), row in _TABLE3.items()
            for (method, (model, config)), value in zip(_METHODS.items(), row, strict=True)
        ),
        "data",
    )


def _supplement() -> Table:
    columns = [(6, 25), (6, 70), (17, 25), (17, 70)]
    rows = {
        "1 x DnCNN": ("dncnn-6", (29.04, 23.39, 29.74, 24.36)),
        "2 x DnCNN": ("dncnn-6x2", (29.59, 24.19, 29.48, 13.77)),
        "2 x DnCNN, KNN block": ("knn-light", (29.82, 24.63, 29.85, 22.49)),
        "2 x DnCNN, N3 block": ("n3net-light", (29.99, 24.91, 29.82, 24.18)),
    }
    return Table(
        "Supplement. One block, Urban100, trained on crops of 80 x 80",
        tuple(
            Reported(
                row, f"Urban100, d = {depth}, σ = {sigma}", "Urban100", sigma, value, None, model, {"depth": depth}
            )
            for row, (model, values) in rows.items()
            for (depth, sigma), value in zip(columns, values, strict=True)
        ),
        "model",
    )


# Columns of the tables of super-resolution and what stands for them here; the others have no counterpart.
_UPSCALERS = {
    "Bicubic": "bicubic",
    "SelfEx": "selfex",
    "WSD-SR": "wsd-sr",
    "MemNet": "memnet",
    "MDSR": "mdsr",
    "VDSR": "vdsr",
    "N3Net": "n3net-sr",
}
_TABLE5 = {
    ("Set5", 2): (33.68, 36.49, 37.21, 37.78, 38.11, 37.53, 37.57),
    ("Set5", 3): (30.41, 32.58, 33.50, 34.09, 34.66, 33.66, 33.84),
    ("Set5", 4): (28.43, 30.31, 31.39, 31.74, 32.50, 31.35, 31.50),
}
_SUPPLEMENT_SR = {
    ("Urban100", 2): (26.88, 29.54, 30.29, 31.31, 32.84, 30.76, 30.80),
    ("Urban100", 3): (24.46, 26.44, 26.95, 27.56, 28.79, 27.14, 27.19),
    ("Urban100", 4): (23.14, 24.79, 25.16, 25.50, 26.67, 25.18, 25.23),
    ("BSD100", 2): (29.56, 31.18, None, 32.05, 32.29, 31.90, 31.98),
    ("BSD100", 3): (27.21, 28.29, None, 28.95, 29.25, 28.82, 28.91),
    ("BSD100", 4): (25.96, 26.84, None, 27.38, 27.72, 27.29, 27.34),
}


def _super_resolution(title: str, values: Mapping[tuple[str, int], tuple[float | None, ...]]) -> Table:
    return Table(
        title,
        tuple(
            Reported(f"{dataset}, x{factor}", method, dataset, factor, value, None, model)
            for (dataset, factor), row in values.items()
            for (method, model), value in zip(_UPSCALERS.items(), row, strict=True)
        ),
        "data",
        "sr",
    )


TABLES = {
    "table1": _table1(),
    "table2": _table2(),
    "table3": _table3(),
    "table5": _super_resolution("Table 5. Super-resolution", _TABLE5),
    "supplement": _supplement(),
    "supplement-sr": _super_resolution("Supplement. Super-resolution", _SUPPLEMENT_SR),
}

# Table 4, Darmstadt Noise Dataset: method -> PSNR and SSIM of raw images, and of developed ones.
TABLE4: dict[str, tuple[float | None, ...]] = {
    "BM3D": (46.64, 0.9724, 37.78, 0.9308),
    "DnCNN": (47.37, 0.9760, 38.08, 0.9357),
    "N3Net": (47.56, 0.9767, 38.32, 0.9384),
    "TWSC": (None, None, 37.94, 0.9403),
    "CBDNet": (None, None, 38.06, 0.9421),
}

# Table 6, mAP at 5, 10 and 20 degrees: trained on / tested on -> method -> values. Neither images nor matches of it
# are available any more.
TABLE6 = {
    "St. Peter / St. Peter": {
        "No Net": (0.014, 0.030, 0.071),
        "CNNet": (0.271, 0.379, 0.522),
        "N3Net": (0.316, 0.431, 0.574),
    },
    "St. Peter / Reichstag": {
        "No Net": (0.0, 0.038, 0.111),
        "CNNet": (0.173, 0.337, 0.500),
        "N3Net": (0.231, 0.442, 0.601),
    },
    "Brown / Brown": {
        "No Net": (0.054, 0.110, 0.232),
        "CNNet": (0.236, 0.333, 0.463),
        "N3Net": (0.293, 0.391, 0.510),
    },
}
