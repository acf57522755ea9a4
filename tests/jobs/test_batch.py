"""Batches: what is done, by whom, what is left out, and what survives the end of a process."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from n3net.errors import UserError
from n3net.jobs import batch
from n3net.jobs.batch import Here, Place
from n3net.jobs.claims import claim
from n3net.jobs.manifest import Item, Manifest, sort_out
from n3net.jobs.one import Call
from n3net.jobs.planning import Job
from n3net.jobs.processes import Processes
from n3net.jobs.records import BEFORE, DONE, FAILED, Record, stamp, state, unchanged
from n3net.jobs.shards import Shard

HERE = Path(__file__).parent


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module ``copying``, which worker processes find, too."""
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("copying")


def jobs(folder: Path, **texts: str) -> list[Job]:
    (folder / "in").mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / "in" / f"{name}.txt").write_text(text)
    return [Job(folder / "in" / f"{name}.txt", folder / "out" / f"{name}.txt") for name in texts]


def items(jobs: list[Job], force: bool = False) -> list[Item]:
    return [Item(i, job, force, stamp(job.target)) for i, job in enumerate(jobs)]


def run(call: Call, todo: list[Item], place: Place | None = None) -> dict[str, Record]:
    records = list(batch.run(call, todo, place or Here(), lambda *_: None))
    assert len(records) == len(todo)
    return {Path(record.source).stem: record for record in records}


def outputs(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((folder / "out").iterdir()) if path.suffix != ".jsonl"}


