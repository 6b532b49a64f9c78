"""The port `Log` over the simulated cluster: what librdkafka's producer and consumers do, in one worker process.

`send` queues records, and they reach the cluster later: in the background (`deliver`), or at the latest in `commit`. So the
offsets of a transaction may be accepted before its records are there, or after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from confluent_kafka import ThrottleEvent

from falkirk.checkpoint import ports
from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition
from falkirk.checkpoint.ports import Aborted, LogRecord, Ranges, Read, Unknown, Why, Writes
from falkirk.connectors.kafka.transactions.delivery import Delivery
from falkirk.state.store import Changes
from falkirk.testing.simulator.cluster.broker import Pending, Sent, SimBroker
from falkirk.testing.simulator.cluster.coordinator import Concurrent, Fenced, InvalidState, Moving
from falkirk.testing.simulator.cluster.group import NOBODY, IllegalGeneration, InstanceFenced, Member, UnknownMember
from falkirk.testing.simulator.cluster.line import TURNS_A_SECOND
from falkirk.testing.simulator.cluster.partition import Entry
from falkirk.testing.simulator.points import Order, Point, reach

T = TypeVar("T")

CHUNK = 5
"""Offsets of a changelog that are read at a time."""

TIMEOUT = 60.0
"""Seconds: the time-out of transactions, as a worker has it by default."""

BROKE = "a connection broke"
"""Why the end of a transaction is in doubt although it was acknowledged."""


class Misuse(AssertionError):
    """A call that the port's contract forbids here: a bug in the protocol, not in the world."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Records on their way to one partition."""

    partition: TopicPartition
    records: list[Sent]
    tracked: bool
    transaction: int
    arrived: bool = False


