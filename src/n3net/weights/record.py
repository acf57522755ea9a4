"""What the record of a file says of how its weights came about."""

from __future__ import annotations

from typing import Any

# Where levels may stand: what the task used, defaults included; what an importer states; what a config says.
PLACES = (("training", "data"), ("training",), ("training", "config", "data"))


def origin(name: str, record: dict[str, Any], shipped: bool) -> str:
    """Where weights come from, in a few words: shipped, imported, or trained for how long."""
    training = record.get("training")
    training = training if isinstance(training, dict) else {}
    if "imported" in training:
        return f"imported: {training['imported']}, {training.get('file', name)}"
    hours, steps = training.get("hours"), training.get("steps")
    trained = f"trained {hours:g} h, {steps} steps" if isinstance(hours, int | float) else "trained"
    return f"{name}, comes with n3net, {trained}" if shipped else f"{name}, {trained}"


def recorded_range(record: dict[str, Any], name: str) -> tuple[float, float] | None:
    """Lowest and highest of the levels that a record has under a name, None if it has none.

    Example:
        >>> recorded_range({"training": {"data": {"sigma": [0, 75]}}}, "sigma")
        (0.0, 75.0)
    """
    for place in PLACES:
        value: Any = record
        for key in (*place, name):
            value = value.get(key) if isinstance(value, dict) else None
        levels = [value] if isinstance(value, int | float) else value
        if isinstance(levels, list) and levels and all(isinstance(level, int | float) for level in levels):
            return float(min(levels)), float(max(levels))
    return None
