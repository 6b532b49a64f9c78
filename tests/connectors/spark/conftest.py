"""One Spark for all of these tests: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.connectors.spark.topics import Topic

import falkirk.spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark of two cores."""
    made = falkirk.spark.session("tests", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    yield made
    made.stop()


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> Callable[..., Topic]:
    """Makes topics."""
    return lambda name="t", partitions=1, **config: Topic(
        kafka, topic_prefix + name, partitions, {key.replace("_", "."): value for key, value in config.items()}
    )


@pytest.fixture
def load(spark: SparkSession) -> Callable[..., DataFrame]:
    """A DataFrame of a topic."""

    def load(topic: Topic, **options: object) -> DataFrame:
        reader = spark.read.format("falkirk").option("brokers", topic.brokers).option("topic", topic.name)
        for name, value in options.items():
            reader = reader.option(name, value)  # type: ignore[arg-type]
        return reader.load()

    return load
