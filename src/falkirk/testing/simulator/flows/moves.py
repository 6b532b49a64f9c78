"""An application whose flow has changed, and that moves an operator's state to another schema while workers die.

before the run   the flow of before has read all that there was, and ended
the run          the next one moves what was kept, a few rows a step, while more input comes in; then it reads that
a `Change`       every process dies, and those that follow run a third flow. They may find rows of both earlier versions

The operator has three tables: `state` is kept in another unit, `seen` goes on as it is, and `first` has no successor.
State of the lazy regime is never moved. The equations compare with a fold in plain Python: with what a run without failures
gives, whatever the steps are.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from string import ascii_letters
from typing import TYPE_CHECKING, Any

from falkirk.checkpoint.ids import InputPartition, Offset
from falkirk.state import schema
from falkirk.state.codec import decode_key, decode_values
from falkirk.state.meta import META
from falkirk.state.store import Reader
from falkirk.stream.dataflow.earlier import From
from falkirk.stream.dataflow.process import KeyContext
from falkirk.stream.definition.regimes import Checkpoint
from falkirk.stream.evolution.evolution import StageEvolution
from falkirk.stream.flow.flow import Flow
from falkirk.stream.formats import Json
from falkirk.stream.formats.types import Int64, String
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.stage import PhysicalStage
from falkirk.testing.cluster import Cluster
from falkirk.testing.simulator.check import Broken, steps
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.disk import Disk, SimStore
from falkirk.testing.simulator.flows.flowing import Flowing, run_to_end, task_of_key
from falkirk.testing.simulator.plan import FOREVER

if TYPE_CHECKING:
    from falkirk.testing.simulator.world import World

SPENT, TOLD = "spent", "told"
UNITS = {1: ("euros", 1), 2: ("cents", 100), 3: ("mills", 1000)}
"""Of `state` in each version: its column, and how many make a euro."""
USERS, MORE_USERS = 4, 5
"""In each partition: whom the flow of before has seen, and who spends later."""
ROWS_MOVED = 2
"""In a step: less than the three rows of a user."""
EVERY = 60
"""The turns between two records that come in during the run."""


def tables_of(version: int) -> dict[str, dict[str, type[int]]]:
    """The operator's tables beside `state`."""
    return {"seen": {"n": int}} | ({"first": {"euros": int}} if version == 1 else {})


