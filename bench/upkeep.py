"""What the upkeep of many tasks costs: versions a second and requests a version, where each request takes a while.

    python bench/upkeep.py --tasks 100 --latency 30

Each task writes some rows, then all versions are due at once: one round. The checkpoint store is a folder, each of whose
requests takes so many milliseconds longer. The first round copies everything; the others are the usual case.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import obstore

from falkirk.checkpoint.ids import Offset, Step, TaskId, TopicPartition
from falkirk.checkpoint.regimes.eager import Eager
from falkirk.checkpoint.tasks import Owned, Phase, Task
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.worker.stores import TaskStores, memory_of
from falkirk.runtime.worker.upkeep.maintenance import Maintenance
from falkirk.state.rocks import RocksStore
from harness.command import command

KINDS = ("put", "get", "head", "list", "delete")


class Slow:
    """obstore's requests, counted, each of which takes a while longer."""

    def __init__(self, seconds: float) -> None:
        self.count = 0
        for kind in KINDS:
            setattr(obstore, kind, self._slow(getattr(obstore, kind), seconds))

    def _slow(self, request: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        def run(*given: Any, **options: Any) -> Any:
            self.count += 1
            time.sleep(seconds)
            return request(*given, **options)

        return run


@command(__doc__)
@click.option("--tasks", default=100, show_default=True, help="Tasks of the worker.")
@click.option("--latency", default=30, show_default=True, help="Milliseconds that each request takes.")
@click.option("--rounds", default=4, show_default=True, help="Versions of each task.")
@click.option(
    "--rows", default=500, show_default=True, help="Rows that each task writes between two versions, of 100 bytes."
)
def main(tasks: int, latency: int, rounds: int, rows: int) -> None:
    """Measure, and print a line for each round."""
    slow = Slow(latency / 1000)
    with tempfile.TemporaryDirectory(prefix="falkirk-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        stage = SimpleNamespace(fingerprint="f", state_schema="rows")
        bound = [SimpleNamespace(task=_task(n), stage=stage, inputs=()) for n in range(tasks)]
        app: Any = SimpleNamespace(name="app", incarnation="one", tasks=bound)
        memory = memory_of(app, Settings("", str(folder)))
        stores = TaskStores(app, folder / "state", (folder / "copies").as_uri(), memory, lambda: None)
        upkeep = Maintenance(stores, SimpleNamespace(trim=lambda below: None))  # type: ignore[arg-type]
        running = [_running(b, stores, memory) for b in bound]
        for task in running:
            upkeep.upkeep_of(task.owned.task.id)
        for number in range(rounds):
            for task in running:
                store = task.owned.opened()
                changes = {b"%d-%d" % (number, row): random.randbytes(100) for row in range(rows)}
                store.write(changes, store.progress.at(Step(number), Offset(number + 1), 0, 0))
            slow.count, began, cpu = 0, time.monotonic(), time.process_time()
            upkeep.tick(running, asked=f"round {number}")
            for task in running:
                known = upkeep.upkeep_of(task.owned.task.id)
                _wait(known.making)
                _wait(known.copying)
            seconds = time.monotonic() - began
            click.echo(
                f"round {number}: {seconds:6.2f} s, {tasks / seconds:6.1f} versions/s, {slow.count / tasks:5.2f} requests a "
                f"version, {time.process_time() - cpu:5.2f} s of CPU time"
            )
            time.sleep(1.0)  # between two versions that somebody asks for
        for task in running:
            task.owned.opened().close()


def _task(number: int) -> Task:
    recovery = Eager((TopicPartition("changes", number),))
    return Task(TaskId("counts", number), TopicPartition("steps", number), recovery)


def _running(bound: Any, stores: TaskStores, memory: Any) -> Any:
    store = RocksStore(stores._folder_of(bound.task.id), stores._identity(bound.task.id), memory)
    owned = Owned(bound.task, Phase.RUNNING, store=store)
    regime = SimpleNamespace(within=None, every=SimpleNamespace(total_seconds=lambda: 3600.0))
    return SimpleNamespace(
        owned=owned, bound=SimpleNamespace(inputs=(), stage=SimpleNamespace(regime=regime)), begun=True
    )


def _wait(job: Future[None] | None) -> None:
    assert job is not None
    job.result()


if __name__ == "__main__":
    main()
