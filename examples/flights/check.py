"""Reads everything back at read_committed and compares it with what Polars makes of the same flights.

very-late            every record is a flight, so lost and doubled ones are counted one by one, by their id; what it says is
                     usual is what one epoch found, the same one throughout a step, and never an older one later
delays-by-carrier    a carrier's flights are in one partition: the update that says `flights: k` must be what Polars
                     makes of the first k flights of that carrier, for every update that was ever published
delays-by-airport    flights of several partitions meet in one airport, in an order that nobody fixed: the numbers of
                     flights must rise from update to update, and the last update of each airport must be Polars'
choices-by-day       likewise for each airport and day: Polars counts by sums that roll over three hours, and joins nothing
these four           the header of each record names task, step and sequence number: no gap, no repeat, no way back
usual-delays         the newest epoch's result: each route once, as Polars has it
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
import polars as pl
from confluent_kafka import Consumer, KafkaError, TopicPartition
from data import PARTITIONS

from falkirk.state.shards import murmur2, murmur2_partition

OUTPUTS = ("very-late", "delays-by-carrier", "delays-by-airport", "choices-by-day", "usual-delays")
HOUR = 3_600_000
"""In milliseconds."""


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


def compare(flights: pl.DataFrame, outputs: dict[str, list[Record]], epochs: list[dict[int, int]]) -> list[Finding]:
    """A finding for each output. `epochs` says how many flights of each partition the complete epochs have read."""
    return [
        check_rows(
            flights.drop("at").filter(pl.col("delay") >= 120), "very-late", outputs["very-late"], usual(flights, epochs)
        ),
        check_updates(flights, "carrier", "delays-by-carrier", outputs["delays-by-carrier"], every=True),
        check_updates(flights, "dest", "delays-by-airport", outputs["delays-by-airport"], every=False),
        check_days(flights, "choices-by-day", outputs["choices-by-day"]),
        check_epoch(flights, ["origin", "dest"], "usual-delays", outputs["usual-delays"]),
    ]


Usual = dict[tuple[str, str], float | None]
"""By origin and destination."""


def usual(flights: pl.DataFrame, epochs: list[dict[int, int]]) -> list[Usual]:
    """What is usual on each route: before there is an epoch, and as of each."""
    hashes = murmur2([carrier.encode() for carrier in flights["carrier"]])
    placed = flights.with_columns(partition=pl.Series(murmur2_partition(hashes, PARTITIONS)))
    placed = placed.with_columns(place=pl.int_range(pl.len()).over("partition"))
    tables: list[Usual] = [{}]
    for read in epochs:
        of_epoch = placed.filter(pl.col("place") < pl.col("partition").replace_strict(read, default=0))
        means = of_epoch.group_by("origin", "dest").agg(pl.col("delay").mean())
        tables.append({(origin, dest): mean for origin, dest, mean in means.rows()})
    return tables


def torn(records: list[Record], tables: list[Usual]) -> int:
    """Steps of which no one table, or only an older one than a step before, says all that is usual."""
    steps: dict[tuple[str, int], set[int]] = {}
    for record in records:
        task, step, _ = record.origin.rsplit(" ", 2)
        route, found = (record.value["origin"], record.value["dest"]), record.value["usual"]
        # An epoch's mean may differ from Polars' own in its last digit.
        as_of = {n for n, table in enumerate(tables) if _close(table.get(route), found)}
        steps[task, int(step)] = steps.get((task, int(step)), as_of) & as_of
    wrong, newest = 0, dict[str, int]()
    for (task, _), as_of in sorted(steps.items()):
        known = [n for n in sorted(as_of) if n >= newest.get(task, 0)]
        wrong += not known
        newest[task] = known[0] if known else newest.get(task, 0)
    return wrong


def _close(a: float | None, b: float | None) -> bool:
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)


def check_rows(wanted: pl.DataFrame, output: str, records: list[Record], tables: list[Usual]) -> Finding:
    """Each row once, as it was, with what was usual; and those of one carrier in their order."""
    expected = {row["id"]: row for row in wanted.rows(named=True)}
    seen: dict[int, int] = {}
    newest: dict[str, int] = {}
    finding = Finding(output, len(records), wanted["carrier"].n_unique(), disordered=misplaced(records))
    for record in records:
        number, carrier = record.value["id"], record.value["carrier"]
        seen[number] = seen.get(number, 0) + 1
        finding.wrong += expected.get(number) != {c: v for c, v in record.value.items() if c != "usual"}
        finding.disordered += number < newest.get(carrier, -1)
        newest[carrier] = number
    finding.wrong += torn(records, tables)
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


def check_days(flights: pl.DataFrame, output: str, records: list[Record]) -> Finding:
    """The updates of a table by airport and day, and the last of each."""
    key, delay = ["dest", "window_start"], pl.col("delay")
    times = (
        flights.group_by("dest", "at").agg(stranded=(delay >= 120).sum(), others=(delay < 15).sum()).sort("dest", "at")
    )
    rolling = times.rolling("at", period=f"{3 * HOUR}i", offset="0i", closed="both", group_by="dest")
    choices = times.join(rolling.agg(there=pl.col("others").sum()), on=["dest", "at"]).select(
        "dest", window_start=pl.col("at") // (24 * HOUR) * (24 * HOUR), choices=pl.col("stranded") * pl.col("there")
    )
    wanted = choices.group_by(key).agg(pl.col("choices").sum().cast(pl.Int64)).filter(pl.col("choices") > 0)
    schema = {"dest": pl.String, "window_start": pl.Int64, "window_end": pl.Int64, "choices": pl.Int64}
    got = pl.DataFrame([record.value for record in records], schema=schema, strict=True)
    got = got.with_columns(before=pl.col("choices").shift().over(key))
    both = wanted.join(got.group_by(key).last(), on=key, how="full", coalesce=True)
    missing = both["choices"].fill_null(0) - both["choices_right"].fill_null(0)
    return Finding(
        output,
        len(records),
        wanted.height,
        lost=int(missing.clip(lower_bound=0).sum()),
        doubled=int(-missing.clip(upper_bound=0).sum()),
        wrong=int((missing != 0).sum()) + int((got["window_end"] - got["window_start"] != 24 * HOUR).sum()),
        disordered=misplaced(records) + int((got["choices"] <= got["before"]).sum()),
    )


def check_epoch(flights: pl.DataFrame, key: list[str], output: str, records: list[Record]) -> Finding:
    """The newest epoch's result: each key once."""
    newest = max((int(record.origin) for record in records), default=0)
    records = [record for record in records if int(record.origin) == newest]
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