class TestManifest:
    def test_done_is_left_out_and_changes_are_named(self, copying: Any, tmp_path: Path) -> None:
        todo = jobs(tmp_path, a="one", b="two", c="refuse", d="four", e="five")
        manifest, operation = Manifest(tmp_path / "out" / "m.jsonl"), copying.Copy()
        manifest.begin(operation)
        run(Call(operation, manifest, shared=True), items(todo))
        (tmp_path / "in" / "b.txt").write_text("owt")  # of the same size
        os.utime(tmp_path / "in" / "d.txt")  # touched, not changed
        (tmp_path / "out" / "e.txt").unlink()
        found = sort_out(todo, operation, manifest)
        assert [item.job.source.stem for item in found.waiting] == ["b", "e"]
        assert [item.force for item in found.waiting] == [True, True]
        assert found.done == 2
        assert [(Path(r.source).stem, r.error) for r in found.failed] == [("c", "it refuses")]
        assert [reason.rpartition(" ")[2] for reason in found.changed.values()] == ["changed", "gone"]
        again = sort_out(todo, operation, manifest, retry=True)
        assert [item.job.source.stem for item in again.waiting] == ["b", "c", "e"]
        records = run(Call(operation, manifest, shared=True), again.waiting)
        assert records["b"].state == DONE
        assert outputs(tmp_path) == {"a.txt": "one", "b.txt": "owt", "d.txt": "four", "e.txt": "five"}
        assert sort_out(todo, operation, manifest).done == 4

    def test_other_settings_or_weights_are_refused_by_name(self, copying: Any, tmp_path: Path) -> None:
        todo = jobs(tmp_path, a="one")
        manifest, operation = Manifest(tmp_path / "out" / "m.jsonl"), copying.Copy()
        manifest.begin(operation)
        run(Call(operation, manifest, shared=True), items(todo))
        with pytest.raises(UserError, match=r"1 of 1 files were made with other settings \(shout false, now true\)"):
            sort_out(todo, copying.Copy(shout=True), manifest)
        with pytest.raises(UserError, match="other weights"):
            sort_out(todo, copying.Copy(weight="w2"), manifest)
        found = sort_out(todo, copying.Copy(shout=True), manifest, force=True)
        run(Call(copying.Copy(shout=True), manifest, shared=True), found.waiting)
        assert outputs(tmp_path) == {"a.txt": "ONE"}

    def test_what_is_not_in_it_is_not_replaced(self, copying: Any, tmp_path: Path) -> None:
        todo = jobs(tmp_path, a="one")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "a.txt").write_text("mine")
        operation, manifest = copying.Copy(), Manifest(tmp_path / "out" / "m.jsonl")
        records = run(Call(operation, manifest, shared=True), sort_out(todo, operation, manifest).waiting)
        assert "exists" in records["a"].error
        assert outputs(tmp_path) == {"a.txt": "mine"}

    def test_a_torn_line_costs_itself_only(self, tmp_path: Path) -> None:
        manifest = Manifest(tmp_path / "m.jsonl")
        manifest.add(tmp_path / "a", Record("a", "a"))
        with manifest.path.open("a") as file:
            file.write('{"output": "b", "sou')
        manifest.add(tmp_path / "c", Record("c", "c"))
        assert sorted(manifest.records()) == ["a", "c"]

    def test_many_may_add_at_once(self, tmp_path: Path) -> None:
        manifest, count = Manifest(tmp_path / "m.jsonl"), 50
        add = lambda n: [manifest.add(tmp_path / f"{n}-{i}", Record("x" * 500, "")) for i in range(count)]  # noqa: E731
        threads = [threading.Thread(target=add, args=[n]) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(manifest.records()) == 4 * count
        assert len(manifest.path.read_text().splitlines()) == 4 * count

    def test_it_moves_with_its_folder(self, copying: Any, tmp_path: Path) -> None:
        todo, operation = jobs(tmp_path, a="one"), copying.Copy()
        run(Call(operation, Manifest(tmp_path / "out" / "m.jsonl"), shared=True), items(todo))
        (tmp_path / "out").rename(tmp_path / "moved")
        moved = [Job(todo[0].source, tmp_path / "moved" / "a.txt")]
        assert sort_out(moved, operation, Manifest(tmp_path / "moved" / "m.jsonl")).done == 1

    def test_states(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        path.write_text("abc")
        before = state(path)
        assert unchanged(path, before)
        os.utime(path, ns=(1, 1))
        assert unchanged(path, before)
        path.write_text("abd")
        assert not unchanged(path, before)
        path.unlink()
        assert not unchanged(path, before)


class TestClaims:
    def test_one_at_a_time(self, tmp_path: Path) -> None:
        with claim(tmp_path / "a") as mine:
            assert mine is not None
            assert not mine.left_over
            with claim(tmp_path / "a") as second, claim(tmp_path / "b") as other:
                assert second is None
                assert other is not None
        assert not list(tmp_path.iterdir())
        with claim(tmp_path / "a") as again:
            assert again is not None
            assert not again.left_over

    def test_a_killed_process_leaves_a_claim_that_is_seen(self, tmp_path: Path) -> None:
        code = f"""
import os, signal
from pathlib import Path
from n3net.jobs.claims import claim
with claim(Path({str(tmp_path / "a")!r})):
    os.kill(os.getpid(), signal.SIGKILL)
"""
        assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
        with claim(tmp_path / "a") as mine:
            assert mine is not None
            assert mine.left_over
        assert not list(tmp_path.iterdir())

    def test_half_a_run_is_made_whole(self, copying: Any, tmp_path: Path) -> None:
        """Killed after the output was there and before anybody wrote that down: done again, although it exists."""
        todo, operation = jobs(tmp_path, a="one"), copying.Copy()
        planned = items(todo)
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "a.txt").write_text("one")
        (tmp_path / "out" / ".a.txt.claim").write_text("host 1\n")
        manifest = Manifest(tmp_path / "out" / "m.jsonl")
        assert run(Call(operation, manifest, shared=True), planned)["a"].state == DONE
        assert (
            run(Call(operation, manifest, shared=True), planned)["a"].state == BEFORE
        )  # another worker did it meanwhile
        assert sort_out(todo, operation, manifest).done == 1


@pytest.mark.parametrize("workers", [2])
class TestProcesses:
    def test_as_in_one_process(self, copying: Any, tmp_path: Path, workers: int) -> None:
        todo = jobs(tmp_path, **{f"f{i}": f"text {i}" for i in range(9)}, bad="refuse")
        records = run(Call(copying.Copy()), items(todo), Processes(workers))
        assert outputs(tmp_path) == {f"f{i}.txt": f"text {i}" for i in range(9)}
        assert records["bad"].error == "it refuses"

    def test_a_file_that_ends_its_process(self, copying: Any, tmp_path: Path, workers: int) -> None:
        todo = jobs(tmp_path, a="one", b="die", c="die once", d="four")
        operation, manifest = copying.Copy(log=str(tmp_path / "log")), Manifest(tmp_path / "out" / "m.jsonl")
        records = run(Call(operation, manifest, shared=True), items(todo), Processes(workers))
        assert {name: record.state for name, record in records.items()} == {
            "a": DONE,
            "b": FAILED,
            "c": DONE,
            "d": DONE,
        }
        assert records["b"].error == "set aside: 2 times its process died (SIGKILL, Killed)"
        assert Counter((tmp_path / "log").read_text().split()) == {"a.txt": 1, "b.txt": 2, "c.txt": 2, "d.txt": 1}
        assert outputs(tmp_path) == {"a.txt": "one", "c.txt": "die once", "d.txt": "four"}
        assert [r.error for r in sort_out(todo, operation, manifest).failed] == [records["b"].error]

    def test_twice_at_once(self, copying: Any, tmp_path: Path, workers: int) -> None:
        """Two runs share the work: each file is done once, and both know of all."""
        todo = jobs(tmp_path, **{f"f{i}": "sleep 0.05" for i in range(12)})
        operation, manifest = copying.Copy(log=str(tmp_path / "log")), Manifest(tmp_path / "out" / "m.jsonl")
        call, planned = Call(operation, manifest, shared=True), items(todo)
        both: list[dict[str, Record]] = []
        threads = [
            threading.Thread(target=lambda: both.append(run(call, planned, Processes(workers)))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter((tmp_path / "log").read_text().split()) == {f"f{i}.txt": 1 for i in range(12)}
        assert sum(record.state == DONE for records in both for record in records.values()) == 12
        assert sum(record.state == BEFORE for records in both for record in records.values()) == 12

    def test_the_driver_is_killed(self, copying: Any, tmp_path: Path, workers: int) -> None:
        """Its workers end with it, and another run does what is left."""
        todo = jobs(tmp_path, **{f"f{i}": "sleep 0.1" for i in range(10)}, long="sleep 1000")
        operation, manifest = copying.Copy(log=str(tmp_path / "log")), Manifest(tmp_path / "out" / "m.jsonl")
        code = f"""
import sys
sys.path[:0] = {[str(HERE), *sys.path]!r}
import pickle
from n3net.jobs import batch
from n3net.jobs.processes import Processes
call, items = pickle.loads({__import__("pickle").dumps((Call(operation, manifest, shared=True), items(todo[::-1])))!r})
list(batch.run(call, items, Processes({workers}), lambda *_: None))
"""
        driver = subprocess.Popen([sys.executable, "-c", code])
        while not manifest.path.exists() or len(manifest.records()) < 3:
            assert driver.poll() is None
            time.sleep(0.02)
        driver.kill()
        driver.wait()
        with claim(tmp_path / "out" / "long.txt", wait=True) as mine:  # returns when the orphan has ended, or never
            assert mine is not None
        (tmp_path / "in" / "long.txt").write_text("short")
        left = sort_out(todo, operation, manifest)
        assert left.done >= 3
        run(Call(operation, manifest, shared=True), left.waiting)
        assert sort_out(todo, operation, manifest).done == 11
        assert len(outputs(tmp_path)) == 11


class TestShards:
    def test_every_file_is_in_one_share(self) -> None:
        names = [f"folder/{i}.png" for i in range(1000)]
        shares = [[name for name in names if Shard(n, 16).has(name)] for n in range(1, 17)]
        assert sorted(name for share in shares for name in share) == sorted(names)
        assert min(map(len, shares)) > 30  # 62 on average

    def test_shares_do_not_change(self) -> None:
        assert [n for n in range(1, 17) if Shard(n, 16).has("a/b.png")] == [12]

    @pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2", ""])
    def test_what_is_no_share(self, text: str) -> None:
        with pytest.raises(UserError, match="expected a share such as 3/16"):
            Shard.parse(text)


def test_lines_are_json(copying: Any, tmp_path: Path) -> None:
    todo, operation = jobs(tmp_path, a="one"), copying.Copy()
    manifest = Manifest(tmp_path / "out" / "m.jsonl")
    manifest.begin(operation)
    manifest.begin(operation)
    run(Call(operation, manifest, shared=True), items(todo))
    settings, record = map(json.loads, manifest.path.read_text().splitlines())
    assert (settings["settings"], settings["are"]) == (operation.digest, {"shout": False})
    assert (record["output"], record["settings"], record["weights"], record["inputs"][0]["bytes"]) == (
        "a.txt",
        operation.digest,
        "w1",
        3,
    )