def earlier(version: int) -> From:
    """A version, and how its rows become rows of the next one."""
    (column, unit), (after, after_unit) = UNITS[version], UNITS[version + 1]

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        return {after: row[column] * (after_unit // unit)}

    return From(version, state={column: int}, tables=tables_of(version), by=convert)


def plan_of(version: int, regime: Checkpoint) -> Plan:
    """The flow: what each user has spent so far, and with how many records. It says so for each record, so that it does not
    matter in which steps they are read."""
    column, unit = UNITS[version]

    def spend(row: dict[str, Any], key: KeyContext) -> dict[str, Any]:
        spent = (key.get() or {column: 0})[column] + row["euros"] * unit
        n = (key.get("seen") or {"n": 0})["n"] + 1
        key.put({column: spent})
        key.put({"n": n}, "seen")
        if version == 1:
            key.put({"euros": row["euros"]}, "first")
        return {"user": row["user"], "euros": spent // unit, "n": n}

    flow = Flow("app", regime=regime)
    rows = flow.source(SPENT, key="user", value=Json({"user": String, "euros": Int64})).key_by("user")
    process = rows.process(
        spend, id=SPENT, state={column: int}, tables=tables_of(version), version=version,
        returns={"user": str, "euros": int, "n": int}, migrate=[earlier(v) for v in range(1, version)],
    )  # fmt: skip
    process.sink(TOLD, key="user", value=Json())
    plan, evolutions = flow.plan(), partial(StageEvolution, rows_moved=ROWS_MOVED)
    stages = [replace(stage, evolutions=evolutions) for stage in plan.stages if isinstance(stage, PhysicalStage)]
    return replace(plan, stages=tuple(stages))


@dataclass(slots=True)
class Moves(Flowing):
    """The application. `inputs` records of each partition are read by the flow of before, and as many come later."""

    tasks: int = 1

    def create(self, broker: SimBroker) -> None:
        """Make the topics, with the layout of the flow of before."""
        self.begin(Cluster(plan_of(1, self.regime), {SPENT: self.tasks}), broker)

    def before(self, world: World) -> None:
        """The flow of before reads, and ends. Then the app has the next one, and more comes in."""
        self.cluster.copies = world.copies
        self.cluster.disk = Disk(world.copies, rebuilds=lambda _: True)
        self.cluster.nonce = world.nonce  # type: ignore[method-assign]  # no name twice
        for i in range(self.inputs):
            self._spend(i)
        run_to_end(self.cluster, 3)
        self._change()
        self._spend(self.inputs)

    def changed(self, world: World) -> None:
        """The third flow comes, once."""
        if len(self.earlier) == 1:
            self._change()

    def passes(self, world: World) -> None:
        """More input comes in while the state is moved."""
        at = min(p.end for p in world.broker.partitions(SPENT))
        if world.turn % EVERY == 0 and at < 2 * self.inputs:
            self._spend(at)

    def ends(self, broker: SimBroker, t: int) -> dict[InputPartition, Offset]:
        """Where the input of task t ends, once all of it is there."""
        return {i.partition: Offset(2 * self.inputs) for i in self.bound(t).inputs}

    def _change(self) -> None:
        self.earlier[len(self.earlier) + 1] = self.cluster.tasks, self.cluster.layout
        self.cluster.change(plan_of(len(self.earlier) + 1, self.regime))

    def _spend(self, i: int) -> None:
        for partition in self.cluster.broker.partitions(SPENT):
            user, euros = self.spending(partition.name.partition, i)
            value = json.dumps({"user": user, "euros": euros}).encode()
            partition.append(user.encode(), value, self.cluster.broker.now, None)

    def spending(self, partition: int, i: int) -> tuple[str, int]:
        """The i-th record of an input partition."""
        users = [u for u in ascii_letters if task_of_key(u, self.tasks) == partition]
        return users[i % (USERS if i < self.inputs else MORE_USERS)], 3 + 2 * i

    def due(self, t: int, upto: int = FOREVER) -> dict[str, list[tuple[int, int]]]:
        """The fold over the input of a task up to an offset: what each of its users is told, record by record: the sum of the
        euros, and the number of records."""
        due: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for user, euros in (self.spending(t, i) for i in range(min(2 * self.inputs, upto))):
            spent, n = due[user][-1] if due[user] else (0, 0)
            due[user].append((spent + euros, n + 1))
        return dict(due)

    def says(self, t: int) -> str:
        """The topic that task t writes to."""
        return TOLD

    def holds(self, world: World, *, ended: bool) -> None:
        """At any time `moved_once`, of each store that has another step; in the end `told` and `all_moved`. Raises Broken."""
        for host in world.hosts:
            for task, store in host.disk.stores.items():
                looked, now = f"{host.name} {task}", [store.progress.step, len(self.earlier)]
                if store.progress.step >= 0 and world.seen.get(looked) != now:
                    world.seen[looked] = now
                    moved_once(world, self, task.partition, store)
        if ended:
            told(world, self)
            all_moved(world, self)


def told(world: World, app: Moves) -> None:
    """Each user is told what the fold says: once for each record, in this order. Raises Broken."""
    due = {user: records for t in range(app.tasks) for user, records in app.due(t).items()}
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for partition in world.broker.partitions(TOLD):
        for entry in partition.committed(0, partition.end, trimmed=True)[0]:
            row = json.loads(entry.value or b"{}")
            found[row["user"]].append((row["euros"], row["n"]))
    if found != due:
        raise Broken(f"told: the users are told {dict(found)}, and should be told {due}")


def moved_once(world: World, app: Moves, t: int, store: SimStore) -> None:
    """A store at step n, on whichever disk: each row of the fold over divisions 0..n is in one table, that of an earlier
    version or that of the present one, and nothing else is. Raises Broken."""
    step = next(r for r in steps(world.broker, app, t) if r.step == store.progress.step)
    due = app.due(t, upto=next(r.end for r in step.division if r.partition.partition == t))
    kept = tables_in(app, t, store)
    for n, table in enumerate(("state", "seen")):
        versions = [rows for (_, name), rows in kept.items() if name == table]
        found = [item for rows in versions for item in rows.items()]
        if sorted(found) != sorted((user, records[-1][n]) for user, records in due.items()):
            raise Broken(
                f"moved once: at step {step.step} of task {t} the tables of {table!r} hold {versions}, not {due}"
            )


def all_moved(world: World, app: Moves) -> None:
    """In the end each task has done what it had to move, and its tables of earlier versions hold nothing. Raises Broken."""
    for t in range(app.tasks):
        if (last := steps(world.broker, app, t)[-1]).move and last.move.left:
            raise Broken(f"all moved: task {t} is not done")
        for host in world.hosts:
            if host.process is not None and (owned := host.process.worker.owned(t)) is not None:
                kept = tables_in(app, t, owned.opened())
                if left := {where: rows for where, rows in kept.items() if where[0] <= len(app.earlier) and rows}:
                    raise Broken(f"all moved: task {t} still holds {left}")


def tables_in(app: Moves, t: int, store: Reader) -> dict[tuple[int, str], dict[str, int]]:
    """By version and table: of each user, the row's only column, amounts in euros."""
    stage = app.bound(t).stage
    assert isinstance(stage, PhysicalStage)
    now = next(o for o in stage.keeping if o.id == SPENT)
    numbers = {line.words: line.numbers for line in schema.lines(stage.state_schema)}
    kept: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    for key, value in store.scan(b"", META):
        kept[key[2]].append((key, value))
    found = {}
    for version, operator in enumerate([*(e.operator for e in now.earlier), now], start=1):
        for table, number in zip(sorted(operator.tables()), numbers[operator.state_words()], strict=True):
            # A key without columns is the mark of a move.
            pairs = [(users[0], value) for key, value in kept[number] if (users := decode_key(key)[2])]
            if table in operator.table_schemas():
                [column] = decode_values(operator.table_schemas()[table], [value for _, value in pairs])
                unit = UNITS[version][1] if table == "state" else 1
                rows = zip(pairs, column.to_list(), strict=True)
                found[version, table] = {str(user): n // unit for (user, _), n in rows}
    return found
