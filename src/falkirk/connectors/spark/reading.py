"""The steps of a read, each for the process in which Spark runs it: plain values in, plain values or Arrow out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.garbage import collected_rarely
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.spark.columns import Columns
from falkirk.connectors.spark.complete import complete_epoch, of_epoch
from falkirk.connectors.spark.division import LOST, Division, check_readable, divide, slices
from falkirk.connectors.spark.options import Options
from falkirk.connectors.spark.outputs import check_reached, until
from falkirk.connectors.spark.ranges import chunks

Given = Mapping[str, str]
Recorded = tuple[str, Mapping[int, tuple[int, int]], int | None]
"""A division in plain values; and the number of the epoch, if its records are wanted."""


def fix(given: Given) -> Recorded:
    """On load(): fix what will be read, even if the topic changes. Raises FalkirkError."""
    options = Options.parse(given)
    topics = Topics(options.cluster)
    topics.check_reachable()
    if options.step is not None:
        check_reached(options.cluster, topics, options.steps_topic, options.step)
    number = None
    if options.epoch is not None:
        number, found = complete_epoch(options.cluster, topics, options.epochs_topic, options.epoch, options.topic)
        options = replace(options, ranges=found.ranges, topic_id=found.topic_id)
    division = divide(topics, options)
    return division.topic_id, {p: (int(start), int(end)) for p, (start, end) in division.ranges.items()}, number


def schema(given: Given, recorded: Recorded) -> StructType:
    """On load(): the columns."""
    return from_arrow_schema(_columns(Options.parse(given)).arrow)


def plan(given: Given, recorded: Recorded, cores: int) -> list[tuple[int, int, int]]:
    """On each action: one slice per task, after a check that all is still there. Raises SourceError if not."""
    options, division = Options.parse(given), _division(recorded)
    check_readable(Topics(options.cluster), options.topic, division)
    return [(p, int(start), int(end)) for p, start, end in slices(division, cores, options.slice)]


def read(given: Given, recorded: Recorded, piece: tuple[int, int, int]) -> Iterator[pa.RecordBatch]:
    """In a task: the committed records of a slice, in the order of offsets. Raises SourceError if they are gone."""
    options, division = Options.parse(given), _division(recorded)
    partition, start, end = piece
    place, columns = TopicPartition(options.topic, partition), _columns(options)
    with collected_rarely():
        for messages in chunks(
            options.cluster, place, division.topic_id, start, end, lost=LOST, patience=options.patience
        ):
            wanted = messages if options.step is None else until(options.step, messages)
            wanted = wanted if recorded[2] is None else of_epoch(recorded[2], wanted)
            if wanted:
                yield columns.batch(wanted)


def _columns(options: Options) -> Columns:
    return Columns(options.topic, options.value, options.metadata, skip_malformed=options.skip_malformed)


def _division(recorded: Recorded) -> Division:
    topic_id, ranges, _ = recorded
    return Division(topic_id, {p: (Offset(start), Offset(end)) for p, (start, end) in ranges.items()})
