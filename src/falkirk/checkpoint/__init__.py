"""The step protocol, without I/O: coroutines that call ports, and pure decisions.

A step, clauses 1 to 4 of the protocol:
    overlay.py        the changes that a step stages over the store
    steps.py          closes a step: its output as records, and its step record (digest.py)
    pipeline.py       step n+1 runs while step n commits
    transaction.py    commits steps, and finds out what became of them; ends an ownership
    bundles.py        records of several tasks for one partition of an edge, sent as one

A take-over, clause 5:
    takeover.py       name, fence, roll forward, run
    reading.py        reads steps partitions to their ends, and fences whoever is in the way
    ownerships.py     who owned a task, by the records of its steps partition
    regimes/          which log rolls a store forward, one file for each regime
    correction.py     a step that corrects what recorded steps have published
    backfill.py       the states that first steps begin with

What both use:
    ids.py            different numbers and names are different types
    records.py        the records of the steps topic
    tasks.py          a task at its owner: its phases, and its closed steps
    ports.py          what Kafka, RocksDB and the simulator implement (driver.py: runs a coroutine over ports that block)
    invariants.py     what always holds, as named equations
    worker/           what a worker does next, as a state machine

Beside the steps of tasks:
    epochs.py         the epochs of a batch part
    publishing.py     the results of an epoch, exactly once in Kafka
    outlets.py        rows, exactly once outside Kafka
    planning/         how long a recovery will take, and when the next version is due
    frontiers/        logical times, and which state each task goes back to
"""

from __future__ import annotations
