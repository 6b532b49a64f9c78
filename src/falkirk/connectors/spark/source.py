"""The data source. Spark sends these classes to its Python workers, where Falkirk may be missing.

    load()      in a worker of the driver:  FalkirkSource(options)    what is read is fixed here, for all later actions
    action      in a worker of the driver:  reader.partitions()       still readable? then a piece for each task
                in workers of executors:    reader.read(piece)        Arrow batches

The classes are made in a function, so they are sent by value, not by name: they also arrive where Falkirk cannot be
imported, and can say so. They hold only plain values, for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from falkirk.connectors.spark.workers import importer

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "falkirk"


def source_for(cores: int) -> type[DataSource]:
    """The data source for a Spark of so many cores."""

    imported = importer()

    def reading(options: dict[str, str]) -> Any:
        """The module that reads topics or state, or an error that says where it is missing."""
        return imported(f"falkirk.connectors.spark.{'states' if 'state' in options else 'reading'}")

    class FalkirkReader(DataSourceReader):
        def __init__(self, options: dict[str, str], fixed: Any) -> None:
            self.options, self.fixed = options, fixed

        def partitions(self) -> list[InputPartition]:
            found = reading(self.options).plan(self.options, self.fixed, cores)
            return [InputPartition(piece) for piece in found]

        def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
            # If there is no partition, Spark still runs one task: with None, or with a partition of None.
            if partition is not None and partition.value is not None:
                yield from reading(self.options).read(self.options, self.fixed, partition.value)

    class FalkirkSource(DataSource):
        def __init__(self, options: dict[str, str]) -> None:
            given = {name.lower(): value for name, value in options.items()}
            super().__init__(given)
            self.given, self.fixed = given, reading(given).fix(given)

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> StructType:
            schema: StructType = reading(self.given).schema(self.given, self.fixed)
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            return FalkirkReader(self.given, self.fixed)

    return FalkirkSource
