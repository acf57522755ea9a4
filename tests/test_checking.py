"""Values against their declared types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from n3net.checking import convert, from_mapping, nearest
from n3net.errors import UserError


@dataclass(frozen=True)
class Inner:
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError(f"rate: expected at least 0, got {self.rate}")


@dataclass(frozen=True)
class Outer:
    count: int
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (3, int, 3),
        (3, float, 3.0),
        ("1e-3", float, 1e-3),
        (True, bool, True),
        ("hard", Literal["hard", "soft"], "hard"),
        (None, int | None, None),
        ([1, 2], list[int], [1, 2]),
        ([1, 2], tuple[float, float], (1.0, 2.0)),
        ([1, 2, 3], tuple[int, ...], (1, 2, 3)),
        ({"a": 1}, dict[str, Any], {"a": 1}),
        ({"rate": 2}, Inner, Inner(2.0)),
        (Inner(2.0), Inner, Inner(2.0)),
        (Inner(2.0), str | dict[str, Any] | Inner, Inner(2.0)),
    ],
)
def test_what_fits(value: object, hint: Any, expected: object) -> None:
    found = convert(value, hint, "x")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        (True, int, "x: expected an integer, got True"),
        (1, bool, "x: expected true or false, got 1"),
        ("1", int, "x: expected an integer, got '1'"),
        ("one", float, "x: expected a number, got 'one'"),
        (10**400, float, "x: expected a number, got 1000"),
        (3, str | dict[str, Any] | Inner, "x: expected a word or keys and values, got 3"),
        (2.5, int | None, "x: expected an integer or null, got 2.5"),
        ("fast", Literal["hard", "soft"], "x: expected 'hard' or 'soft', got 'fast'"),
        ([1], tuple[float, float], "x: expected a list of 2 x a number, got [1]"),
        ([1, "b"], list[int], "x[1]: expected an integer, got 'b'"),
        ({"rate": "b"}, Inner, "x.rate: expected a number, got 'b'"),
        ({"rate": -1}, Inner, "x.rate: expected at least 0, got -1"),
    ],
)
def test_what_does_not(value: object, hint: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        convert(value, hint, "x")
    assert message in str(caught.value)


def test_nested_mappings() -> None:
    assert from_mapping(Outer, {"count": 2, "inner": {"rate": 3}}) == Outer(2, Inner(3.0))
    for content, message in (
        ({}, "count: missing"),
        ({"count": 1, "inner": {"rat": 1}}, "inner.rat: there is no such key, did you mean 'inner.rate'?"),
        ({"count": 1, "other": 1}, "other: there is no such key"),
        (3, "config: expected keys and values, got 3"),
    ):
        with pytest.raises(UserError) as caught:
            from_mapping(Outer, content)
        assert message in str(caught.value)


def test_nearest() -> None:
    assert nearest("grey", ["gray", "color"]) == ", did you mean 'gray'?"
    assert nearest("x", ["gray", "color"]) == "; there are: gray, color"
    assert nearest("x", []) == "; there are: none yet"
