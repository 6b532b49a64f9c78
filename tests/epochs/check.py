"""Every record of every epoch, read at read_committed by a consumer of our own, against Polars over its division.

rows(n)    = query(records of division(n))                                        a record each, and no other
buried(n)  = keys visible after epoch n − 1, less the keys of rows(n)             `totals` alone
table      = rows of the last complete epoch, when the log is read to its end     `totals` alone
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import polars as pl
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.epochs.told import judge, told

HEADER = "falkirk-epoch"


class Row(NamedTuple):
    """A record of a sink."""

    partition: int
    offset: int
    epoch: int
    key: bytes
    value: bytes | None


class Ended(NamedTuple):
    """A complete epoch, as its log tells."""

    number: int
    division: dict[tuple[str, int], tuple[int, int]]


def totals(bids: pl.DataFrame) -> dict[bytes, Any]:
    """What the flow's `totals` is to give."""
    rows = (
        bids.filter(pl.col("price") >= 100)
        .group_by("auction")
        .agg(n=pl.len().cast(pl.Int64), sum=pl.col("price").sum())
        .filter(pl.col("n") % 3 != 0)
    )
    return {str(r["auction"]).encode(): r for r in rows.iter_rows(named=True)}


def added(bids: pl.DataFrame) -> dict[bytes, Any]:
    """What the flow's `added` is to give."""
    named = bids.select(bidder=pl.lit("b") + pl.col("bidder").cast(pl.String), price="price")
    rows = named.group_by("bidder").agg(n=pl.len().cast(pl.Int64), top=pl.col("price").max())
    return {r["bidder"].encode(): r for r in rows.iter_rows(named=True)}


QUERIES: dict[str, Callable[[pl.DataFrame], dict[bytes, Any]]] = {"totals": totals, "added": added}


def read_all(brokers: str, topic: str, partitions: int) -> list[Any]:
    """All committed records of a topic that are there now."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "falkirk-epochs-check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    places = [TopicPartition(topic, p) for p in range(partitions)]
    first = {p.partition: consumer.get_watermark_offsets(p, 30)[0] for p in places}
    consumer.assign([TopicPartition(topic, p, offset) for p, offset in first.items()])
    found, open_ = [], set(first)
    while open_:
        for message in consumer.consume(5000, 0.1):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_.discard(message.partition())
            else:
                raise RuntimeError(str(error))
    consumer.close()
    return found


def epochs(brokers: str, topic: str) -> tuple[list[Ended], list[int]]:
    """Complete epochs, as far as their log still tells; and the numbers of all that it tells of."""
    opened: dict[int, Ended] = {}
    complete = []
    for message in read_all(brokers, topic, 1):
        record = json.loads(message.value())
        match record["type"]:
            case "opened" if record["epoch"] not in opened:  # the first counts
                division = {(p[1], p[3]): (start, end) for p, start, end in record["division"]}
                opened[record["epoch"]] = Ended(record["epoch"], division)
            case "completed" if record["epoch"] in opened and opened[record["epoch"]] not in complete:
                complete.append(opened[record["epoch"]])
            case _:
                pass
    return complete, sorted(opened)


class Checker:
    """Remembers the divisions of epochs, which the driver trims, and judges all in the end."""

    def __init__(self, brokers: str, source: str = "bids", sinks: Mapping[str, str] | None = None) -> None:
        """`sinks` names the topic of each stage where it is not called as the stage is."""
        self.brokers, self.source, self.sinks = brokers, source, sinks or {}
        self.seen: dict[str, dict[int, Ended]] = {stage: {} for stage in QUERIES}
        self.records = 0
        self.tables: dict[int, dict[bytes, Any]] = {-1: {}}
        """Of each epoch of `totals`."""

    def look(self) -> dict[str, int]:
        """Take note of the epochs that are complete; how many, by stage."""
        for stage, seen in self.seen.items():
            for ended in epochs(self.brokers, f"falkirk.epochs.epochs.{stage}")[0]:
                if seen.setdefault(ended.number, ended) != ended:
                    raise AssertionError(f"epoch {ended.number} of {stage} has two divisions")
        return {stage: len(seen) for stage, seen in self.seen.items()}

    def judge(self, partitions: int) -> list[str]:
        """Everything that is wrong."""
        bids: dict[int, pl.DataFrame] = {}
        for p in range(partitions):
            mine = [m for m in read_all(self.brokers, self.source, partitions) if m.partition() == p]
            rows = [{"offset": m.offset(), **json.loads(m.value())} for m in mine]
            bids[p] = pl.DataFrame(rows, schema=dict.fromkeys(("offset", "id", "auction", "bidder", "price"), pl.Int64))
        return [wrong for stage in QUERIES for wrong in self._judge(stage, bids, partitions)]

    def judge_told(self, partitions: int) -> list[str]:
        """What is wrong with what the stream was told. After `judge`."""
        sent = len(read_all(self.brokers, self.source, partitions))
        rows = told(read_all(self.brokers, "told", partitions))
        self.records += len(rows)
        return judge(rows, sent, self.tables)

    def _judge(self, stage: str, bids: dict[int, pl.DataFrame], partitions: int) -> list[str]:
        wrong: list[str] = []
        rows = [
            Row(m.partition(), m.offset(), int(dict(m.headers())[HEADER]), m.key(), m.value())
            for m in read_all(self.brokers, self.sinks.get(stage, stage), partitions)
        ]
        self.records += len(rows)
        seen = self.seen[stage]
        last = max(seen, default=-1)
        if missing := set(range(last + 1)) - seen.keys():
            wrong.append(f"{stage}: no record of epochs {sorted(missing)}")
            return wrong
        table: dict[bytes, bytes] = {}
        for number in range(last + 1):
            division = seen[number].division
            read = [
                frame.filter(pl.col("offset").is_between(*division[self.source, p], closed="left"))
                for p, frame in bids.items()
            ]
            due = QUERIES[stage](pl.concat(read))
            if stage == "totals":
                self.tables[number] = due
            mine = [r for r in rows if r.epoch == number]
            if twice := [k for k, n in Counter(r.key for r in mine).items() if n > 1]:
                wrong.append(f"{stage}, epoch {number}: keys twice: {twice[:3]}")
            shown = {r.key: json.loads(r.value) for r in mine if r.value is not None}
            if shown != due:
                odd = [k for k in shown.keys() | due.keys() if shown.get(k) != due.get(k)]
                first = odd[0]
                wrong.append(
                    f"{stage}, epoch {number}: {len(odd)} of {len(due)} keys differ, such as {first!r}: "
                    f"{shown.get(first)} where {due.get(first)} is due"
                )
            buried = {r.key for r in mine if r.value is None}
            gone = table.keys() - due.keys() if stage == "totals" else set()
            if buried != gone:
                wrong.append(f"{stage}, epoch {number}: buries {len(buried)} keys where {len(gone)} are gone")
            table = {k: v for k, v in table.items() if k not in buried} | {
                r.key: r.value for r in mine if r.value is not None
            }
        for p in range(partitions):
            order = [r.epoch for r in rows if r.partition == p]
            if order != sorted(order):
                wrong.append(f"{stage}, partition {p}: epochs are out of order")
        if later := {r.epoch for r in rows} - set(range(last + 1)):
            wrong.append(f"{stage}: records of epochs {sorted(later)}, which are not complete")
        return wrong
