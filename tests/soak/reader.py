"""The reader: a process of its own that reads everything a flow reads and writes, at read_committed, and checks it.

    python -m tests.soak.reader BROKERS SPEC [SOURCE]       SPEC is MODULE:NAME of a `Spec`; its sources may be at SOURCE

It says on standard output, as JSON a line, how it goes (`Status`), and obeys lines on standard input:
`drain {"bids": 1000}`: that many records were sent, say when the flow has settled them all; `finish`: nothing more will
come, give the verdict. The end of standard input is its end.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from confluent_kafka import KafkaError, TopicPartition
from tests.soak.check.checker import Checker
from tests.soak.check.findings import Kind
from tests.soak.check.seen import Seen, Tp, parts
from tests.soak.check.spec import Spec
from tests.soak.check.task import Settled
from tests.soak.consumers import Ahead, Asked, Cluster
from tests.waiting import PATIENCE_S

REPORT_S = 0.25
BARRIER_S = 1.0
BACKLOG = 100_000
"""Rows held of one input partition beyond which it is not read on, unless a step waits for them."""


class Status(msgspec.Struct):
    """How the reader is getting on. `settled` and `examples` are what is new since the last one."""

    steps: int = 0
    records: int = 0
    read: int = 0
    counts: dict[str, int] = {}
    examples: list[str] = []
    settled: list[Settled] = []
    longest_gap: tuple[float, str, float] = (0.0, "", 0.0)
    behind: int = 0
    """Records that are there, and that it has not read: it cannot tell yet whether a task is back."""
    furthest: str = ""
    """Where most of them are."""
    drained: bool = False
    verdict: bool = False
    troubles: list[str] = []


class Reader:
    """Reads until it is told that nothing more will come."""

    def __init__(self, brokers: str, spec: Spec, source: str = "") -> None:
        self.spec = spec
        own = Cluster(brokers)
        of_sources = Cluster(source) if source not in ("", brokers) else own
        self.clusters = list(dict.fromkeys([own, of_sources]))
        counts = own.wait_for([topic for topic in spec.topics if topic not in spec.sources])
        counts |= of_sources.wait_for(spec.sources)
        self.checker = Checker(spec, counts)
        partitions = [Tp(topic, p) for topic, count in counts.items() for p in range(count)]
        kept = [tp for tp in partitions if tp.topic not in spec.trimmed]
        for cluster in self.clusters:
            cluster.all = [tp for tp in partitions if (of_sources if tp.topic in spec.sources else own) is cluster]
            cluster.read([tp for tp in cluster.all if tp in kept])
        self._of_sources, self._kept = of_sources, set(kept)
        self._ahead = Ahead(brokers, [tp for tp in partitions if tp.topic in spec.trimmed])
        self.read = 0
        self.troubles: list[str] = []
        self.settled: list[Settled] = []
        self._paused: set[Tp] = set()
        self._asked: list[Asked] | None = None
        self._ask_at = 0.0

    def turn(self) -> None:
        """Read a little, settle what can be settled."""
        now = time.time()
        checker = self.checker
        for message in [*self._ahead.taken(), *(m for c in self.clusters for m in c.followed.consume(5000, 0.02))]:
            error = message.error()
            # Where there is an address at all, the client's types allow for there being none.
            tp, offset = Tp(message.topic() or "", message.partition() or 0), message.offset() or 0
            if error is None:
                headers: Any = message.headers() or ()
                whole = Seen(tp, offset, message.key(), message.value(), message.timestamp()[1], arrival=now)
                for seen in parts(whole, headers):
                    checker.see(seen)
                self.read += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                checker.reach(tp, offset)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                checker.found.add(Kind.INPUT, str(tp), f"records were deleted before they were read: {error.str()}")
            else:
                self.troubles.append(f"{tp}: {error.str()}")
        self.settled += checker.advance()
        self._hold_back()
        self._barrier()

    def ends(self) -> dict[Tp, int] | None:
        """High watermarks of all partitions now; None while the broker does not answer."""
        return self._result([cluster.ask() for cluster in self.clusters])

    def behind(self) -> tuple[int, str]:
        """How many records it has still to read, as far as the brokers have last told, and where most of them are."""
        parts = {str(tp): count for cluster in self.clusters for tp, count in cluster.behind().items()}
        parts["what the app trims"] = self._ahead.waiting()
        furthest = max(parts, key=lambda part: parts[part])
        return sum(parts.values()), f"{parts[furthest]:,} of {furthest}"

    def finish(self, sent: Mapping[str, int], patience: float) -> None:
        """Read to the end of everything, and come to a verdict."""
        deadline = time.monotonic() + patience
        while (ends := self.ends()) is None:
            self._in_time(deadline, "the broker does not answer")
        while not self.checker.reached(ends):
            self._in_time(deadline, "the ends of all partitions cannot be reached")
            self.turn()
        self.checker.finish(ends, sent)

    def renew(self) -> None:
        """Read on with other clients, each from where it is."""
        self._ahead.renew()
        for cluster in self.clusters:
            cluster.followed.renew()
        self._of_sources.followed.consumer.pause([TopicPartition(*tp) for tp in self._paused])

    def close(self) -> None:
        """Let go of the connections."""
        self._ahead.close()
        for cluster in self.clusters:
            cluster.followed.consumer.close()

    @staticmethod
    def _in_time(deadline: float, what: str) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(what)

    def _result(self, asked: Sequence[Asked]) -> dict[Tp, int] | None:
        answers = [cluster.answer(one) for cluster, one in zip(self.clusters, asked, strict=True)]
        return None if None in answers else {tp: end for answer in answers for tp, end in (answer or {}).items()}

    def _barrier(self) -> None:
        if self._asked is not None:
            if all(future.done() for asked in self._asked for future in asked.values()):
                self.checker.ends_are(self._result(self._asked))
                self._asked = None
        elif time.monotonic() >= self._ask_at and self.checker.barrier():
            self._asked, self._ask_at = [cluster.ask() for cluster in self.clusters], time.monotonic() + BARRIER_S

    def _hold_back(self) -> None:
        hungry = self.checker.hungry()
        inputs = [tp for tp in self._kept if self.checker.backlog(tp) > BACKLOG]
        full = set(inputs) - hungry
        if pause := full - self._paused:
            self._of_sources.followed.consumer.pause([TopicPartition(*tp) for tp in pause])
        if resume := self._paused - full:
            self._of_sources.followed.consumer.resume([TopicPartition(*tp) for tp in resume])
        self._paused = full


def _commands(pipe: Iterable[str]) -> queue.Queue[str]:
    """Lines as they come; an empty one is the end."""
    lines: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in pipe:
            lines.put(line.strip())
        lines.put("")

    threading.Thread(target=listen, daemon=True).start()
    return lines


class Teller:
    """Says on standard output how it goes."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.told, self.at = reader, 0, 0.0

    def tell(self, **more: Any) -> None:
        """Say it now."""
        reader, checker = self.reader, self.reader.checker
        examples = list(checker.found)
        status = Status(
            checker.steps, checker.records, reader.read, checker.found.as_dict(),
            examples if len(examples) > self.told else [], reader.settled, checker.longest_gap, *reader.behind(),
            troubles=reader.troubles[-5:], **more,
        )  # fmt: skip
        self.told, reader.settled, reader.troubles = len(examples), [], []
        sys.stdout.buffer.write(msgspec.json.encode(status) + b"\n")
        sys.stdout.buffer.flush()
        self.at = time.monotonic()


