"""Spark's side of Kafka: a PySpark data source named `falkirk`.

    options.py     what a reader was asked for: Spark's options are strings
    division.py    the exact offset ranges that a DataFrame reads, fixed when it is loaded; and how tasks share them
    columns.py     records as Arrow batches, raw or decoded
    reading.py     the steps of reading a topic, each for the process that takes it
    outputs.py     a flow's output as of a step
    states.py      a flow's state, from the versions in its checkpoint store
    source.py      what Spark is given: the classes that it sends to its Python workers
    master.py      masters by URL, and whether one is there
    session.py     a Spark with all set, and a Java for it
    application.py  the application of a process, which is begun again when it has ended
    executors.py   an application that has lost all its executors
    errors.py      ends of Spark's
    workers.py     what travels to Spark's Python workers, and how
    batch/         an epoch of a batch part

None of those down to states.py needs a Spark that runs, and they are tested without.
"""

from __future__ import annotations