@dataclass(slots=True, eq=False)
class SimLog:
    """One worker's producer, and its readers.

    >>> from falkirk.testing.simulator.points import drive
    >>> broker = SimBroker(); broker.create("a", 1); log = SimLog(broker, OwnerId("w"))
    >>> async def write():
    ...     await log.renew(); await log.begin()
    ...     await log.send(Writes("a", [0], [b"k"], [b"v"], tracked=True))
    ...     return await log.commit()
    >>> drive(write(), lambda point: broker.settle())
    {TopicPartition(topic='a', partition=0): 0}
    """

    broker: SimBroker
    owner: OwnerId
    member: Member | None = None
    """The worker's membership; None: its commits of offsets are accepted unchecked, like those of generation −1."""
    on_fence: Callable[[str], None] = lambda _: None
    """Called with the id of another worker that is about to be fenced."""
    delivery: Delivery = field(init=False)
    """How long transactions are waited for, as in production."""
    waited: int = 0
    """Turns that the last transaction has waited for a slow line. What else it does takes no time."""
    _epoch: int | None = None
    """Of the producer; None if there is none that may be used."""
    _open: bool = False
    _begun: int = 0
    _broke: bool = False
    """Did a connection break since the transaction began?"""
    _sent: bool = False
    """Has the transaction reached the coordinator? Otherwise it ends without a request."""
    _queue: list[_Batch] = field(default_factory=list)
    _written: dict[TopicPartition, Offset] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.delivery = Delivery(TIMEOUT, lambda: self.broker.now / TURNS_A_SECOND)

    # the producer

    async def begin(self) -> None:
        """Open a transaction, only on this side."""
        self._producer(within=False)
        self._open, self._sent, self._queue, self._written = True, False, [], {}
        self._broke, self.waited = False, 0
        self._begun += 1
        self.delivery.begin()

    async def send(self, writes: Writes) -> None:
        """Queue records."""
        self._producer(within=True)
        for i, p in enumerate(writes.partitions):
            tp = TopicPartition(writes.topic, p)
            record = Sent(
                writes.keys[i],
                writes.values[i],
                None if writes.timestamps is None else writes.timestamps[i],
                [] if writes.headers is None else writes.headers[i],
            )
            if i and writes.partitions[i - 1] == p:
                self._queue[-1].records.append(record)
            else:
                self._queue.append(_Batch(tp, [record], writes.tracked, self._begun))
        self.delivery.sent(len(writes))
        await reach(Point(f"has queued records for {writes.topic}"))

    def queued(self) -> str:
        """What the background thread would send next; empty if nothing, or over a slow line: `commit` waits for that."""
        return _name(self._queue[0].partition) if self._queue and self.broker.line(self.owner) is None else ""

    def deliver(self) -> None:
        """The background thread sends the first batch of the queue. Nothing happens while an older transaction ends."""
        if (
            self._queue
            and self._epoch is not None
            and not self.broker.refuses(self._queue[0].partition.topic, self.owner)
        ):
            with suppress(Concurrent, Fenced):  # fenced: the application's next call learns of it
                self._produce(self._queue[0], self._epoch)

    def _produce(self, batch: _Batch, epoch: int) -> None:
        # A batch that comes when its transaction is over is out of sequence, and the broker refuses it.
        if not batch.arrived and batch.transaction == self._begun:
            last = self.broker.produce(self.owner, epoch, batch.partition, batch.records)
            self._sent = batch.arrived = True
            if batch.tracked:
                self._written[batch.partition] = Offset(last)
            self._queue = [b for b in self._queue if b is not batch]

    async def send_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit offsets. As librdkafka does, send nothing if there are none: then nothing is checked."""
        epoch = self._producer(within=True)
        if not offsets:
            return
        kept = dict(offsets)

        def request() -> None:
            sender = NOBODY if self.member is None else self.member.joined
            self.broker.txn_offset_commit(self.owner, epoch, sender, kept)

        try:
            await self._ask("sends offsets", request)
            self._sent = True
        except (IllegalGeneration, UnknownMember, InstanceFenced) as error:
            self._sent = True
            await self.abort()
            raise Aborted(str(error)) from error

    async def commit(self) -> Mapping[TopicPartition, Offset]:
        """Send what is queued, then end the transaction."""
        epoch = self._producer(within=True)
        while self._queue:
            batch = self._queue[0]
            if self.broker.refuses(batch.partition.topic, self.owner):
                await self.abort()
                raise Aborted(f"INVALID_RECORD in {batch.partition.topic}", Why.REFUSED)
            what, request = f"sends records to {_name(batch.partition)}", partial(self._produce, batch, epoch)
            await self._arrives(what, request, len(batch.records))
            await self._ask(what, request)
            self._is_told()
        if self._sent:
            what, end = "sends EndTxn(commit)", partial(self.broker.coordinator.end, self.owner, epoch, commit=True)
            await self._arrives(what, end, 0)
            await self._ask(what, end)
        self.delivery.committed()
        self._ended()
        return dict(self._written)

    async def abort(self) -> None:
        """Drop what is queued and end the transaction."""
        epoch = self._producer(within=True)
        self._queue = []
        if self._sent:
            await self._ask("sends EndTxn(abort)", lambda: self.broker.coordinator.end(self.owner, epoch, commit=False))
        self._ended()

    async def renew(self) -> None:
        """A new producer with this worker's id."""
        self._forget()
        self.broker.timeouts[self.owner] = int(self.delivery.timeout * TURNS_A_SECOND)
        self._epoch = await self._init(self.owner, "makes a new producer")

    async def fence(self, owner: OwnerId) -> None:
        """A new producer with another worker's id, closed at once."""
        self.on_fence(owner)
        await self._init(owner, f"fences {owner}")

    async def _init(self, owner: OwnerId, what: str) -> int:
        await reach(Point(what))
        while True:
            try:
                epoch = self.broker.coordinator.init(owner)
            except Concurrent as error:
                why = "the coordinator has moved" if isinstance(error, Moving) else "markers are missing"
                await reach(Point(f"{what}: {why}", waits=True))
            else:
                await reach(Point(f"{what}: done"))
                return epoch

    async def _ask(self, what: str, request: Callable[[], T]) -> T:
        """One request of a transaction. Raises Aborted or Unknown; the group's refusals pass through."""
        order = await reach(Point(what, request))
        while True:
            if order is Order.REFUSE:
                await self.abort()
                raise Aborted(what)
            if order in (Order.LOSE, Order.DELAY):
                self._forget()
                raise Unknown(f"{what}: no reply")
            self._broke |= order is Order.TWICE
            try:
                result = request()
            except Moving:
                order = await self._moved(what, request)
                continue
            except InvalidState as error:
                self._forget()
                raise Unknown(f"{what}: the transaction has ended otherwise") from error
            except Concurrent:
                order = await reach(Point(f"{what}: the last transaction lacks markers", waits=True))
                continue
            except Fenced as error:
                self._forget()
                raise ports.Fenced(f"{what}: fenced") from error
            if await reach(Point(f"{what}: done", lambda: None)) is not Order.GO:
                self._forget()
                raise Unknown(f"{what}: the reply is lost")
            return result

    async def _arrives(self, what: str, request: Callable[[], object], records: int) -> None:
        """Wait until a slow line has taken a request, as long as production waits. Raises Unknown: then it is under way
        still."""
        if (line := self.broker.line(self.owner)) is None:
            return
        began, due = self.broker.now, line.takes(records, self.broker.now)
        while self.broker.now < due:
            given_up = self.delivery.given_up(sum(len(batch.records) for batch in self._queue))
            if given_up is not None:
                self.broker.under_way.append(Pending(f"late: {self.owner} {what}", request, due))
                self._forget()
                raise given_up
            if await reach(Point(f"{what}: the line is slow", request, waits=True)) is not Order.GO:
                self._forget()
                raise Unknown(f"{what}: no reply")
        self.waited += self.broker.now - began

    def _is_told(self) -> None:
        """A broker with a quota says how long it takes nothing more."""
        line = self.broker.line(self.owner)
        if line is not None and line.quota:
            left = max(0, line.free - self.broker.now) / TURNS_A_SECOND
            self.delivery.throttled(ThrottleEvent("simulated", 0, left))

    async def _moved(self, what: str, request: Callable[[], object]) -> Order:
        """The client asks again until it has waited for too long: then nobody knows whether the request was carried out."""
        return await reach(Point(f"{what}: the coordinator has moved", request, waits=True))

    def _ended(self) -> None:
        """The transaction's end was acknowledged. Raises Unknown if one of its requests may still be in transit."""
        if self._broke:
            self._forget()
            raise Unknown(BROKE)
        self._open = False

    def _forget(self) -> None:
        self._epoch, self._open, self._queue = None, False, []

    def _producer(self, *, within: bool) -> int:
        if self._epoch is None:
            raise Misuse("after Unknown only renew may follow")
        if self._open is not within:
            raise Misuse("a transaction is open" if self._open else "no transaction is open")
        return self._epoch

    # the readers

    async def start(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """First offsets."""
        ask = "asks for the start of"
        return {tp: Offset(await self._each(ask, tp, lambda tp: self.broker[tp].start)) for tp in partitions}

    async def end(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """High watermarks."""
        ask = "asks for the end of"
        return {tp: Offset(await self._each(ask, tp, lambda tp: self.broker[tp].end)) for tp in partitions}

    async def mark(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Write a record to each, and say where it is."""

        def write(tp: TopicPartition) -> int:
            return self.broker[tp].append(ports.MARK, None, self.broker.now, None)

        return {tp: Offset(await self._each("marks the end of", tp, write)) for tp in partitions}

    async def read_uncommitted(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """Everything."""
        return {
            tp: _read(
                await self._each("reads all of", tp, lambda tp: self.broker[tp].uncommitted(*self._kept(tp, ranges)))
            )
            for tp in ranges
        }

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """The committed records. If only a marker is missing it waits, and seldom gives up before that has come."""
        found = {}
        for tp, (start, end) in ranges.items():
            read = _read(await self._each("reads", tp, lambda tp: self.broker[tp].committed(*self._kept(tp, ranges))))
            while read.position == start < end and self.broker.marker_is_missing(tp):
                waits = Point(f"reads {_name(tp)}: a marker is missing", request=lambda: None, waits=True)
                if await reach(waits) is not Order.GO:
                    break
                read = _read(self.broker[tp].committed(*self._kept(tp, ranges)))
            found[tp] = read
        return found

    def report_obstacle(self, partition: TopicPartition, position: Offset, mark: Offset, obstacle: str) -> None:
        """It keeps waiting: a run that does not end is broken."""

    async def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        """The last committed change of each key, of a few offsets at a time."""
        ask, end = "reads the changes of", min(end, Offset(start + CHUNK))
        entries, position = await self._each(ask, partition, lambda tp: self.broker[tp].committed(start, end))
        return {e.key: e.value for e in entries if e.key is not None and e.key != ports.MARK}, Offset(position)

    def _kept(self, tp: TopicPartition, ranges: Ranges) -> tuple[int, int]:
        """A read continues where the partition begins now: nobody needs what was below."""
        return max(ranges[tp][0], self.broker[tp].start), ranges[tp][1]

    async def _each(self, what: str, tp: TopicPartition, ask: Callable[[TopicPartition], T]) -> T:
        await reach(Point(f"{what} {_name(tp)}"))
        return ask(tp)


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def _read(found: tuple[list[Entry], int]) -> Read:
    entries, position = found
    return Read([LogRecord(Offset(e.offset), e.key, e.value) for e in entries], Offset(position))