def main(brokers: str, where: str, source: str = "", patience: float = PATIENCE_S) -> None:
    """Be the reader."""
    with contextlib.suppress(OSError):  # not everybody may; the logs that it reads are trimmed while it waits its turn
        os.nice(-5)
    module, name = where.split(":")
    commands = _commands(sys.stdin)
    reader = Reader(brokers, getattr(importlib.import_module(module), name), source)
    teller = Teller(reader)
    sent: dict[str, int] | None = None
    while True:
        reader.turn()
        if time.monotonic() - teller.at > REPORT_S:
            teller.tell(drained=sent is not None and _drained(reader, sent))
        if commands.empty():
            continue
        match commands.get().split(" ", 1):
            case ["drain", counts]:
                sent = msgspec.json.decode(counts, type=dict[str, int])
            case ["renew"]:
                reader.renew()
            case ["finish"] if sent is not None:
                reader.finish(sent, patience)
                teller.tell(drained=True, verdict=True)
                return
            case _:
                return


def _drained(reader: Reader, sent: Mapping[str, int]) -> bool:
    """The flow has settled all that was sent."""
    checker = reader.checker
    if any(checker.sources[topic].count < count for topic, count in sent.items()):
        return False
    ends = reader.ends()
    return ends is not None and checker.consumed(ends)


if __name__ == "__main__":
    main(*sys.argv[1:])
