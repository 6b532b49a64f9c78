"""What a job wrote, read back at read_committed: whether it is right, and how fast it came to be.

Every output says how many bids its key had by then, and the broker says when it was appended. So for any job at all

    done(t) = Σ over keys of the last n appended until t        records whose effect is in the output at t
    rate    = (done(end) − done(begin)) / (end − begin)

`begin` is the end of the first transaction: what was read before it, and the start of the process, are nobody's rate.
Transactions show as gaps in the offsets, for each ends with a control record.

A job of several stages has read a part of its input, or most of it, before its last stage writes anything. There `begin` is
when the first step of the first stage closed, and done(begin) what that step had read: the step records say both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from falkirk.checkpoint.records import StepRecord, decode
from harness.processes import Failed


def read(brokers: str, topic: str, partitions: int, by: str) -> pl.DataFrame:
    """All committed outputs: partition, offset, at (ms since 1970), the key, n, top; by offset. Raises Failed."""
    frames = []
    schema = {by: pl.Int64, "n": pl.Int64, "top": pl.Int64}
    for messages in committed(brokers, topic, partitions):
        places = pl.DataFrame(
            [(m.partition(), m.offset(), m.timestamp()[1]) for m in messages],
            schema={"partition": pl.Int32, "offset": pl.Int64, "at": pl.Int64},
            orient="row",
        )
        frames.append(places.hstack(pl.read_ndjson(b"\n".join([m.value() or b"" for m in messages]), schema=schema)))
    if not frames:
        raise Failed(f"{topic} is empty")
    return pl.concat(frames).rename({by: "key"}).sort("partition", "offset")


class First(NamedTuple):
    """The first round of steps that read anything."""

    at: int
    """When it closed, in ms since 1970."""
    records: int
    """What it read."""


def first_round(brokers: str, steps: str, partitions: int) -> First:
    """The first round of the tasks whose steps are in these partitions of a steps topic."""
    values = (m.value() for messages in committed(brokers, steps, partitions) for m in messages)
    records = [decode(value) for value in values if value is not None]
    read = [r for r in records if isinstance(r, StepRecord) and r.rows]
    at = min(record.clock for record in read)
    return First(at, sum(record.rows for record in read if record.clock == at))


def committed(brokers: str, topic: str, partitions: int | None = None) -> Iterator[list[Message]]:
    """All committed records of the first so many partitions, or of all. Raises Failed."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "bench-outputs",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # a broker under load may not have the start of a new topic at once
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 4_000_000,
            "queued.min.messages": 300_000,
        }
    )
    if partitions is None:
        partitions = len(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    open_partitions = set(range(partitions))
    while open_partitions:
        messages = []
        for message in consumer.consume(20_000, 0.2):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise Failed(f"{topic} cannot be read: {error}")
        if messages:
            yield messages
    consumer.close()


def faults(outputs: pl.DataFrame, expected: pl.DataFrame) -> int:
    """How many keys did not end where they should.

    >>> was = pl.DataFrame({"key": [1, 1], "n": [1, 2], "top": [5, 7]})
    >>> faults(was, pl.DataFrame({"auction": [1, 2], "n": [2, 1], "top": [7, 9]}))
    1
    """
    last = outputs.group_by("key").agg(pl.last("n", "top"))
    wanted = expected.rename({expected.columns[0]: "key"})
    both = wanted.join(last, on="key", how="full", suffix="_is")
    right = pl.col("n").eq_missing(pl.col("n_is")) & pl.col("top").eq_missing(pl.col("top_is"))
    return both.filter(~right).height


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast outputs came. Times in ms since 1970."""

    begin: int
    half: int
    end: int
    records: int
    """Done between begin and end."""
    records_late: int
    """Done between half and end."""
    commits: int
    """Transactions from the first to the last, both counted."""

    @property
    def rate(self) -> float:
        """Records a second."""
        return 1000 * self.records / max(1, self.end - self.begin)

    @property
    def late_rate(self) -> float:
        """Records a second in the second half: caches and compilers are warm."""
        return 1000 * self.records_late / max(1, self.end - self.half)

    @property
    def commit_ms(self) -> float:
        """From one commit to the next, on average."""
        return (self.end - self.begin) / max(1, self.commits - 1)


def pace(outputs: pl.DataFrame, first: First | None = None) -> Pace:
    """The pace of a job, from its outputs in the order of offsets; `first` is given of a job of several stages. Raises
    ValueError if one transaction did it all.

    >>> rows = [(0, 0, 10, 1, 4), (0, 1, 11, 2, 1), (0, 3, 110, 1, 9), (0, 5, 210, 1, 25)]
    >>> outputs = pl.DataFrame(rows, schema=["partition", "offset", "at", "key", "n"], orient="row")
    >>> found = pace(outputs)
    >>> found.begin, found.end, found.records, found.commits, found.commit_ms
    (11, 210, 21, 3, 99.5)
    >>> found = pace(outputs, First(5, 4))
    >>> found.begin, found.records
    (5, 22)
    """
    gap = pl.col("offset").diff().over("partition") > 1
    outputs = outputs.with_columns(
        transaction=gap.fill_null(value=False).cast(pl.Int64).cum_sum().over("partition"),
        gain=pl.col("n") - pl.col("n").shift(1, fill_value=0).over("key"),
    )
    curve = outputs.group_by("at").agg(pl.sum("gain")).sort("at").select("at", done=pl.col("gain").cum_sum())
    begin = outputs.filter(pl.col("transaction") == 0)["at"].max()
    total = curve["done"][-1]
    half = curve.filter(pl.col("done") >= total / 2).row(0, named=True)
    end = curve["at"][-1]
    before = curve.filter(pl.col("at") <= begin)["done"][-1]
    if first is not None:
        begin, before = first
    if begin == end:
        raise ValueError(f"all {total:,} records were done in one transaction: measure with more")
    commits = outputs.group_by("partition").agg(pl.max("transaction") + 1)["transaction"].median()
    return Pace(begin, half["at"], end, total - before, total - half["done"], round(commits))
