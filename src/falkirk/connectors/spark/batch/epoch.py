"""The chain of Spark's stages that an epoch is, and its run.

    range(shares)          tables              a share a task; histories of a backfill
      └ mapInArrow(head)     └ mapInArrow(past)
          └ by bucket, sorted └ mapInArrow(level 1)
              └ …
                  └ by result partition, sorted └ mapInArrow(publication)
                                                      └ collect: a row for each result partition

Spark moves rows, sorts and spills them, and runs again what fails. What is computed does not depend on how many cores
there are, which task ran where, or how often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.publishing import Outcome
from falkirk.connectors.kafka.config import Cluster
from falkirk.connectors.spark.batch.histories import table_of
from falkirk.connectors.spark.batch.tasks import OUTCOME
from falkirk.connectors.spark.batch.watching import OnProgress, watched
from falkirk.connectors.spark.batch.work import ARROW, Buried, Ghosts, Published, Publishing, Work
from falkirk.connectors.spark.division import LEAST
from falkirk.connectors.spark.workers import importer, shipped
from falkirk.stream.backfill import BackfillJob, Turn
from falkirk.stream.batch import Job, Piece

SETTINGS = {
    # Partitions are as many as said here: what is adapted to sizes is other partitions on other machines.
    "spark.sql.adaptive.enabled": "false",
    # A parcel is up to half a megabyte: by the default of 64 MiB a batch, a task's frames would be as large.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
"""Of a session of the epoch's own; the caller's keeps its settings."""

TASKS = 1000
"""Of a level, at most: more buckets than that share tasks."""

Batches = Iterator[pa.RecordBatch]


def run_epoch(
    spark: SparkSession,
    job: Job | BackfillJob,
    *,
    cluster: Cluster,
    pieces: Sequence[Piece | Turn],
    topic_ids: Mapping[str, str],
    headers: Sequence[bool],
    ghosts: Sequence[Ghosts],
    publishing: Publishing,
    on_progress: OnProgress,
    checkpoints: str = "",
) -> list[Published]:
    """Compute an epoch and publish it; what of it is published already is computed, and not published again.

    `pieces` are the division, cut to the size of tasks, or of a backfill the histories that begin; `topic_ids` has Kafka's
    id of each topic that is read, and `headers` says of each source whether its records' headers are wanted. `ghosts` are
    the ranges of earlier epochs' output, up to where it ended when this one was opened, whose keys are to be buried where
    this epoch has them no more; they are cut here. `checkpoints` is the URL under which a backfill keeps its bases.
    `on_progress` is called every moment, in this thread; what it raises cancels the epoch's job, and is raised here.

    Returns what became of each result partition, in order. Raises what a task raised, if that is a FalkirkError, and
    FalkirkError for everything else that Spark could not mend by trying again. Whatever was raised: running the same epoch
    once more finishes it.
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
    """Rows of one bucket in one task, and in order there. Spark compares binaries byte by byte, nulls first."""
    return rows.repartitionById(tasks, "bucket").sortWithinPartitions(*order)


def _task(name: str, work: bytes, *more: object) -> Callable[[Batches], Batches]:
    """What a worker runs. It is made here, and so travels whole (see `importer`)."""
    imported = importer()

    def run(batches: Batches) -> Batches:
        tasks = imported("falkirk.connectors.spark.batch.tasks")
        with imported("falkirk.connectors.garbage").collected_rarely():
            yield from getattr(tasks, name)(work, *more, batches)

    return run


def _parcels() -> StructType:
    return from_arrow_schema(ARROW)


def _cut(ghosts: Sequence[Ghosts]) -> Iterator[Ghosts | Buried]:
    for ghost in ghosts:
        yield Buried(ghost.sink, ghost.topic, ghost.partition, ghost.end)
        for start in range(ghost.start, ghost.end, LEAST):
            yield ghost._replace(start=Offset(start), end=Offset(min(start + LEAST, ghost.end)))
