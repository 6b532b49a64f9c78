"""Reads everything back at read_committed and compares it with what Polars makes of the same flights.

very-late            every record is a flight, so lost and doubled ones are counted one by one, by their id
delays-by-carrier    a carrier's flights are in one partition: the update that says `flights: k` must be what Polars
                     makes of the first k flights of that carrier, for every update that was ever published
delays-by-airport    flights of several partitions meet in one airport, in an order that nobody fixed: the numbers of
                     flights must rise from update to update, and the last update of each airport must be Polars'
these three          the header of each record names task, step and sequence number: no gap, no repeat, no way back
usual-delays         the result of one epoch: each route once, as Polars has it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
import polars as pl
from confluent_kafka import Consumer, KafkaError, TopicPartition

OUTPUTS = ("very-late", "delays-by-carrier", "delays-by-airport", "usual-delays")


class Record(NamedTuple):
    """A record of an output topic, as far as it is looked at."""

    partition: int
    value: dict[str, Any]
    origin: str
    """The header: task, step, sequence number; of a batch part's, the epoch."""


@dataclass(slots=True)
class Finding:
    """What is right and wrong with one output."""

    output: str
    records: int
    keys: int
    lost: int = 0
    """Flights that it does not show."""
    doubled: int = 0
    """Flights that it shows, or counts, twice."""
    wrong: int = 0
    """Records with other values than Polars'."""
    disordered: int = 0
    """Records that go back, repeat a place or leave one out."""

    @property
    def exact(self) -> bool:
        """Nothing is wrong."""
        return self.records > 0 and not (self.lost or self.doubled or self.wrong or self.disordered)


def read_back(brokers: str, topic: str) -> list[Record]:
    """All committed records of a topic, partition by partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    records = []
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        ended: set[int] = set()
        while len(ended) < len(partitions):
            for message in consumer.consume(5000, 1.0):
                partition = message.partition() or 0
                if (error := message.error()) is None:
                    headers = dict(message.headers() or [])
                    origin = headers.get("falkirk") or headers["falkirk-epoch"]
                    records.append(Record(partition, orjson.loads(message.value() or b"{}"), origin.decode()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(partition)
                else:
                    raise RuntimeError(f"{topic}[{partition}] cannot be read: {error}")
    finally:
        consumer.close()
    return sorted(records, key=lambda record: record.partition)


def compare(flights: pl.DataFrame, outputs: dict[str, list[Record]]) -> list[Finding]:
    """A finding for each output."""
    return [
        check_rows(flights.filter(pl.col("delay") >= 120), "very-late", outputs["very-late"]),
        check_updates(flights, "carrier", "delays-by-carrier", outputs["delays-by-carrier"], every=True),
        check_updates(flights, "dest", "delays-by-airport", outputs["delays-by-airport"], every=False),
        check_epoch(flights, ["origin", "dest"], "usual-delays", outputs["usual-delays"]),
    ]


def check_rows(wanted: pl.DataFrame, output: str, records: list[Record]) -> Finding:
    """Each row once, as it was, and those of one carrier in their order."""
    expected = {row["id"]: row for row in wanted.rows(named=True)}
    seen: dict[int, int] = {}
    newest: dict[str, int] = {}
    finding = Finding(output, len(records), wanted["carrier"].n_unique(), disordered=misplaced(records))
    for record in records:
        number, carrier = record.value["id"], record.value["carrier"]
        seen[number] = seen.get(number, 0) + 1
        finding.wrong += expected.get(number) != record.value
        finding.disordered += number < newest.get(carrier, -1)
        newest[carrier] = number
    finding.lost = len(expected.keys() - seen.keys())
    finding.doubled = sum(times - 1 for times in seen.values())
    return finding


def check_updates(flights: pl.DataFrame, key: str, output: str, records: list[Record], *, every: bool) -> Finding:
    """The updates of a table, the last of each key, and, if `every`, all before it."""
    got = pl.DataFrame([record.value for record in records], schema=SCHEMA | {key: pl.String}, strict=True)
    got = got.with_row_index("place").with_columns(before=pl.col("flights").shift().over(key))
    last = got.group_by(key).last()
    wanted = running(flights, key)
    total = wanted.group_by(key).last()
    counts = total.join(last, on=key, how="left").select(
        missing=pl.col("flights") - pl.col("flights_right").fill_null(0)
    )["missing"]
    looked_at = got if every else last
    matched = looked_at.join(wanted, on=[key, *VALUES], nulls_equal=True, how="semi")
    return Finding(
        output,
        len(records),
        total.height,
        lost=int(counts.clip(lower_bound=0).sum()),
        doubled=int(-counts.clip(upper_bound=0).sum()),
        wrong=looked_at.height - matched.height,
        disordered=misplaced(records) + int((got["flights"] <= got["before"]).sum()),
    )


def check_epoch(flights: pl.DataFrame, key: list[str], output: str, records: list[Record]) -> Finding:
    """One epoch's result: each key once."""
    delay = pl.col("delay")
    wanted = flights.group_by(key).agg(
        flights=pl.len().cast(pl.Int64),
        late=(delay >= 15).sum().cast(pl.Int64),
        worst=delay.max(),
        mean=delay.sum() / delay.count(),
    )
    wanted = wanted.with_columns(mean=pl.when(pl.col("worst").is_not_null()).then("mean"))
    schema = SCHEMA | dict.fromkeys(key, pl.String)
    got = pl.DataFrame([record.value for record in records], schema=schema, strict=True)
    matched = got.join(wanted, on=[*key, *VALUES], nulls_equal=True, how="semi")
    return Finding(
        output,
        len(records),
        wanted.height,
        lost=wanted.join(got, on=key, how="anti").height,
        doubled=got.height - got.select(key).n_unique(),
        wrong=got.height - matched.height,
        disordered=len({record.origin for record in records}) - 1 if records else 0,
    )


SCHEMA = {"flights": pl.Int64, "late": pl.Int64, "worst": pl.Int64, "mean": pl.Float64}
VALUES = list(SCHEMA)


def running(flights: pl.DataFrame, key: str) -> pl.DataFrame:
    """For each key and each k: what its first k flights come to."""
    delay = pl.col("delay")
    flown = delay.is_not_null().cum_sum()
    return flights.select(
        key,
        flights=pl.int_range(1, pl.len() + 1).over(key),
        late=(delay >= 15).fill_null(False).cast(pl.Int64).cum_sum().over(key),
        worst=delay.cum_max().forward_fill().over(key),
        # Sums of whole minutes are exact in a float, so there is one right answer to the last bit.
        mean=pl.when(flown > 0).then(delay.fill_null(0).cum_sum() / flown).over(key),
    )


def misplaced(records: list[Record]) -> int:
    """Within a partition, what a task wrote has places (step, sequence number) that rise; in a step they begin at 0 and
    leave none out."""
    last: dict[tuple[int, str], tuple[int, int]] = {}
    wrong = 0
    for record in records:
        task, step, number = record.origin.rsplit(" ", 2)
        place = int(step), int(number)
        before = last.get((record.partition, task), (-1, -1))
        follows = place[1] == before[1] + 1 if place[0] == before[0] else place[0] > before[0] and place[1] == 0
        wrong += not follows
        last[record.partition, task] = place
    return wrong
