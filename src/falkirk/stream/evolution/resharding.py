"""The state of a stage's tasks, divided among another number of tasks.

    state'(t)              =  Σ over old tasks u of state(u), where the shard of the key is one of t's
    entries of task tables    as their tables say (`falkirk.stream.dataflow.task_tables`)
    times of an edge          the greatest watermark of these old tasks; of each sender, the least that they have heard

Whole ranges of shards move: no key is hashed again. An old task has keys of a new one only if their shards overlap.

Rows that were late stay late, and windows that were complete stay so, also where a sender was idle, so that one old task was
ahead of another. Otherwise no sender of an edge sends a row of a time before a watermark that it has sent, and all old tasks
have read that. Where the senders are other tasks now, the watermark stays until all of them have sent theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import msgspec

from falkirk.state.codec import decode_key, encode_key, prefix_end
from falkirk.state.schema import lines, moved, rebuilt
from falkirk.state.shards import SHARDS, shard_range
from falkirk.state.store import Reader
from falkirk.stream.dataflow.event_time import Part, Times
from falkirk.stream.dataflow.task_tables import TaskTable
from falkirk.stream.stages.stage import PhysicalStage

Pair = tuple[bytes, bytes]

AT_ONCE = 20_000
"""Entries of a task table that are looked at together."""
_PREFIX = 3
"""Bytes of a key before its columns: shard and table."""
SHARD = 2
"""Bytes of the shard."""


class Resharding:
    """The division of one stage's state."""

    def __init__(
        self,
        stage: PhysicalStage,
        before: Sequence[Reader],
        tasks: int,
        others: Collection[str] = (),
        *,
        by_topic: bool | None = None,
    ) -> None:
        """`before`: the state of each task so far. `tasks`: how many there are now. `others`: the edges into the stage that
        other tasks send over now. `by_topic`: whether the tasks so far were the partitions of a topic, each with keys of all
        shards; None: as now."""
        self.stage, self.before, self.tasks, self.others = stage, before, tasks, set(others)
        self.now_by_topic = stage.partitioned_by == "topic"
        self.by_topic = self.now_by_topic if by_topic is None else by_topic
        numbers = stage.tables
        self.own: dict[int, TaskTable] = {
            numbers[o.id, name]: table for o in stage.keeping for name, table in o.task_tables().items()
        }
        self.times = stage.time_table if stage.watermarked else -1
        self.kept = {
            n for line in lines(stage.state_schema) if line.kept or line.moved or line.rebuilt for n in line.numbers
        }
        """The tables that there still are: behind an exchange, a stage may need no event time."""

    @property
    def moves(self) -> bool:
        """Whether shards change their task."""
        return len(self.before) != self.tasks or self.by_topic != self.now_by_topic

    def pairs(self, task: int) -> Iterator[Pair]:
        """All that one of the new tasks has, each key once."""
        ours = shard_range(task, self.tasks) if self.moves else range(SHARDS)
        from_tasks = [u for u in range(len(self.before)) if _meet(self._range(u), ours)] if self.moves else [task]
        for u in from_tasks:
            yield from self._keyed(u, ours)
        first = self.stage.first_shard(task, self.tasks)
        if self.moves:
            yield from self._migrated(from_tasks[0], first)
            for number, table in self.own.items():
                yield from self._entries(number, table, from_tasks, ours, first)
        if self.times >= 0:
            yield from self._times(from_tasks, first)

    def _range(self, u: int) -> range:
        """The shards of an old task. What belongs to the task is under the first."""
        return range(SHARDS) if self.by_topic else shard_range(u, len(self.before))

    def _keyed(self, u: int, ours: range) -> Iterator[Pair]:
        """What an old task has under these shards."""
        tables = self.kept - {self.times, *(self.own if self.moves else ())}
        first = self._range(u).start.to_bytes(SHARD)
        for key, value in self.before[u].scan(ours.start.to_bytes(SHARD), ours.stop.to_bytes(SHARD)):
            if key[SHARD] in tables and not (self.moves and len(key) == _PREFIX and key[:SHARD] == first):
                yield key, value

    def _migrated(self, u: int, first: int) -> Iterator[Pair]:
        """That the tables of earlier versions were migrated or rebuilt, which each task notes."""
        numbers = [line.numbers[0] for line in (*moved(self.stage.state_schema), *rebuilt(self.stage.state_schema))]
        found = self.before[u].get([encode_key(n, self._range(u).start, []) for n in numbers])
        yield from ((encode_key(n, first, []), at) for n, at in zip(numbers, found, strict=True) if at is not None)

    def _entries(
        self, number: int, table: TaskTable, from_tasks: Sequence[int], ours: range, first: int
    ) -> Iterator[Pair]:
        mark, start = encode_key(number, 0, [None])[SHARD:], first.to_bytes(SHARD)
        marks: list[bytes | None] = []
        shared: dict[bytes, bytes] = {}
        for u in from_tasks:
            found = self._own(u, number)
            marks.append(None)
            while some := list(islice(found, AT_ONCE)):
                if some[0][0][SHARD:] == mark:  # it sorts before all others
                    marks[-1] = some.pop(0)[1]
                for (key, _), value in zip(some, table.within(some, ours) if some else (), strict=True):
                    if value is None:
                        continue
                    at = start + key[SHARD:]
                    if not table.shared:
                        yield at, value
                    else:
                        shared[at] = table.both(shared[at], value) if at in shared else value
        yield from shared.items()
        if (left := table.mark(marks)) is not None:
            yield start + mark, left

    def _own(self, u: int, number: int) -> Iterator[Pair]:
        """The entries of an old task in a table that is under its first shard."""
        prefix = encode_key(number, self._range(u).start, [])
        return self.before[u].scan(prefix, prefix_end(prefix))

    def _times(self, from_tasks: Sequence[int], first: int) -> Iterator[Pair]:
        """What is known of event time. What sources have told stays with those who read them (`source_times`)."""
        found: dict[tuple[object, ...], list[bytes]] = {}
        for u in from_tasks:
            for key, value in self._own(u, self.times):
                found.setdefault(decode_key(key)[2], []).append(value)
        for name, values in found.items():
            kind, edge = name
            others = kind == "from" and edge in self.others
            if self.moves and kind != "from":
                continue  # a new task has said nothing yet
            if self.moves or others:
                unknown = [Times()] * (len(from_tasks) - len(values))
                values = [_encode(merged([*map(_decode, values), *unknown], others=others))]
            yield encode_key(self.times, first, [kind, edge]), values[0]  # type: ignore[list-item]


