"""The scoreboard: metrics, protocols, reports, and the paper's tables beside ours."""

from n3net.evaluation.metrics import bootstrap, psnr, ssim

__all__ = ["bootstrap", "psnr", "ssim"]
