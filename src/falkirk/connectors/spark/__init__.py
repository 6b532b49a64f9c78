"""Spark's side of Kafka: a PySpark data source named `falkirk`.

    options.py     a reader's options: Spark's options are strings
    division.py    the exact offset ranges that a DataFrame reads, fixed when it is loaded; and how tasks share them
    columns.py     records as Arrow batches, raw or decoded
    reading.py     the steps of reading a topic, each for the process that runs it
    outputs.py     a flow's output as of a step
    states.py      a flow's state, from the versions in its checkpoint store
    source.py      the classes that Spark sends to its Python workers
    master.py      masters by URL, and whether one answers
    session.py     a configured Spark, and a Java for it
    application.py  the application of a process, begun again when it has ended
    executors.py   an application that has lost all its executors
    errors.py      errors for Spark's ends
    workers.py     what is sent to Spark's Python workers, and how
    batch/         an epoch of a batch part

None of those down to states.py needs a running Spark; they are tested without.
"""

from __future__ import annotations
