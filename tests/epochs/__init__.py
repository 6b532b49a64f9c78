"""Epochs under harm, seen from outside: `falkirk run` with batch parts, everything it consists of killed again and again.

    flows.py       what is run: two batch parts and a streaming one, over the same topic
    harm.py        what is killed: drivers, Spark's JVM and Python workers, streaming workers, the broker, the whole run
    check.py       a read_committed reader, and Polars over the recorded divisions
    trial.py       one run of it all

`python -m tests.epochs --epochs 100` is the long one; a few epochs of it are in the test suite.
"""
