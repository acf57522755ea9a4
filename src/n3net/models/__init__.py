"""Networks: plain modules, and a registry that builds them by name."""

from n3net.models.cnnet import CNNet, CorrespondenceN3Net
from n3net.models.denoiser import Denoiser
from n3net.models.dncnn import DnCNN
from n3net.models.ffdnet import FFDNet
from n3net.models.folding import fold_batch_norm
from n3net.models.n3net import N3Net
from n3net.models.nn3d import NN3D
from n3net.models.red30 import RED30
from n3net.models.registry import ALIASES, MODELS, Entry, Recipe, count_parameters, create, describe
from n3net.models.upscaler import Upscaler

__all__ = [
    "ALIASES",
    "MODELS",
    "NN3D",
    "RED30",
    "CNNet",
    "CorrespondenceN3Net",
    "Denoiser",
    "DnCNN",
    "Entry",
    "FFDNet",
    "N3Net",
    "Recipe",
    "Upscaler",
    "count_parameters",
    "create",
    "describe",
    "fold_batch_norm",
]
