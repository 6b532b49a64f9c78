"""The state of one task: its database, how keys and rows are bytes there, and copies of its versions.

The database:
    store.py          the contract: one atomic write holds a step's changes and its progress; two versions
    rocks.py          on RocksDB, in a folder (engine.py: RocksDB itself; files.py: the folder's files)
    manifest.py       which parts of that folder count
    meta.py           whose state a store holds, and how far it is
    memory.py         in memory, for tests and tasks without state

Bytes:
    shards.py         the shard, partition and task of a key
    codec.py          what other rooms import of keys.py and values.py
    keys.py           keys that sort as their columns do (scalars.py: one column of one key)
    values.py         rows of typed columns
    cells.py          what both have in common: columns as matrices of bytes
    schema.py         which operator has which tables, and what a later version of the flow may open

Structures in a task's state:
    indexed.py        Z-sets by key: the inputs of joins (entries.py: one row of them)
    timed.py          Z-sets by iteration: the state of operators inside a loop

Copies in a checkpoint store:
    checkpoints.py    the versions of one task: upload, download, deletion
    remote.py         what a version says about itself
    task_objects.py   the objects of one task
    objects.py        the object store behind a URL
"""

from __future__ import annotations
