"""The dead letters of an app: looks at them, and writes their records again."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Message

from falkirk import wording
from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition, cluster_of
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topic_settings import LOG
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.reading.peek import TopicPeek
from falkirk.connectors.kafka.transactions.rewriting import Rewriter, Rewritten, read_marks
from falkirk.errors import ClusterError, ConfigError, StateError
from falkirk.runtime.host.clock import WallClock
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.letters import (
    HEADER,
    Address,
    Choice,
    Letter,
    Marks,
    Move,
    Replayed,
    decode_mark,
    decoded,
    encode_mark,
)
from falkirk.runtime.layout.app_lookup import layout_of
from falkirk.state.shards import murmur2, murmur2_partition
from falkirk.stream.dataflow.records import Headers
from falkirk.stream.definition.names import replays_topic

SLICE = 500
"""The most records that one transaction writes again."""
SLICE_BYTES = 4 << 20
"""The most bytes of their keys and values, unless one alone has more."""

NEAR = 500
"""A gap between two records of a topic is read up to this many offsets; a longer one is skipped by a seek."""


class FoundLetter(NamedTuple):
    """A letter, and its position."""

    letter: Letter
    place: Address


@dataclass(slots=True)
class ReplayPlan:
    """What a replay would do, in records: several letters of one record count once."""

    due: int = 0
    settled: int = 0
    """Already replayed."""
    failed_again: int = 0
    """Replayed, and failed again: those wait until they are asked for."""
    unknown: int = 0
    """Letters whose record is not known."""
    elsewhere: str | None = None
    """Another cluster that a due record is from."""

    def check(self, to: str | None) -> None:
        """Raises ConfigError if records would go back into a cluster that the app does not write to."""
        if to is None and self.elsewhere is not None:
            raise _not_back(self.elsewhere)


class DeadLetters:
    """Those of one app."""

    def __init__(self, app: str, settings: Settings, topics: Topics) -> None:
        """Raises ConfigError if there is no such app, and ClusterError."""
        topics.check_reachable(timeout=5.0)
        self.app, self.settings, self.topics = app, settings, topics
        recorded = layout_of(app, settings, topics).topics
        self.where = sorted(name for name, topic in recorded.items() if topic.role == "dead_letters")
        self.sources = sorted(name for name, topic in recorded.items() if topic.role == "source")
        self.replays = TopicPartition(replays_topic(settings.prefix, app), 0)
        self.foreign = 0
        """Records in these topics that are not letters of this app."""

    def found(self, choice: Choice) -> Iterator[list[FoundLetter]]:
        """The chosen letters, some at a time; an empty list where there were only others."""
        infos = self.topics.describe(self.where)
        for info in infos.values():
            with closing(TopicPeek(self.settings.cluster(), self.topics, info)) as peek:
                for messages in peek.all():
                    letters = [
                        FoundLetter(letter, _at(peek, m))
                        for m in messages
                        if (letter := decoded(m.value())) is not None
                    ]
                    mine = [f for f in letters if f.letter.app == self.app]
                    self.foreign += len(messages) - len(mine)
                    yield [f for f in mine if f.letter in choice]

    def marks(self, *, fenced: bool = False) -> Marks:
        """What has been replayed, as far as is visible now; all of it if the replaying process is `fenced`. Raises StateError
        if that cannot be read."""
        marks = Marks()
        if self.replays.topic in self.topics.describe([self.replays.topic]):
            for value in read_marks(self.settings.cluster(), self.replays, fenced=fenced):
                try:
                    marks.take(decode_mark(value).moves)
                except ValueError as error:
                    raise StateError(
                        f"what was replayed cannot be read: {error}",
                        where=f"topic {self.replays.topic}",
                        hint="was it written by a later version of Falkirk, or by something else?",
                    ) from error
        return marks

    def plan(self, choice: Choice, *, again: bool) -> ReplayPlan:
        """What can be replayed."""
        marks, plan, seen = self.marks(), ReplayPlan(), set[Address]()
        for found in self.found(choice):
            for letter, _ in found:
                if letter.address is None:
                    plan.unknown += 1
                elif letter.address not in seen:
                    seen.add(letter.address)
                    plan.settled += marks.settled(letter)
                    if marks.due(letter, again=again):
                        plan.due += 1
                        plan.elsewhere = cluster_of(letter.address.topic) or plan.elsewhere
                    plan.failed_again += not marks.settled(letter) and not marks.due(letter, again=again)
        return plan


@dataclass(slots=True)
class Replay:
    """Writes records of dead letters again: each once, no matter which process dies, or how often it is started."""

    letters: DeadLetters
    choice: Choice
    to: str | None
    """Another topic than the one each record came from."""
    again: bool
    """Also records that have failed again."""
    on_progress: Callable[[int], None]
    """Called after each transaction with the number written."""
    _infos: dict[str, TopicInfo] = field(default_factory=dict)

    def run(self) -> int:
        """Write all that is due; returns the record count. Raises ClusterError, and IdentityError if another replay
        begins."""
        letters, marks_topic = self.letters, self.letters.replays.topic
        settings, topics = letters.settings, letters.topics
        if self.to is not None:
            self._partitions(self.to)
        if marks_topic not in topics.describe([marks_topic]):
            topics.create(marks_topic, 1, settings.replication, LOG)
        targets = [name for name in letters.sources if not cluster_of(name)] if self.to is None else [self.to]
        limits = topics.configs([marks_topic, *(name for name in targets if self._known(name))])
        batch_bytes = min(int(config["max.message.bytes"]) for config in limits.values())
        owner = OwnerId(f"{letters.app}.dlq-replay")
        rewriter = Rewriter(settings.cluster(), owner, letters.replays, batch_bytes)
        marks = letters.marks(fenced=True)
        written = 0
        for some in self._slices(marks):
            moves = self._write(rewriter, marks, some)
            marks.take(moves)
            written += len(moves)
            self.on_progress(written)
        return written

    def _slices(self, marks: Marks) -> Iterator[list[Letter]]:
        held: list[Letter] = []
        size, taken = 0, set[Address]()
        for found in self.letters.found(self.choice):
            for letter, _ in found:
                if letter.address in taken or not marks.due(letter, again=self.again):
                    continue
                assert letter.address is not None
                more = len(letter.key or b"") + len(letter.payload or b"")
                if held and (len(held) == SLICE or size + more > SLICE_BYTES):
                    yield held
                    held, size, taken = [], 0, set()
                held.append(letter)
                taken.add(letter.address)
                size += more
        if held:
            yield held

    def _write(self, rewriter: Rewriter, marks: Marks, some: Sequence[Letter]) -> list[Move]:
        headers = self._headers(some)
        records, attempts = [], []
        for letter in some:
            address = letter.address
            assert address is not None
            attempts.append(marks.attempt(letter) + 1)
            own = [(name, value) for name, value in headers.get(address, []) if name != HEADER]
            records.append(
                Rewritten(
                    self._place(letter, address),
                    letter.key,
                    letter.payload,
                    letter.timestamp,
                    [*own, (HEADER, str(attempts[-1]).encode())],
                )
            )
        moves: list[Move] = []

        def mark(offsets: Sequence[Offset]) -> bytes:
            for letter, record, offset, attempt in zip(some, records, offsets, attempts, strict=True):
                assert letter.address is not None
                moves.append(Move(letter.address, Address(*record.place, offset), attempt))
            return encode_mark(Replayed(WallClock().now(), socket.gethostname(), moves))

        rewriter.write(records, mark)
        return moves

    def _place(self, letter: Letter, address: Address) -> TopicPartition:
        """Where a record goes: back to its partition, or to its key's partition in another topic."""
        if self.to is None:
            if cluster := cluster_of(address.topic):
                raise _not_back(cluster)
            count = self._partitions(address.topic)
            if address.partition >= count:
                raise ClusterError(
                    f"topic {address.topic!r} has {wording.counted(count, 'partition')}, and a record came "
                    f"from partition {address.partition}",
                    hint="was it recreated? Write to another topic with --to",
                )
            return TopicPartition(address.topic, address.partition)
        count = self._partitions(self.to)
        if letter.key is None:
            return TopicPartition(self.to, address.partition % count)
        return TopicPartition(self.to, int(murmur2_partition(murmur2([letter.key]), count)[0]))

    def _partitions(self, topic: str) -> int:
        if not self._known(topic):
            raise ClusterError(f"topic {topic!r} does not exist", hint="create it; or write to another one with --to")
        return self._infos[topic].partitions

    def _known(self, topic: str) -> bool:
        if topic not in self._infos:
            self._infos |= self.letters.topics.describe([topic])
        return topic in self._infos

    def _headers(self, some: Sequence[Letter]) -> Mapping[Address, Headers]:
        """The headers of the records that still exist: a letter does not have them."""
        by_address = {letter.address: letter for letter in some}
        found: dict[Address, Headers] = {}
        for topic in {a.topic for a in by_address if a is not None}:
            if not self._known(topic):
                continue
            wanted: dict[int, list[int]] = {}
            for a in by_address:
                if a is not None and a.topic == topic and a.partition < self._infos[topic].partitions:
                    wanted.setdefault(a.partition, []).append(a.offset)
            with closing(TopicPeek(self.letters.settings.cluster(), self.letters.topics, self._infos[topic])) as peek:
                for ranges in _rounds(wanted):
                    for message in peek.between(ranges):
                        letter = by_address.get(at := _at(peek, message))
                        if letter is not None and (letter.key, letter.payload) == (message.key(), message.value()):
                            found[at] = message.headers() or []  # type: ignore[assignment]  # a list of pairs
        return found


