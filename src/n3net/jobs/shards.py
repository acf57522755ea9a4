"""A share of the inputs, the same on every machine and in every run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import PurePath

from n3net.errors import UserError


@dataclass(frozen=True)
class Shard:
    """Share ``number`` of ``count``, counted from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """From text like 3/16.

        >>> Shard.parse("3/16")
        Shard(number=3, count=16)
        """
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise UserError(f"--shard: expected a share such as 3/16, of 1/16 to 16/16, got {text!r}")
        return cls(int(number), int(count))

    def has(self, name: str) -> bool:
        """Whether the file of this name belongs to it; other files make no difference."""
        value = hashlib.sha256(PurePath(name).as_posix().encode()).digest()[:8]
        return int.from_bytes(value, "big") % self.count == self.number - 1
