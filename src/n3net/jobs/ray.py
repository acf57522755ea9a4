"""A Ray cluster: actors that load the network once, paths in, records out."""

from __future__ import annotations

import logging
import math
import os
import pickle
import platform
from collections.abc import Iterator, Sequence
from typing import Any

from n3net.errors import UserError
from n3net.jobs.batch import Tell
from n3net.jobs.manifest import Item
from n3net.jobs.one import Call
from n3net.jobs.processes import Child
from n3net.jobs.records import Record

MOST_BLOCKS = 4096  # tasks that the driver hands out; beyond so many files, several go into one
ROUNDS = 5  # over what has no record yet, after nodes were lost
LOCAL = "local"


class Actor:
    """A supervisor and its process, which has the network: whatever a file does to that, the supervisor lives."""

    def __init__(self, call: bytes, threads: int, folder: str) -> None:
        self.child, self.folder = Child(pickle.loads(call), threads), folder

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        items: list[Item] = [pickle.loads(item) for item in batch["item"]]
        records = [self._record(item) for item in items]
        return {"index": [item.index for item in items], "record": [pickle.dumps(record) for record in records]}

    def _record(self, item: Item) -> Record | UserError:
        try:
            os.chdir(self.folder)  # names of files may be relative to it
            return self.child.do(item)
        except OSError as error:
            return UserError(
                f"{platform.node()}: {self.folder}: {error.strerror}; all nodes have to see the same files"
            )
        except UserError as error:  # about the whole batch, such as weights that are not there
            return error


class Ray:
    """Actors of a cluster.

    Args:
        address: of the cluster, ``auto`` for the one that this machine belongs to, ``local`` to start one here.
        workers: actors, at most; by default one for each processor of the cluster.
    """

    def __init__(self, address: str, workers: int | None = None) -> None:
        self.address, self.workers = address, workers

    def run(self, call: Call, items: Sequence[Item], tell: Tell) -> Iterator[tuple[int, Record]]:
        ray = _connected(self.address)
        left = {item.index: item for item in items}
        for _ in range(ROUNDS):
            for index, record in self._round(ray, call, list(left.values())):
                if left.pop(index, None) is None:
                    continue  # a second time, after the first answer came from a node that was lost
                tell(index, record.source, 0, 1)
                yield index, record
            if not left:
                return
        for item in left.values():
            yield item.index, call.failed(item, f"no answer from the cluster in {ROUNDS} rounds")

    def _round(self, ray: Any, call: Call, items: Sequence[Item]) -> Iterator[tuple[int, Record]]:
        processors = int(ray.cluster_resources().get("CPU", 1))
        workers = max(1, min(self.workers or processors, len(items)))
        threads = max(1, processors // workers) if self.workers is not None else 1
        blocks = math.ceil(len(items) / math.ceil(len(items) / MOST_BLOCKS))
        rows = [{"index": item.index, "item": pickle.dumps(item)} for item in items]
        records = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
            Actor,
            fn_constructor_args=(pickle.dumps(call), threads, os.getcwd()),
            batch_size=None,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
            num_cpus=threads,
        )
        for row in records.iter_rows():
            answer = pickle.loads(row["record"])
            if isinstance(answer, UserError):
                raise answer
            yield row["index"], answer


def _connected(address: str) -> Any:
    """Ray, as part of the cluster."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise UserError("--ray needs Ray: pip install 'n3net[ray]'") from None
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what it says about its own inside is not for users
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if not ray.is_initialized():
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"--ray {address}: {str(error).splitlines()[0]}") from None
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # there is one already
    context.max_errored_blocks = -1  # files without a record are done in another round
    return ray
