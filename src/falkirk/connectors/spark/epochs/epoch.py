"""An epoch as a chain of Spark stages, and its run.

    range(shares)          tables              one share per task; histories of a backfill
      └ mapInArrow(head)     └ mapInArrow(past)
          └ by bucket, sorted └ mapInArrow(level 1)
              └ …
                  └ by result partition, sorted └ mapInArrow(publication)
                                                      └ collect: a row for each result partition

Spark moves rows, sorts and spills them, and runs failed tasks again. The result does not depend on the number of cores,
nor on where and how often a task ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.publishing import Outcome
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.spark.division import LEAST
from falkirk.connectors.spark.epochs.histories import table_of
from falkirk.connectors.spark.epochs.tasks import OUTCOME
from falkirk.connectors.spark.epochs.watching import OnProgress, watched
from falkirk.connectors.spark.epochs.work import ARROW, Published, Publishing, ReplacedRange, TombstoneRange, Work
from falkirk.connectors.spark.workers import importer, shipped
from falkirk.stream.backfill import BackfillJob, HistoryTask
from falkirk.stream.batch import Job, Piece

SETTINGS = {
    # The number of partitions is fixed here: Spark's adaption to sizes gives others on other machines.
    "spark.sql.adaptive.enabled": "false",
    # A parcel has up to half a megabyte: with the default of 64 MiB per batch, a task's frames would be as large.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
"""For the epoch's own session; the caller's keeps its settings."""

TASKS = 1000
"""Of a level, at most: more buckets share tasks."""

Batches = Iterator[pa.RecordBatch]


def run_epoch(
    spark: SparkSession,
    job: Job | BackfillJob,
    *,
    cluster: Cluster,
    pieces: Sequence[Piece | HistoryTask],
    topic_ids: Mapping[str, str],
    headers: Sequence[bool],
    ghosts: Sequence[ReplacedRange],
    publishing: Publishing,
    on_progress: OnProgress,
    checkpoints: str = "",
) -> list[Published]:
    """Compute an epoch and publish it; rows that are already published are computed, but not published again.

    `pieces` are the division, cut to the size of tasks, or for a backfill the histories that begin. `topic_ids` has Kafka's
    id of each topic that is read; `headers` says for each source whether its records' headers are needed. `ghosts` are the
    ranges of earlier epochs' output, up to its end when this epoch opened. Keys in them that this epoch no longer has get
    tombstones. The ranges are cut here. `checkpoints` is the URL where a backfill keeps its bases. `on_progress` is called
    every moment, in this thread; what it raises cancels the epoch's job, and is raised here.

    Returns what became of each result partition, in order. Raises what a task raised, if that is a FalkirkError, and
    FalkirkError for everything else that Spark's retries could not fix. After any error, another run of the same epoch
    finishes it.
    """
    shares = [*pieces, *_cut(ghosts), None]
    work = shipped(Work(job, cluster, shares, topic_ids, headers, publishing, checkpoints))
    own = spark.newSession()
    for name, value in SETTINGS.items():
        own.conf.set(name, value)
    rows = own.range(0, len(shares), 1, len(shares)).mapInArrow(_task("head", work), _parcels())
    if isinstance(job, BackfillJob):
        for history in job.stage.histories:
            read = table_of(own, history, job.stage.source(history.source))
            rows = rows.unionAll(read.mapInArrow(_task("past", work, history.source), _parcels()))
    for number in range(1, job.levels + 1):
        rows = _shuffled(rows, min(job.buckets, TASKS), ["level", "exchange", "bucket", "order"])
        rows = rows.mapInArrow(_task("level", work, number), _parcels())
    rows = _shuffled(rows, job.result_partitions, ["bucket", "exchange", "key", "order"])
    outcomes = rows.mapInArrow(_task("publication", work), from_arrow_schema(OUTCOME))
    names = ["read", *(f"level {n} of {job.levels}" for n in range(1, job.levels + 1)), "publish"]
    found = watched(own.sparkContext, publishing.what, names, outcomes.collect, on_progress)
    return sorted(Published(r.result_partition, Outcome(r.outcome), r.records, r.tombstones) for r in found)


def _shuffled(rows: DataFrame, tasks: int, order: Sequence[str]) -> DataFrame:
    """Rows of one bucket in one task, in order. Spark compares binaries byte by byte, nulls first."""
    return rows.repartitionById(tasks, "bucket").sortWithinPartitions(*order)


def _task(name: str, work: bytes, *more: object) -> Callable[[Batches], Batches]:
    """What a worker runs. Made here, so it is sent by value (see `importer`)."""
    imported = importer()

    def run(batches: Batches) -> Batches:
        tasks = imported("falkirk.connectors.spark.epochs.tasks")
        with imported("falkirk.connectors.garbage").collected_rarely():
            yield from getattr(tasks, name)(work, *more, batches)

    return run


def _parcels() -> StructType:
    return from_arrow_schema(ARROW)


def _cut(ghosts: Sequence[ReplacedRange]) -> Iterator[ReplacedRange | TombstoneRange]:
    for ghost in ghosts:
        yield TombstoneRange(ghost.sink, ghost.topic, ghost.partition, ghost.end)
        for start in range(ghost.start, ghost.end, LEAST):
            yield ghost._replace(start=Offset(start), end=Offset(min(start + LEAST, ghost.end)))
