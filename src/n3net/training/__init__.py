"""One training loop for every task."""

from __future__ import annotations

import importlib
from typing import Any

from n3net.errors import UserError


def require(module: str) -> Any:
    """A library that only training needs, or words on how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"training needs {error.name}, which is not installed: pip install 'n3net[train]'") from error