def _rounds(wanted: Mapping[int, Iterable[int]]) -> Iterator[dict[int, tuple[Offset, Offset]]]:
    """Ranges that hold some offsets of each partition, one of each at a time.

    >>> list(_rounds({0: [3, 5, 9_000], 1: [7]}))
    [{0: (3, 6), 1: (7, 8)}, {0: (9000, 9001)}]
    """
    runs: dict[int, list[tuple[Offset, Offset]]] = {}
    for partition, offsets in wanted.items():
        mine: list[tuple[Offset, Offset]] = []
        for offset in sorted(offsets):
            if mine and offset - mine[-1][1] < NEAR:
                mine[-1] = (mine[-1][0], Offset(offset + 1))
            else:
                mine.append((Offset(offset), Offset(offset + 1)))
        runs[partition] = mine
    for n in range(max(map(len, runs.values()), default=0)):
        yield {partition: mine[n] for partition, mine in runs.items() if n < len(mine)}


class Kind(NamedTuple):
    """What all letters have in common that are counted as one kind."""

    stage: str
    operator: str
    """For what does not decode: its source."""
    topic: str
    reason: str


@dataclass(slots=True)
class Count:
    """The count of one kind."""

    letters: int = 0
    replayed: int = 0
    failed_again: int = 0
    first: int = 1 << 62
    """The earliest timestamp."""
    last: int = 0


def counted(letters: DeadLetters, choice: Choice) -> dict[Kind, Count]:
    """The chosen letters, by kind; most first."""
    marks, counts = letters.marks(), dict[Kind, Count]()
    for found in letters.found(choice):
        for letter, _ in found:
            operator = letter.operator or f"source {letter.source}"
            count = counts.setdefault(Kind(letter.stage, operator, letter.topic or "", letter.kind), Count())
            count.letters += 1
            count.replayed += marks.settled(letter)
            count.failed_again += marks.attempt(letter) > 0
            count.first, count.last = min(count.first, letter.timestamp), max(count.last, letter.timestamp)
    return dict(sorted(counts.items(), key=lambda pair: -pair[1].letters))


def _at(peek: TopicPeek, message: Message) -> Address:
    return Address(*peek.place(message), message.offset() or 0)


def _not_back(cluster: str) -> ConfigError:
    return ConfigError(
        f"records from cluster {cluster!r} are meant, and the app writes only to its own cluster",
        hint="write them with --to TOPIC to a topic in the app's cluster that the flow reads too; or let the producer of "
        f"{cluster} send them again, and replay only the others with --topic or --stage",
    )
