"""Networks: plain modules."""

from n3net.models.dncnn import DnCNN
from n3net.models.folding import fold_batch_norm
from n3net.models.n3net import N3Net

__all__ = ["DnCNN", "N3Net", "fold_batch_norm"]
