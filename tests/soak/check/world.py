"""Logs as a correct system leaves them, made without one; and the ways in which they can be spoilt.

    bids ──▶ stage "stats" ──▶ sink "stats"        count, top and total per auction
                  └─ edge "moved" ──▶ stage "bidders" ──▶ sink "bidders"      the same per bidder

The steps, their divisions and the order in which tasks commit are random. Each way to spoil a log gives the kind of
finding that the checker must come to.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import orjson
from tests.soak.check.findings import Kind
from tests.soak.check.murmur import partition_of
from tests.soak.check.oracle import Arrived, Exchange, GroupBy, Oracle, Row, Together, group_by
from tests.soak.check.seen import Seen, Tp
from tests.soak.check.spec import Entry, Output, Spec, Stage

STEPS = "falkirk.world.steps"
COLUMNS = ("id", "auction", "bidder", "price")


@dataclass(frozen=True, slots=True)
class Written:
    """One record of a log. The invisible ones are those of an aborted transaction."""

    key: bytes | None
    value: bytes | None
    mark: bytes | None = None
    timestamp: int = 0
    visible: bool = True


def rows_of_batch(seen: Seen) -> list[Entry]:
    """The edge's batches here are JSON arrays."""
    return [Entry(str(row["bidder"]).encode(), row, seen.timestamp) for row in orjson.loads(seen.value or b"[]")]


def spec(prefix: str = "") -> Spec:
    """The flow that these logs are of; `prefix` keeps topics of several worlds on one broker apart."""
    stats = Output("stats", prefix + "stats", whole=group_by("auction", "stats"))
    bidders = Output("bidders", prefix + "bidders", whole=group_by("bidder", "bidders"))
    moved = Output("moved", prefix + "moved", unpack=rows_of_batch, place=None)
    first = Stage(
        "stats",
        (prefix + "bids",),
        (stats, moved),
        lambda: Together(GroupBy("auction", "stats"), Exchange("bidder", "moved", COLUMNS)),
    )
    second = Stage("bidders", (prefix + "moved",), (bidders,), group_by("bidder", "bidders"))
    return Spec("world", (prefix + "bids",), (first, second), prefix + STEPS)


@dataclass(slots=True)
class World:
    """Every partition's records."""

    spec: Spec
    partitions: int
    sent: int
    logs: dict[Tp, list[Written]] = field(default_factory=dict)

    def copy(self) -> World:
        return replace(self, logs={tp: list(log) for tp, log in self.logs.items()})

    def counts(self) -> dict[str, int]:
        """Partitions by topic."""
        counts = dict.fromkeys(self.spec.topics, self.partitions)
        counts[self.spec.steps_topic] = self.partitions * len(self.spec.stages)
        return counts

    def outputs(self) -> list[tuple[Tp, int]]:
        """The places of all records that steps emitted."""
        return [(tp, i) for tp, log in self.logs.items() for i, entry in enumerate(log) if entry.mark is not None]

    def steps(self) -> list[tuple[Tp, int]]:
        """The places of all step records."""
        logs = {tp: log for tp, log in self.logs.items() if tp.topic == self.spec.steps_topic}
        return [(tp, i) for tp, log in logs.items() for i, e in enumerate(log) if b'"step"' in (e.value or b"")]


class Task:
    """A task of the correct system: takes rows as it likes, and commits."""

    def __init__(self, world: World, stage: Stage, partition: int, slot: int) -> None:
        self.world, self.stage, self.name = world, stage, f"{stage.id}/{partition}"
        self.source, self.steps = Tp(stage.inputs[0], partition), Tp(world.spec.steps_topic, slot)
        self.oracle: Oracle = stage.oracle()
        self.step = self.read = self.names = 0

    def name_itself(self) -> None:
        self.names += 1
        self._append({"type": "named", "nonce": f"{self.name}-{self.names}", "owner": "w", "host": ""})

    def lag(self) -> int:
        return len(self.world.logs.setdefault(self.source, [])) - self.read

    def run(self, count: int) -> None:
        """One step over the next `count` records."""
        end = self.read + count
        entries = list(enumerate(self.world.logs[self.source]))[self.read : end]
        rows = [Arrived(offset, e.timestamp, row) for offset, e in entries for row in self._rows(e)]
        emits, numbers = self.oracle.run(self.step, rows), dict[tuple[str, int], int]()
        for output in self.stage.outputs:
            for key, dues in emits.get(output.id, {}).items():
                partition = partition_of(key, self.world.partitions)
                for due in dues:
                    seq = numbers.get((output.id, partition), 0)
                    numbers[output.id, partition] = seq + 1
                    value = orjson.dumps(due.value if output.place else [due.value])
                    mark = f"{self.name} {self.step} {seq}".encode()
                    log = self.world.logs.setdefault(Tp(output.topic, partition), [])
                    log.append(Written(key, value, mark, due.timestamp or 0))
        division = [[["", *self._identity()], self.read, end]]
        outputs = [[name, p, n] for (name, p), n in sorted(numbers.items())]
        record = {"type": "step", "task": self.name, "step": self.step, "nonce": f"{self.name}-{self.names}"}
        self._append(record | {"owner": "w", "clock": self.step, "division": division, "outputs": outputs})
        self.step, self.read = self.step + 1, end

    def _identity(self) -> tuple[str, str, int]:
        return self.source.topic, "id", self.source.partition

    def _rows(self, entry: Written) -> list[Row]:
        if self.source.topic in self.world.spec.sources:
            return [orjson.loads(entry.value or b"")]
        return orjson.loads(entry.value or b"")

    def _append(self, record: object) -> None:
        self.world.logs.setdefault(self.steps, []).append(Written(self.name.encode(), orjson.dumps(record)))


