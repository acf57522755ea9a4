"""Weights in files: our format, where they are found, and how those of others become ours.

Nothing here executes what it reads: our files are safetensors, and files of others are read by torch's loader that
knows tensors and nothing else.
"""

from n3net.weights.format import digest, info, save
from n3net.weights.importers import import_file
from n3net.weights.store import available, load, load_for, locate, user_directory

__all__ = ["available", "digest", "import_file", "info", "load", "load_for", "locate", "save", "user_directory"]
