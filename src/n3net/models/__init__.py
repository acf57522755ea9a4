"""Networks: plain modules, and a registry that builds them by name."""

from n3net.models.cbdnet import CBDNet
from n3net.models.cnnet import CNNet, CorrespondenceN3Net
from n3net.models.denoiser import Denoiser
from n3net.models.dncnn import DnCNN
from n3net.models.edsr import MDSR
from n3net.models.ffdnet import FFDNet
from n3net.models.folding import fold_batch_norm
from n3net.models.interface import Composed, Model, Network, Recipe, Stepwise
from n3net.models.memnet import MemNet
from n3net.models.n3net import N3Net
from n3net.models.nlnet import NLNet
from n3net.models.nn3d import NN3D
from n3net.models.red30 import RED30
from n3net.models.registry import ALIASES, MODELS, Entry, count_parameters, create, describe, register
from n3net.models.unlnet import UNLNet
from n3net.models.upscaler import ColorUpscaler, Upscaler

__all__ = [
    "ALIASES",
    "MDSR",
    "MODELS",
    "NN3D",
    "RED30",
    "CBDNet",
    "CNNet",
    "ColorUpscaler",
    "Composed",
    "CorrespondenceN3Net",
    "Denoiser",
    "DnCNN",
    "Entry",
    "FFDNet",
    "MemNet",
    "Model",
    "N3Net",
    "NLNet",
    "Network",
    "Recipe",
    "Stepwise",
    "UNLNet",
    "Upscaler",
    "count_parameters",
    "create",
    "describe",
    "fold_batch_norm",
    "register",
]
