"""Matching: who is compared with whom, and the neighbours that the selection makes of it.

Four backends do the same to rounding: ``reference`` (literal, slow), ``dense`` (one tile), ``tiled`` (pure PyTorch,
any size and device) and ``native`` (compiled, CPU). ``auto`` takes the fastest that can run.
"""

from n3net.neighbors.backends import BACKENDS, Backend
from n3net.neighbors.grid import Matching
from n3net.neighbors.images import match_images
from n3net.neighbors.problem import Choice, Images, Sets
from n3net.neighbors.sets import match_sets

__all__ = ["BACKENDS", "Backend", "Choice", "Images", "Matching", "Sets", "match_images", "match_sets"]
