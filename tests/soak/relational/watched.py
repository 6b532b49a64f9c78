"""The relational flow in this process, without Kafka: what a read_committed reader would see of it, and be told."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from types import MappingProxyType

from tests.soak.check.checker import Checker
from tests.soak.check.findings import Findings
from tests.soak.check.seen import Seen, Tp, parts
from tests.soak.load import ASTRAY_MS, bids, dated
from tests.soak.relational.flow import relational as flow
from tests.soak.relational.spec import relational as spec

from falkirk.checkpoint.ids import TopicPartition
from falkirk.testing.app import App
from falkirk.testing.cluster import BEGINNING

PARTITIONS, KEYS, BIDDERS = 2, 60, 40
SLOWER = 5
"""Milliseconds between two bids, so that rows leave the state of the join in between."""


@dataclass(frozen=True, slots=True)
class World:
    """Every partition's visible records, and where it ends."""

    sent: int
    logs: dict[Tp, list[Seen]]
    ends: dict[Tp, int]
    counts: dict[str, int]

    def spoilt(self, tp: Tp, *records: Seen) -> World:
        """The same, with these records in a partition."""
        return World(self.sent, {**self.logs, tp: list(records)}, self.ends, self.counts)


@cache
def world(rows: int = 900, seed: int = 7, crashes: int = 4) -> World:
    """The flow over so many bids, in steps of any size, while its worker is killed."""
    rng = random.Random(seed)
    app = App(flow, partitions=PARTITIONS)
    load = _load(seed)
    dying = set(rng.sample(range(rows // 20), crashes))
    for turn in range(rows // 20):
        app.send("bids", list(islice(load, 20)))
        if turn in dying:
            app.crash(host=rng.random() < 0.5)
        for _ in range(rng.randrange(3)):
            app.step_rows = rng.randint(1, 20)
            app.step()
    app.step_rows = None
    app.run()
    return _seen(app, rows)


def _load(seed: int) -> Iterator[dict[str, int]]:
    for bid in dated(bids(seed, KEYS), BEGINNING):
        later = (SLOWER - 1) * bid["id"] + bid["price"] % ASTRAY_MS
        yield bid | {"bidder": bid["bidder"] % BIDDERS, "at": bid["at"] + later}


def _seen(app: App, rows: int) -> World:
    cluster = app._cluster
    counts = {topic: cluster.counts[topic] for topic in spec.topics if topic != spec.steps_topic}
    counts[spec.steps_topic] = len(cluster.tasks)
    logs, ends = dict[Tp, list[Seen]](), dict[Tp, int]()
    for topic, count in counts.items():
        for place in range(count):
            tp, log = Tp(topic, place), cluster.broker[TopicPartition(topic, place)]
            found = log.committed(0, log.end, trimmed=True)[0]
            records = [(Seen(tp, e.offset, e.key, e.value, e.timestamp), e.headers) for e in found]
            logs[tp] = [part for seen, headers in records for part in parts(seen, headers)]
            ends[tp] = log.end
    return World(rows, logs, ends, counts)


def check(seen: World, rng: random.Random) -> Findings:
    """The checker's verdict on it, its partitions read in a random order."""
    checker = Checker(spec, seen.counts)
    waiting = {tp: list(log) for tp, log in seen.logs.items()}
    while left := [tp for tp, log in waiting.items() if log]:
        tp = rng.choice(left)
        for record in _first(waiting[tp], rng.randint(1, 30)):
            checker.see(record)
        if not waiting[tp]:
            checker.reach(tp, seen.ends[tp])
        if rng.random() < 0.2:
            checker.advance()
    for tp, end in seen.ends.items():
        checker.reach(tp, end)
    return checker.finish(seen.ends, MappingProxyType({"bids": seen.sent}))


def _first(log: list[Seen], count: int) -> Iterable[Seen]:
    """Take so many records, and the other parts of the last one's bundle."""
    while log and count > 0:
        record = log.pop(0)
        yield record
        count -= not log or log[0].offset != record.offset
