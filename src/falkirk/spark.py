"""Falkirk's Kafka topics in PySpark: exact ranges, read committed, as DataFrames.

    import falkirk as fk
    import falkirk.spark

    spark = falkirk.spark.session()
    bids = (
        spark.read.format("falkirk")
        .option("brokers", "127.0.0.1:9092")
        .option("topic", "bids")
        .option("value", fk.Json({"auction": fk.Int64, "price": fk.Int64}))
        .load()
    )
    bids.groupBy("auction").max("price").show()

Importing this makes the format `falkirk` known to the session that is active, if there is one; `session()` makes one, and
`register(spark)` tells another. It needs PySpark: pip install 'falkirk[spark]'.
"""

from __future__ import annotations

from importlib.util import find_spec

from falkirk.errors import ConfigError

if not find_spec("pyspark"):
    raise ConfigError("PySpark is not installed", hint="pip install 'falkirk[spark]'")

from pyspark.sql import SparkSession

from falkirk.connectors.spark.session import register, session

__all__ = ["register", "session"]

if (active := SparkSession.getActiveSession()) is not None:
    register(active)
