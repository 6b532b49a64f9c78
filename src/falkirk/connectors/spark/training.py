"""A session that does a little of all that batch parts do, and ends cleanly: it loads the classes of an archive."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from falkirk.connectors.spark.session import session


class _Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n long"

    def reader(self, schema: object) -> DataSourceReader:
        return _Reader()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array(range(100), pa.int64())})


def main() -> None:
    """Run some jobs, and wait until the JVM has ended."""
    spark = session("falkirk-prepare", master="local[2]")
    run_jobs(spark)
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def run_jobs(spark: SparkSession) -> None:
    """A source in Python, functions over batches before and after a shuffle, a join."""
    spark.dataSource.register(_Numbers)
    numbers = spark.read.format("numbers").load()

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    there = numbers.mapInArrow(same, "n long").repartition(2, "n").sortWithinPartitions("n").mapInArrow(same, "n long")
    assert there.count() == 200
    counts = numbers.groupBy("n").count()
    assert counts.join(spark.range(100).withColumnRenamed("id", "n"), "n").count() == 100
    assert len(counts.collect()) == 100


if __name__ == "__main__":
    main()
