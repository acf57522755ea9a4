"""A page with pictures side by side, like the paper's Figure 3, that can be zoomed. One file, nothing fetched."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from n3net.evaluation.restoration import Level, Shown, level_of

TITLES = {"gaussian": "Denoising", "sr": "Super-resolution"}
NAMES = {"sigma": ("clean", "noisy"), "factor": ("original", "bicubic")}  # of truth and degraded image
CROP = 100  # pixels along a side of the part that is shown first


def page(report: dict[str, Any], pictures: Sequence[Shown]) -> str:
    """The figures of an evaluation and its pictures, as HTML."""
    figures = "\n".join(_figure(picture) for picture in pictures)
    protocol = "".join(
        f"<dt>{html.escape(k)}</dt><dd>{html.escape(str(v))}</dd>" for k, v in report["protocol"].items()
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>n3net eval</title><style>{_STYLE}</style>"
        f"<h1>{TITLES[report['task']]}, side by side</h1>{_table(report['results'])}"
        f"<p class=hint>All pictures of a row move together: scroll to zoom, drag to move, double-click for the whole "
        f"image. They open where the methods differ most.</p>{figures}"
        f"<h2>Protocol</h2><dl>{protocol}</dl><script>{_SCRIPT}</script></html>"
    )


def interesting_crop(outputs: Sequence[Tensor], clean: Tensor, size: int) -> tuple[int, int, int]:
    """Left, top and side of the square where squared errors of the outputs differ most: (C, H, W) each."""
    size = min(size, *clean.shape[-2:])
    errors = torch.stack([(out - clean).square().mean(0) for out in outputs])  # (n, H, W)
    spread = errors.std(0) if len(outputs) > 1 else clean.mean(0).sub(clean.mean()).square()
    total = F.avg_pool2d(spread[None], size, stride=4)[0]  # (h, w)
    at = int(total.argmax())
    return 4 * (at % total.shape[1]), 4 * (at // total.shape[1]), size


def _figure(picture: Shown) -> str:
    left, top, size = interesting_crop(list(picture.outputs.values()), picture.truth, CROP)
    height, width = picture.truth.shape[-2:]
    best = max(picture.psnr, key=lambda name: picture.psnr[name])
    truth, degraded = NAMES[picture.level.key]
    panels = [_panel(picture.truth, truth, "")]
    if degraded not in picture.outputs:
        panels.append(_panel(picture.degraded.clamp(0, 1), degraded, str(picture.level)))
    for name, out in picture.outputs.items():
        score = f"{picture.psnr[name]:.2f} dB"
        panels.append(_panel(out, name, f"<b>{score}</b>" if name == best else score))
    return (
        f"<figure data-w={width} data-h={height} data-crop='{left},{top},{size}'><figcaption>"
        f"{html.escape(picture.dataset)} / {html.escape(picture.image)}, {picture.level}</figcaption>"
        f"<div class=row>{''.join(panels)}</div></figure>"
    )


def _panel(image: Tensor, name: str, score: str) -> str:
    label = html.escape(name)
    return (
        f"<div class=panel><div class=view><img draggable=false alt='{label}' src='{data_uri(image)}'></div>"
        f"<span>{label}</span> <em>{score}</em></div>"
    )


def data_uri(image: Tensor) -> str:
    """An image (C, H, W) in [0, 1] as PNG inside a URI."""
    pixels = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _table(results: Sequence[dict[str, Any]]) -> str:
    best: dict[tuple[str, Level], float] = {}
    for r in results:
        key = (r["dataset"], level_of(r))
        best[key] = max(best.get(key, 0.0), r["psnr"])
    lines = []
    for r in results:
        low, high = r["psnr_interval"]
        strong = " class=best" if r["psnr"] == best[(r["dataset"], level_of(r))] else ""
        lines.append(
            f"<tr><td>{html.escape(r['dataset'])}<td>{level_of(r)}<td>{html.escape(r['model'])}"
            f"<td{strong}>{r['psnr']:.2f}<td class=dim>{low:.2f} – {high:.2f}<td>{r['ssim']:.4f}<td>{r['n']}"
            f"<td>{r['seconds']:.2f}"
        )
    head = "<tr><th>data<th><th>model<th>PSNR (dB)<th>95 %<th>SSIM<th>images<th>s / image"
    return f"<table>{head}{''.join(lines)}</table>"


_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1d232b;background:#fbfbfa}
body{max-width:1500px;margin:2rem auto;padding:0 1.5rem}
h1{font-weight:600;font-size:1.6rem}h2{font-weight:600;font-size:1.1rem;margin-top:2.5rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem 1rem .25rem 0;text-align:right;border-bottom:1px solid #e4e4e0;font-weight:400}
th{color:#6b7280}th:nth-child(1),td:nth-child(1),th:nth-child(3),td:nth-child(3){text-align:left}
.best,b{font-weight:700}.dim,.hint,em,dt{color:#6b7280}
figure{margin:1.5rem 0 2.5rem}figcaption{margin-bottom:.4rem}
.row{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:.8rem}
.view{aspect-ratio:1;overflow:hidden;background:#e9e9e5;border-radius:4px;cursor:grab;touch-action:none;position:relative}
.view img{position:absolute;left:0;top:0;transform-origin:0 0;image-rendering:pixelated;max-width:none;user-select:none}
em{font-style:normal;float:right}dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}dd{margin:0}
@media(prefers-color-scheme:dark){body{background:#15181c;color:#e6e6e3}th,td{border-color:#2b3037}.view{background:#22262c}}
"""

_SCRIPT = """
for (const figure of document.querySelectorAll('figure')) {
  const w = +figure.dataset.w, h = +figure.dataset.h, views = [...figure.querySelectorAll('.view')];
  let [x, y, side] = figure.dataset.crop.split(',').map(Number);   // top left corner and side of what is shown
  const draw = () => {
    side = Math.min(Math.max(side, 12), Math.max(w, h));
    x = Math.min(Math.max(x, 0), Math.max(w - side, 0)); y = Math.min(Math.max(y, 0), Math.max(h - side, 0));
    for (const v of views) {
      const s = v.clientWidth / side;
      v.firstChild.style.transform = `translate(${-x * s}px,${-y * s}px) scale(${s})`;
    }
  };
  for (const v of views) {
    v.addEventListener('wheel', e => {
      e.preventDefault();
      const box = v.getBoundingClientRect();
      const u = (e.clientX - box.left) / box.width, t = (e.clientY - box.top) / box.height;
      const next = Math.min(Math.max(side * Math.exp(e.deltaY * 0.0015), 12), Math.max(w, h));
      x += (side - next) * u; y += (side - next) * t; side = next; draw();
    }, {passive: false});
    v.addEventListener('pointermove', e => {
      if (!e.buttons) return;
      const s = side / v.clientWidth; x -= e.movementX * s; y -= e.movementY * s; draw();
    });
    v.addEventListener('pointerdown', e => v.setPointerCapture(e.pointerId));
    v.addEventListener('dblclick', () => { x = y = 0; side = Math.max(w, h); draw(); });
  }
  addEventListener('resize', draw); draw();
}
"""
