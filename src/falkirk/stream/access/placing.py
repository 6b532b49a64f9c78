"""Which tasks may keep the state of a key.

    reads an edge with a key    task_of(shard(murmur2(key)))                     one task
    reads a topic               murmur2(key) mod n, crc32(key) mod n             one or two: the topic's writers chose
    else                        every task of the stage

The key's bytes are those that place its rows: `Operator.placed_by`. If the state's key lacks one of their columns, any task
may have the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from falkirk.state.codec import decode_keys, decode_leading
from falkirk.state.indexed import ORDER
from falkirk.state.shards import crc32, crc32_partition, murmur2, murmur2_partition, shard_of, task_of
from falkirk.stream.access.stored_state import Table
from falkirk.stream.dataflow.partitioners import Partitioners
from falkirk.stream.formats import Key
from falkirk.stream.stages.stage import PhysicalStage


@dataclass(frozen=True, slots=True)
class Placing:
    """How the rows of one table are placed."""

    table: Table
    key: Key | None
    """Whose bytes place them; None: unknown."""
    tasks: int
    counts: frozenset[int] = frozenset()
    """The numbers of partitions of the topics whose partitions are the tasks."""
    by_shard: bool = False
    """Whether a task is given by a shard."""

    def spelt(self, columns: pl.DataFrame | None) -> bytes | None:
        """The placing bytes of a row with these columns; None: they do not tell."""
        if self.key is None or columns is None or not set(self.key.columns) <= set(columns.columns):
            return None
        (spelt,) = self.key.encode(columns.select(self.key.columns))
        return spelt

    def shards(self, spelt: bytes | None) -> list[int] | None:
        """The shard of these bytes; None: unknown."""
        return None if spelt is None else shard_of(murmur2([spelt])).tolist()

    def candidates(self, spelt: bytes | None) -> list[int]:
        """The tasks that may have rows of these bytes, in the order of their numbers."""
        if spelt is None or not (self.by_shard or self.counts):
            return list(range(self.tasks))
        hashes = murmur2([spelt])
        if self.by_shard:
            return [int(task) for task in task_of(shard_of(hashes), self.tasks)]
        found = {int(murmur2_partition(hashes, n)[0]) for n in self.counts}
        return sorted(found | {int(crc32_partition(crc32([spelt]), n)[0]) for n in self.counts})

    def spelt_in(self, full: Sequence[bytes]) -> list[bytes]:
        """The placing bytes of stored keys, where their columns tell them."""
        keys = self.table.keys
        if self.key is None or not set(self.key.columns) <= set(keys):
            return []
        if self.table.indexed:
            found = decode_keys(pl.Schema({**keys, ORDER: pl.Binary()}), full)
        else:
            found = (decode_leading if self.table.ordered else decode_keys)(keys, full)
        return [spelt for spelt in self.key.encode(found.select(self.key.columns)) if spelt is not None]


def placing_of(
    stage: PhysicalStage, key: Key | None, table: Table, tasks: int, partitions: Mapping[str, int]
) -> Placing:
    """How a stage's tasks share the rows of a table. `partitions`: how many each topic has."""
    if stage.sources and not stage.edges_in:
        sources = [i for i in stage.inputs if i.kind == "source"]
        known = all(i.topic in partitions and not i.loose for i in sources)
        return Placing(table, key, tasks, frozenset(partitions[i.topic] for i in sources) if known else frozenset())
    keyed = not stage.sources and all(edge.key is not None for edge in stage.edges_in)
    return Placing(table, key, tasks, by_shard=keyed)


def partitioners_of(placing: Placing, task: int, stored: Sequence[bytes]) -> Partitioners | None:
    """Which partitioners explain that these keys are in this task; None where partitions do not place them, or nothing is
    known.

    >>> table = Table("app", "s", "", "", 1, pl.Schema({"k": pl.String}), pl.Schema({}), parts=False)
    >>> from falkirk.state.codec import encode_key
    >>> stored = [encode_key(1, 835, ["foobar"])]
    >>> found = partitioners_of(Placing(table, Key("k"), 4, frozenset([4])), 2, stored)
    >>> found.murmur2, found.crc32
    (True, False)
    """
    if len(placing.counts) != 1 or placing.counts == {1}:
        return None
    (count,) = placing.counts
    found = Partitioners("", task, count)
    found.recall(lambda: placing.spelt_in(stored))
    return found if found.murmur2 != found.crc32 else None


def puts_here(partitioners: Partitioners, spelt: bytes) -> bool:
    """Whether the partitioner that is left puts these bytes into its task."""
    if partitioners.murmur2:
        place = murmur2_partition(murmur2([spelt]), partitioners.partitions)
    else:
        place = crc32_partition(crc32([spelt]), partitioners.partitions)
    return int(place[0]) == partitioners.partition
