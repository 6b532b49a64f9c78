"""Bids read from Kafka by Spark, and aggregated: count and highest price of each auction.

python spark_read.py SOURCE BROKERS TOPIC WARM          SOURCE is kafka (Spark's own connector) or falkirk

The first query reads WARM offsets of each partition and is nobody's result. The second reads all; its seconds, on the clock
and of CPU time, and its rows, auction by auction, are said as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import psutil
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import falkirk as fk
from falkirk.spark import session

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
PARTITIONS = 4


def main() -> None:
    source, brokers, topic, warm = sys.argv[1:]
    settings = {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "2g"}
    if source == "kafka":
        settings["spark.jars.packages"] = CONNECTOR
    spark = session("bench", master="local[2]", settings=settings)
    read = of_kafka if source == "kafka" else of_falkirk
    aggregated(read(spark, brokers, topic, int(warm)))
    began, used = time.perf_counter(), cpu()
    rows = aggregated(read(spark, brokers, topic, None))
    seconds, used = time.perf_counter() - began, cpu() - used
    print(json.dumps({"seconds": seconds, "cpu": used, "spark": pyspark.__version__, "rows": rows}), flush=True)
    spark.stop()


def cpu() -> float:
    """CPU seconds of this process, Spark's JVM and its Python workers so far."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in tree)


def aggregated(bids: DataFrame) -> list[list[int]]:
    """The job itself: the same for both."""
    stats = bids.groupBy("auction").agg(sf.count("*").alias("n"), sf.max("price").alias("top"))
    return [[row.auction, row.n, row.top] for row in stats.collect()]


def of_falkirk(spark: SparkSession, brokers: str, topic: str, warm: int | None) -> DataFrame:
    reader = spark.read.format("falkirk").option("brokers", brokers).option("topic", topic)
    reader = reader.option("value", fk.Json({"auction": fk.Int64, "price": fk.Int64}))
    return (reader.option("ranges", {p: [0, warm] for p in range(PARTITIONS)}) if warm is not None else reader).load()


def of_kafka(spark: SparkSession, brokers: str, topic: str, warm: int | None) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic)
    reader = reader.option("kafka.isolation.level", "read_committed")
    if warm is not None:
        reader = reader.option("endingOffsets", json.dumps({topic: dict.fromkeys(map(str, range(PARTITIONS)), warm)}))
    bid = sf.from_json(sf.col("value").cast("string"), "auction BIGINT, price BIGINT").alias("bid")
    return reader.load().select(bid).select("bid.*")


if __name__ == "__main__":
    main()