def make(rng: random.Random, *, rows: int = 60, partitions: int = 2, keys: int = 7, prefix: str = "") -> World:
    """A world in which everything has been read and emitted exactly once."""
    world = World(spec(prefix), partitions, rows)
    for i in range(rows):
        row = {"id": i, "auction": rng.randrange(keys), "bidder": rng.randrange(keys), "price": rng.randrange(1000)}
        key = str(row["auction"]).encode()
        bids = world.logs.setdefault(Tp(world.spec.sources[0], partition_of(key, partitions)), [])
        bids.append(Written(key, orjson.dumps(row), None, 1000 + i))
    stages = world.spec.stages
    tasks = [Task(world, s, p, i * partitions + p) for i, s in enumerate(stages) for p in range(partitions)]
    for task in tasks:
        task.name_itself()
    while busy := [task for task in tasks if task.lag()]:
        task = rng.choice(busy)
        if rng.random() < 0.1:
            task.name_itself()
        task.run(rng.randint(0, min(task.lag(), 8)))
    return world


Spoil = Callable[[World, random.Random], Kind | None]
"""Spoils a world in place; says what the checker must find, or None where the world has no place for it."""


def lose_one(world: World, rng: random.Random) -> Kind | None:
    """A record is not there: it was written by an aborted transaction."""
    tp, i = rng.choice(world.outputs())
    world.logs[tp][i] = replace(world.logs[tp][i], visible=False)
    return Kind.LOST


def double_one(world: World, rng: random.Random) -> Kind | None:
    """A record is there twice, one after the other."""
    tp, i = rng.choice(world.outputs())
    world.logs[tp].insert(i, world.logs[tp][i])
    return Kind.DOUBLED


def repeat_later(world: World, rng: random.Random) -> Kind | None:
    """A record of an earlier step comes again, behind everything."""
    tp, i = rng.choice(world.outputs())
    world.logs[tp].append(world.logs[tp][i])
    return Kind.DOUBLED


def move_later(world: World, rng: random.Random) -> Kind | None:
    """A record of an earlier step comes late, behind a record of a later one."""
    places = [(tp, i, j) for tp, i in world.outputs() if (j := _last_of_task(world, tp, i)) > i]
    if not places:
        return None
    tp, i, j = rng.choice(places)
    world.logs[tp].insert(j, world.logs[tp].pop(i))
    return Kind.OUT_OF_ORDER


def swap_neighbours(world: World, rng: random.Random) -> Kind | None:
    """Two records of a task that follow each other in a partition change places."""
    places = [(tp, i) for tp, i in world.outputs() if i and _task_at(world, tp, i) == _task_at(world, tp, i - 1)]
    if not places:
        return None
    tp, i = rng.choice(places)
    log = world.logs[tp]
    log[i - 1], log[i] = log[i], log[i - 1]
    return Kind.OUT_OF_ORDER


def lose_the_outputs(world: World, rng: random.Random) -> Kind | None:
    """A step record is visible, and nothing that the step wrote."""
    tp, i = rng.choice(world.outputs())
    _hide_step(world, world.logs[tp][i].mark or b"")
    return Kind.LOST


