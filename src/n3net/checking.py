"""Values from outside against the types that are declared for them: of configs in files, commands and calls."""

from __future__ import annotations

import dataclasses
import difflib
import math
import reprlib
import types
from collections.abc import Iterable
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from n3net.errors import UserError

T = TypeVar("T")

LARGEST = 2**63 - 1  # integer

_repr = reprlib.Repr()  # of values that may be without end, such as those of a file that refers to itself
_repr.maxlevel, _repr.maxstring, _repr.maxother, _repr.maxlong = 3, 120, 120, 60


def shown(value: Any) -> str:
    """A value from outside for a message: not longer than a few lines, whatever it is."""
    try:
        return _repr.repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__


def named(key: Any) -> str:
    """A key from outside for a message: as it is, if it is a word of usual length."""
    return key if isinstance(key, str) and len(key) <= _repr.maxstring else shown(key)


def printable(text: object) -> str:
    """Text from outside for a terminal: what would steer it, instead of being read, is written as an escape."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in str(text))


def from_mapping(kind: type[T], content: Any, path: str = "") -> T:
    """A dataclass from a nested mapping; what does not fit is a :class:`UserError` that names the key."""
    where = f"{path}." if path else ""
    if not isinstance(content, dict):
        raise UserError(f"{path or 'config'}: expected keys and values, got {shown(content)}")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for key in content:
        if key not in fields:
            hint = nearest(f"{where}{named(key)}", [where + name for name in fields])
            raise UserError(f"{where}{named(key)}: there is no such key{hint}")
    for name, f in fields.items():
        needed = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if needed and name not in content:
            raise UserError(f"{where}{name}: missing")
    values = {key: convert(value, hints[key], f"{where}{key}") for key, value in content.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise UserError(f"{where}{error}") from error


def convert(value: Any, hint: Any, path: str) -> Any:
    """A value as its annotation says, or a :class:`UserError` that names it by its path, such as ``optimizer.lr``."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        for choice in args:
            try:
                return convert(value, choice, path)
            except UserError:
                continue
    elif hint is types.NoneType and value is None:
        return None
    elif origin is Literal and value in args:
        return value
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint) and not isinstance(value, hint):
        return from_mapping(hint, value, path)
    elif origin is dict and isinstance(value, dict):
        return {convert(k, args[0], path): convert(v, args[1], f"{path}.{k}") for k, v in value.items()}
    elif origin is list and isinstance(value, list):
        return [convert(v, args[0], f"{path}[{i}]") for i, v in enumerate(value)]
    elif origin is tuple and isinstance(value, (list, tuple)) and (args[-1] is ... or len(value) == len(args)):
        kinds = [args[0]] * len(value) if args[-1] is ... else args
        return tuple(convert(v, kind, f"{path}[{i}]") for i, (v, kind) in enumerate(zip(value, kinds, strict=True)))
    elif isinstance(value, bool):
        if hint is bool:
            return value
    elif hint is float:
        try:
            number = float(value)  # YAML 1.1 reads 1e-3 as a word
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            if math.isfinite(number):
                return number
            raise UserError(f"{path}: expected a finite number, got {number}")
    elif isinstance(hint, type) and isinstance(value, hint) and not (isinstance(value, int) and abs(value) > LARGEST):
        return value
    raise UserError(f"{path}: expected {_words(hint)}, got {shown(value)}")


def nearest(word: str, choices: Iterable[str]) -> str:
    """How the message about an unknown word goes on: with the one that was meant, or with all that there are."""
    word, choices = word[:200], list(choices)
    close = difflib.get_close_matches(word, choices, 1, 0.5)
    return f", did you mean {close[0]!r}?" if close else f"; there are: {', '.join(choices) or 'none yet'}"


def _words(hint: Any) -> str:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(a) for a in args))
    if origin is list:
        return f"a list of {_words(args[0])}"
    if origin is tuple:
        return f"a list of {'' if args[-1] is ... else f'{len(args)} x '}{_words(args[0])}"
    words = {int: "an integer", float: "a number", bool: "true or false", str: "a word", types.NoneType: "null"}
    return words.get(hint, "keys and values")
