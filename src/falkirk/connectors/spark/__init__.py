"""Spark's side of Kafka: a PySpark data source named `falkirk`.

    options.py        a reader's options: Spark's options are strings
    division.py       the exact offset ranges that a DataFrame reads, and how tasks share them
    ranges.py         the committed records of one range, some at a time
    columns.py        records as Arrow batches, raw or decoded
    reading.py        the steps of reading a topic, each for the process that runs it
    outputs.py        a flow's output as of a step
    complete.py       the records of a complete epoch of a batch part
    states.py         a flow's state, from the versions in its checkpoint store
    source.py         the classes that Spark sends to its Python workers
    master.py         masters by URL, and whether one answers
    session.py        a configured Spark, and a Java for it
    fast_start.py     fast starts of Spark's JVMs, with classes from an archive
    training.py       the session whose classes go into that archive
    application.py    the application of a process, begun again when it has ended
    executors.py      an application that has lost all its executors
    errors.py         errors for Spark's ends
    workers.py        what is sent to Spark's Python workers, and how
    epochs/           an epoch of a batch part

None of those down to states.py needs a running Spark; they are tested without.
"""

from __future__ import annotations
