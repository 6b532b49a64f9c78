"""Spark's side of Kafka: a PySpark data source named `falkirk`.

    options.py     what a reader was asked for: Spark's options are strings
    division.py    the exact offset ranges that a DataFrame reads, fixed when it is loaded; and how tasks share them
    columns.py     records as Arrow batches, raw or decoded
    reading.py     one task's slice of the division, read at read_committed
    outputs.py     a flow's output as of a step
    source.py      what Spark is given: the classes that it sends to its Python workers
    session.py     a local Spark with all set, and a Java for it

The first five know nothing of Spark, and are tested without it.
"""

from __future__ import annotations