def source_times(stage: PhysicalStage, before: Reader, table: int) -> Iterator[Pair]:
    """What a task knew of the stage's sources, for the task that reads the same partitions now, and keeps nothing else.
    `table`: the number of the table with the times, before."""
    prefix = encode_key(table, 0, ["source"])
    for key, value in before.scan(prefix, prefix_end(prefix)):
        name = decode_key(key)[2]
        if stage.watermarked and any(source.id == name[1] for source in stage.sources):
            yield encode_key(stage.time_table, 0, name), value


def merged(times: Sequence[Times], *, others: bool) -> Times:
    """What is known of an edge in a task that has shards of all of these. `others`: other tasks send over it now.

    >>> one, two = Times(7, [Part("", 0, 7, 1), Part("", 1, 9, 1)], 2), Times(8, [Part("", 0, 8, 1), Part("", 1, 9, 2)], 2)
    >>> both = merged([one, two], others=False)
    >>> both.watermark, [(part.number, part.at, part.clock) for part in both.parts], both.senders
    (8, [(0, 7, 1), (1, 9, 2)], 2)
    >>> both = merged([one, two], others=True)
    >>> both.watermark, both.parts, both.senders
    (8, [], 0)
    """
    watermark, greatest = max(t.watermark for t in times), max(t.greatest for t in times)
    if others:
        return Times(watermark, greatest=greatest)
    by_sender: dict[int, list[Part]] = {}
    for part in (part for t in times for part in t.parts):
        by_sender.setdefault(part.number, []).append(part)
    parts = [
        Part("", number, min(p.at for p in some), max(p.clock for p in some), all(p.idle for p in some))
        for number, some in sorted(by_sender.items())
        if len(some) == len(times)
    ]
    return Times(watermark, parts, min(t.senders for t in times), greatest)


def _meet(one: range, other: range) -> bool:
    """Whether two ranges have a number in common."""
    return max(one.start, other.start) < min(one.stop, other.stop)


_decode = msgspec.msgpack.Decoder(Times).decode
_encode = msgspec.msgpack.Encoder().encode
