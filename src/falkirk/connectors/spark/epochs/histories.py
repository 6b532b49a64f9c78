"""Spark tables in place of the beginnings of sources."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from falkirk.errors import ConfigError
from falkirk.stream.backfill.history import TABLE, History
from falkirk.stream.backfill.past import columns_read
from falkirk.stream.operators.sources.source import Source


def table_of(spark: SparkSession, history: History, source: Source) -> DataFrame:
    """A table, with the columns of a source. Raises ConfigError if Spark cannot read it, or if one is missing."""
    where = f"--history {history}"
    try:
        reader = spark.table(history.path) if history.format == TABLE else spark.read.load(history.path, history.format)
        there = reader.columns
    except PySparkException as error:
        raise ConfigError(
            f"Spark cannot read the history of source {source.id!r}: {str(error).strip().splitlines()[0]}",
            where=where,
            hint="look at the format and the path, which all of Spark's executors must reach",
        ) from error
    return reader.select([f"`{column}`" for column in columns_read(source, there, where)])
