"""The state of a flow in stores, as workers have it, without a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import falkirk as fk
from falkirk.checkpoint.ids import TaskId, TopicPartition
from falkirk.runtime.query.answers import Part, decode_part
from falkirk.runtime.query.owners import Owner
from falkirk.runtime.query.questions import Refusal
from falkirk.runtime.query.router import NotHere, Router
from falkirk.state.rocks import RocksStore, StoreSnapshot
from falkirk.state.store import Identity, Progress
from falkirk.testing.memory import MemoryApp

FLIGHT = {"carrier": str, "origin": str, "dest": str, "delay": int}
CARRIERS = ["AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]
PARTITIONS = 4


def flights(app: MemoryApp, rows: Sequence[tuple[str, str, str, int]]) -> None:
    """Send flights, and run to their end."""
    for row in rows:
        flight = dict(zip(FLIGHT, row, strict=True))
        app.append("flights", row[0].encode(), json.dumps(flight).encode())
    app.run()


def flow() -> fk.Flow:
    """Sums by the source's own key, by others behind an exchange, and a process."""
    flow = fk.Flow("flights")
    read = flow.source("flights", key="carrier", value=fk.Json(FLIGHT))
    read.group_by("carrier", id="carriers").agg(n=fk.len(), usual=fk.mean("delay")).sink(
        "c", key="carrier", value=fk.Json()
    )
    read.group_by("origin", "dest", id="routes").agg(n=fk.len()).sink("r", key=["origin", "dest"], value=fk.Json())
    return flow


class Workers:
    """An app's tasks in stores, spread over workers that can ask each other, without HTTP."""

    def __init__(self, folder: Path, made: fk.Flow, count: int = 1, partitions: int = PARTITIONS) -> None:
        self.memory = MemoryApp(made, dict.fromkeys(("flights", "rows", "others"), partitions), tasks=partitions)
        self.names = self.memory.tasks()
        self.stores = [
            RocksStore(folder / f"{stage.id}-{n}", Identity("app", f"{stage.id}/{n}", "f")) for stage, n in self.names
        ]
        self.step = -1
        tasks = [
            SimpleNamespace(task=SimpleNamespace(id=TaskId(stage.id, n), steps=TopicPartition("steps", p)), stage=stage)
            for p, (stage, n) in enumerate(self.names)
        ]
        self.app: Any = SimpleNamespace(
            name="flights", plan=self.memory.plan, tasks=tasks, layout=self.memory.layout, control="control"
        )
        self.held = [set(range(worker, len(self.names), count)) for worker in range(count)]
        """By worker: the tasks that run there."""
        self.believed = {p: worker for worker, some in enumerate(self.held) for p in some}
        """Which worker all others take for the owner of a task."""
        self.coming: set[int] = set()
        self.asked: list[tuple[str, str]] = []
        """What was forwarded: to whom, and for which task."""
        self.routers = [Router(self.app, Held(self, n), self.owner_of, self.forward) for n in range(count)]

    def commit(self) -> None:
        """The present state is that of the next step, in every task."""
        self.step += 1
        for (stage, number), store in zip(self.names, self.stores, strict=True):
            old = dict(store.scan(b"", b"\xff\xff"))
            new = dict(self.memory.states[stage.id, number].data)
            gone: dict[bytes, bytes | None] = dict.fromkeys(old.keys() - new.keys())
            store.write({**new, **gone}, Progress(self.step, self.step + 1, 0, 1000 + self.step))

    def owner_of(self, task: str) -> Owner | None:
        (partition,) = [p for p, (stage, n) in enumerate(self.names) if f"{stage.id}/{n}" == task]
        worker = self.believed.get(partition)
        return None if worker is None else Owner(f"w{worker}", "h", "")

    def forward(self, owner: Owner, task: str, target: str) -> Part:
        self.asked.append((owner.worker, task))
        status, body = self.routers[int(owner.worker[1:])].answer(target, task)
        assert status == 200
        return decode_part(body)

    def close(self) -> None:
        for store in self.stores:
            store.close()


class Held:
    """The tasks that run in one worker."""

    def __init__(self, workers: Workers, number: int) -> None:
        self.workers, self.number = workers, number

    @contextmanager
    def open(self, partition: int) -> Iterator[StoreSnapshot]:
        if partition in self.workers.coming:
            raise NotHere("comes", coming=True)
        if partition not in self.workers.held[self.number]:
            raise NotHere("is not here", coming=False)
        with self.workers.stores[partition].snapshot() as snapshot:
            yield snapshot


def answer(router: Router, target: str, forwarded: str = "") -> tuple[int, Any]:
    """Status and decoded JSON, whatever comes of it."""
    try:
        status, body = router.answer(target, forwarded)
    except Refusal as refusal:
        status, body = refusal.status, refusal.body()
    return status, json.loads(body)
