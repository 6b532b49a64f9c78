"""A Kafka cluster in memory, reduced to what the step protocol needs.

Requests take effect when they are called. What Kafka does later by itself is a list of pending things (`pending`). The
simulation does them one at a time and in any order: a request in transit arrives, a marker is written. Time-outs, expiry of
sessions, compaction and retention are called, not pending: they may happen or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from falkirk.checkpoint.ids import OwnerId, TopicPartition, worker_of
from falkirk.testing.simulator.cluster.coordinator import Concurrent, Coordinator, Fenced, InvalidState, Moving
from falkirk.testing.simulator.cluster.group import Group, IllegalGeneration, InstanceFenced, Membership, UnknownMember
from falkirk.testing.simulator.cluster.line import Line
from falkirk.testing.simulator.cluster.partition import Entry, Fate, Partition, Txn

OFFSETS = TopicPartition("__consumer_offsets", 0)
"""Where offsets committed in a transaction wait for their marker."""


class Pending(NamedTuple):
    """Something that the cluster still has to do."""

    what: str
    do: Callable[[], object]
    due: int = 0
    """Not before this time, in milliseconds since 1970."""


class Sent(NamedTuple):
    """A record as a producer sends it."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: list[tuple[str, bytes]]


@dataclass(slots=True)
class SimBroker:
    """The whole cluster.

    >>> broker = SimBroker(); broker.create("steps", 1); tp = TopicPartition("steps", 0)
    >>> epoch = broker.coordinator.init("w")
    >>> broker.produce("w", epoch, tp, [Sent(None, b"x", None, [])])
    0
    >>> broker.coordinator.end("w", epoch, commit=True)
    >>> broker[tp].committed(0, 1), [p.what for p in broker.pending()]
    (([], 0), ['commit marker of w in steps-0'])
    >>> broker.settle(); [e.value for e in broker[tp].committed(0, 1)[0]]
    [b'x']
    """

    now: int = 1_000_000
    """Milliseconds since 1970."""
    coordinator: Coordinator = field(default_factory=Coordinator)
    group: Group = field(default_factory=lambda: Group(0))
    under_way: list[Pending] = field(default_factory=list)
    """Requests that their sender no longer waits for. Each may arrive at any later time, or never."""
    coordinator_back: int = 0
    """The time from which the transaction coordinator answers again."""
    _refused: dict[tuple[str, str], int] = field(default_factory=dict)
    """Until when no record for a topic is taken, from one worker or, "", from any."""
    compacted: set[str] = field(default_factory=set)
    """The topics that the log cleaner compacts."""
    lines: dict[str, Line] = field(default_factory=dict)
    """Of the workers whose way to the brokers is slow, or was."""
    timeouts: dict[str, int] = field(default_factory=dict)
    """How long a transaction of each transactional id may be open where the line is slow."""
    committed_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    _partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    _offsets: dict[Txn, dict[TopicPartition, int]] = field(default_factory=dict)

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, or its missing partitions."""
        for p in range(partitions):
            tp = TopicPartition(topic, p)
            self._partitions.setdefault(tp, Partition(tp))

    def __getitem__(self, partition: TopicPartition) -> Partition:
        return self._partitions[partition]

    def partitions(self, topic: str) -> list[Partition]:
        """All of one topic, in order."""
        return [p for tp, p in sorted(self._partitions.items()) if tp.topic == topic]

    def refuse(self, topic: str, worker: str, turns: int) -> None:
        """Take no records for a topic, from one worker or, "", from any."""
        self._refused[topic, worker] = self.now + turns

    def refuses(self, topic: str, owner: str) -> bool:
        """Whether records of this transactional id are refused now."""
        return any(self.now < self._refused.get((topic, worker), 0) for worker in ("", worker_of(OwnerId(owner))))

    def line(self, owner: str) -> Line | None:
        """The slow line that what this transactional id sends goes over now, if there is one."""
        line = self.lines.get(worker_of(OwnerId(owner))) if self.lines else None
        return line if line is not None and self.now < line.until else None

    # requests of a transactional producer

    def produce(self, owner: str, epoch: int, partition: TopicPartition, records: list[Sent]) -> int:
        """Append records in the producer's transaction; the offset of the last. Raises Fenced or Concurrent."""
        txn = self.coordinator.register(owner, epoch, [partition])
        last = -1
        for r in records:
            time = self.now if r.timestamp is None else r.timestamp
            last = self[partition].append(r.key, r.value, time, txn, r.headers)
        return last

    def txn_offset_commit(
        self, owner: str, epoch: int, sender: Membership, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Add offsets to the transaction, if the sender is a member of the present generation.

        Raises Fenced, Concurrent, UnknownMember, IllegalGeneration or InstanceFenced. Only this request of a transaction
        checks the group: a transaction without it is never checked.
        """
        txn = self.coordinator.register(owner, epoch, [OFFSETS])
        self.group.validate(sender)
        self._offsets.setdefault(txn, {}).update(offsets)

    def decided(self, partition: TopicPartition) -> list[Entry]:
        """The committed records, whether or not their marker is there yet."""
        return [e for e in self[partition].entries if not e.marker and self._is_decided(partition, e)]

    def _is_decided(self, partition: TopicPartition, entry: Entry) -> bool:
        fate = self[partition].fate(entry)
        return fate is Fate.COMMITTED or (fate is Fate.OPEN and entry.txn in self.coordinator.committing())

    def marker_is_missing(self, partition: TopicPartition) -> bool:
        """The transaction at the last stable offset is decided, but has no marker there yet."""
        return any(tp == partition for _, tp in self.coordinator.unmarked())

    # what happens by itself

    def pending(self) -> list[Pending]:
        """What the cluster may do next, in a fixed order."""
        arriving = [p for p in self.under_way if p.due <= self.now] if self.under_way else []
        if self.coordinator.away:
            return arriving
        markers = [self._marker(owner, tp) for owner, tp in self.coordinator.unmarked()]
        return [*arriving, *(self._overdue() if self.lines else ()), *markers]

    def _overdue(self) -> list[Pending]:
        """The transactions that the coordinator may end, because they have lasted too long."""
        return [
            Pending(f"the transaction of {owner} times out", partial(self.coordinator.time_out, owner))
            for owner, since in self.coordinator.open_since().items()
            if self.line(owner) is not None and self.now - since > self.timeouts[owner]
        ]

    @property
    def settled(self) -> bool:
        """No request is in transit, and no marker is missing."""
        return not self.under_way and not self.coordinator.unmarked()

    def do(self, pending: Pending) -> None:
        """Let one pending thing happen. A request that arrives and is refused is forgotten."""
        if pending in self.under_way:
            self.under_way.remove(pending)
        try:
            pending.do()
        except (Moving, InvalidState):
            pass
        except Concurrent:
            self.under_way.append(pending)
        except (Fenced, UnknownMember, IllegalGeneration, InstanceFenced):
            pass

    def settle(self) -> None:
        """Let everything pending happen, in order."""
        while todo := self.pending():
            self.do(todo[-1])

    def _marker(self, owner: str, tp: TopicPartition) -> Pending:
        kind = "commit" if self.coordinator.commits(owner) else "abort"
        return Pending(f"{kind} marker of {owner} in {tp.topic}-{tp.partition}", lambda: self._mark(owner, tp))

    def _mark(self, owner: str, partition: TopicPartition) -> None:
        txn, fate = self.coordinator.marked(owner, partition)
        if partition != OFFSETS:
            self[partition].mark(txn, fate, self.now)
            return
        offsets = self._offsets.pop(txn, {})
        if fate is Fate.COMMITTED:
            self.committed_offsets.update(offsets)
