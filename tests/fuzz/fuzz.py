"""Looks for bytes that no door expects: ``make fuzz``.

    python tests/fuzz/fuzz.py [--seconds 300] [--seed 0] [door ...]

Files of the corpus are changed at random and given to their doors, in a process of its own: a crash, a hang or a
gigabyte is a finding, too. Findings are written to the corpus, where ``make test`` sees them from then on. With atheris
(``pip install atheris``) and ``--atheris``, one door is fuzzed by coverage instead.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_doors import DOORS, enter

from n3net.io.isolation import WorkerError, isolated

CORPUS = Path(__file__).parent / "corpus"
SECONDS, MEMORY = 60.0, 3_000_000_000
TELLING = (0, 1, 2, 127, 128, 254, 255)
NUMBERS = (0, 1, 2**7, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)


def corpus(door: str) -> list[bytes]:
    """The files of a door, and one that is too large to keep."""
    if door == "database":
        from seeds import database

        made = database()
        return [] if made is None else [made]
    return [path.read_bytes() for path in sorted((CORPUS / door).iterdir())]


def mutated(files: list[bytes], rng: random.Random) -> bytes:
    """One of the files, with some bytes changed, moved, repeated or left out."""
    data = bytearray(rng.choice(files))
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        place = rng.randrange(len(data) + 1)
        length = min(rng.choice((1, 2, 4, 8, 64)), len(data) - place)
        kind = rng.randrange(7)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and place < len(data):
            data[place] = rng.choice(TELLING)
        elif kind == 2:
            size = rng.choice((2, 4))
            order = rng.choice(("little", "big"))
            data[place : place + size] = (rng.choice(NUMBERS) % 2 ** (8 * size)).to_bytes(size, order)
        elif kind == 3:
            del data[place : place + length]
        elif kind == 4:
            data[place:place] = data[place : place + length] * rng.choice((1, 2, 50))
        elif kind == 5:
            other = rng.choice(files)
            start = rng.randrange(len(other) + 1)
            data[place : place + length] = other[start : start + length]
        elif kind == 6 and rng.random() < 0.2:
            del data[place:]
    return bytes(data)


def tried(door: str, data: bytes) -> str | None:
    """What is wrong with a door that was given these bytes, or None."""
    try:
        isolated(enter, door, data, seconds=SECONDS, memory=MEMORY)
    except WorkerError as error:
        return str(error)
    except Exception as error:
        return "".join(traceback.format_exception_only(error)).strip()
    return None


def fuzz(door: str, seconds: float, seed: int) -> tuple[int, list[str]]:
    """Until the time is over: how many files were tried, and what was found."""
    files, rng, found, count = corpus(door), random.Random(f"{door} {seed}"), [], 0
    seen: set[str] = set()
    end = time.monotonic() + seconds
    while files and time.monotonic() < end:
        data, count = mutated(files, rng), count + 1
        problem = tried(door, data)
        if problem is None:
            continue
        kind = "".join(c for c in problem if not c.isdigit())[:80]
        if kind not in seen:
            seen.add(kind)
            path = CORPUS / door / f"found-{hashlib.sha256(data).hexdigest()[:12]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            found.append(f"{path}: {problem}")
    return count, found


def by_coverage(door: str) -> None:
    import atheris

    sys.argv = [sys.argv[0], str(CORPUS / door)]
    atheris.instrument_all()
    atheris.Setup(sys.argv, lambda data: enter(door, data))
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("doors", nargs="*", default=list(DOORS), metavar="door", help=", ".join(DOORS))
    parser.add_argument("--seconds", type=float, default=300.0, help="of all doors together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", action="store_true", help="by coverage, one door, until it is stopped")
    given = parser.parse_args()
    if given.atheris:
        by_coverage(given.doors[0])
        return 0
    problems = 0
    for door in given.doors:
        count, found = fuzz(door, given.seconds / len(given.doors), given.seed)
        print(f"{door:10s} {count:7d} files tried, {len(found)} kinds of findings", flush=True)
        for line in found:
            print(f"    {line}")
        problems += len(found)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