def lose_the_record(world: World, rng: random.Random) -> Kind | None:
    """A torn transaction: what the task's last step wrote is visible, and its step record is not."""
    last = {(_task_at(world, tp, i)): world.logs[tp][i].mark for tp, i in world.outputs()}
    names = {task.encode(): int((mark or b"").split()[1]) for task, mark in last.items()}
    places = [(tp, i) for tp, i in world.steps() if _last_step_with_outputs(world, tp, i, names)]
    tp, i = rng.choice(places)
    world.logs[tp][i] = replace(world.logs[tp][i], visible=False)
    return Kind.TORN


def change_a_value(world: World, rng: random.Random) -> Kind | None:
    """One number in one record is another."""
    tp, i = rng.choice(world.outputs())
    value = orjson.loads(world.logs[tp][i].value or b"")
    row = value[0] if isinstance(value, list) else value
    row[rng.choice([column for column in row if column not in ("id", "auction", "bidder")])] += 1
    world.logs[tp][i] = replace(world.logs[tp][i], value=orjson.dumps(value))
    return Kind.WRONG


def move_to_another_partition(world: World, rng: random.Random) -> Kind | None:
    """A record is in a partition that its key does not belong to."""
    tp, i = rng.choice([(tp, i) for tp, i in world.outputs() if tp.topic != world.spec.stages[0].outputs[1].topic])
    world.logs.setdefault(Tp(tp.topic, (tp.partition + 1) % world.partitions), []).append(world.logs[tp].pop(i))
    return Kind.LOST


def double_a_step(world: World, rng: random.Random) -> Kind | None:
    """A zombie: all that a step wrote is there a second time, its record too."""
    tp, i = rng.choice(world.steps())
    world.logs[tp].insert(rng.randint(i + 1, len(world.logs[tp])), world.logs[tp][i])
    return Kind.DOUBLED


def skip_a_row(world: World, rng: random.Random) -> Kind | None:
    """A step begins to read one record behind the place where the one before it ended."""
    places = [(tp, i) for tp, i in world.steps() if _division(world, tp, i)[1] < _division(world, tp, i)[2]]
    tp, i = rng.choice(places)
    record = orjson.loads(world.logs[tp][i].value or b"")
    record["division"][0][1] += 1
    world.logs[tp][i] = replace(world.logs[tp][i], value=orjson.dumps(record))
    return Kind.CHAIN


def lose_the_tail(world: World, rng: random.Random) -> Kind | None:
    """A task stops before the end of its input, and all is well with what it did."""
    tp, i = rng.choice([(tp, i) for tp, i in world.steps() if _division(world, tp, i)[2] and _is_last(world, tp, i)])
    record = orjson.loads(world.logs[tp][i].value or b"")
    _hide_step(world, f"{record['task']} {record['step']} ".encode())
    world.logs[tp][i] = replace(world.logs[tp][i], visible=False)
    return Kind.LOST if record["division"][0][1] < record["division"][0][2] else None


SPOILS: tuple[Spoil, ...] = (
    lose_one, double_one, repeat_later, move_later, swap_neighbours, lose_the_outputs, lose_the_record, change_a_value,
    move_to_another_partition, double_a_step, skip_a_row, lose_the_tail,
)  # fmt: skip


def _task_at(world: World, tp: Tp, i: int) -> str:
    return (world.logs[tp][i].mark or b"").decode().split(" ")[0]


def _last_of_task(world: World, tp: Tp, i: int) -> int:
    """The place of the partition's last record of the same task that is of a later step."""
    task, step = (world.logs[tp][i].mark or b"").decode().split(" ")[:2]
    marks = [(e.mark or b"").decode().split(" ") for e in world.logs[tp]]
    return max((j for j, mark in enumerate(marks) if mark[0] == task and int(mark[1]) > int(step)), default=i)


def _hide_step(world: World, mark: bytes) -> None:
    step = mark.rsplit(b" ", 1)[0] + b" "
    for tp, i in world.outputs():
        if (world.logs[tp][i].mark or b"").startswith(step):
            world.logs[tp][i] = replace(world.logs[tp][i], visible=False)


def _division(world: World, tp: Tp, i: int) -> tuple[object, int, int]:
    partition, start, end = orjson.loads(world.logs[tp][i].value or b"")["division"][0]
    return partition, start, end


def _is_last(world: World, tp: Tp, i: int) -> bool:
    return all(place <= i for other, place in world.steps() if other == tp)


def _last_step_with_outputs(world: World, tp: Tp, i: int, last: dict[bytes, int]) -> bool:
    record = orjson.loads(world.logs[tp][i].value or b"")
    return last.get(record["task"].encode()) == int(record["step"])
