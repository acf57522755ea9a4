"""Many jobs, at any place: what happens to each, as it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from n3net.jobs.manifest import Item
from n3net.jobs.one import Call
from n3net.jobs.records import BUSY, Record

Tell = Callable[[int, str, int, int], None]  # index and name of a job, what is done of it, and all there is


class Place(Protocol):
    """Where jobs run: this process, several, other machines."""

    def run(self, call: Call, items: Sequence[Item], tell: Tell) -> Iterator[tuple[int, Record]]:
        """Do all jobs, and give the index and the record of each, in any order, as soon as it is known."""


class Here:
    """In this process, one after the other."""

    def run(self, call: Call, items: Sequence[Item], tell: Tell) -> Iterator[tuple[int, Record]]:
        call.begin()
        for item in items:
            index, name = item.index, item.job.name
            tell(index, name, 0, 1)
            yield index, call(item, lambda done, total, i=index, n=name: tell(i, n, done, total))  # type: ignore[misc]


def run(call: Call, items: Sequence[Item], place: Place, tell: Tell) -> Iterator[Record]:
    """Do all jobs; those that another run was at are looked at again when the others are done."""
    busy: list[Item] = []
    by_index = {item.index: item for item in items}
    for index, record in place.run(call, items, tell):
        if record.state == BUSY:
            busy.append(by_index[index])
            continue
        tell(index, record.source, 1, 1)
        yield record
    if busy:
        for index, record in place.run(replace(call, wait=True), busy, tell):
            tell(index, record.source, 1, 1)
            yield record
