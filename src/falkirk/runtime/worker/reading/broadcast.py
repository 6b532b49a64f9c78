"""The broadcast tables of one worker: read by one consumer, one store each, seen by all its tasks.

    end of a step's division, of a table's partition  =  how far the worker's table was when the step was closed

So a worker that takes a task over waits until its own table is as far, and what a task sees never goes back. Stores are not
part of any task's state. Each is a function of its topic and its positions, both written at once, and begins again if lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from falkirk.checkpoint.epochs import decoded
from falkirk.checkpoint.ids import InputPartition, Offset, TopicPartition, after
from falkirk.checkpoint.overlay import Overlay
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.reading.sources import SourceReaders
from falkirk.runtime.app.app import App, BoundTask
from falkirk.runtime.worker.reading.edges import EdgeReader
from falkirk.state.engine import Memory
from falkirk.state.files import discard_folder
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Progress, Store
from falkirk.stream.circuit.broadcast import Arrivals, Keeper, Rows
from falkirk.stream.dataflow.circuit import SharedRows
from falkirk.stream.dataflow.records import Records
from falkirk.stream.definition.expressions import words
from falkirk.stream.stages.stage import SharedTable

TOLD = 3
"""Undecodable records are reported one by one, up to this many of one table."""


Earliest = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, Offset]]


class SharedTables:
    """All broadcast tables of one worker. Does nothing in a worker without them."""

    def __init__(self, tables: Sequence[TableCopy], reader: EdgeReader, earliest: Earliest) -> None:
        """`earliest` finds where partitions begin."""
        self._tables, self._reader = tables, reader
        self._by_topic = {table.topic: table for table in tables}
        self._tellers = {table.epochs: table for table in tables if table.epochs is not None}
        if not tables:
            return
        self._at: dict[TopicPartition, Offset] = {}
        firsts = [TopicPartition(t.topic, p) for t in tables for p in range(t.partitions) if p not in t.positions]
        begin = dict(earliest([*firsts, *self._tellers]))
        for table in tables:
            begin |= {TopicPartition(table.topic, p): Offset(at) for p, at in table.positions.items()}
        reader.add(begin)
        self._everything = set(begin)
        self._loaded = False

    def tick(self) -> None:
        """Take in what has arrived. Raises SourceError if a table can no longer be read."""
        if not self._tables:
            return
        runs, count = self._reader.poll(0)
        for error in self._reader.unreadable.values():
            raise error
        for place, messages in runs:
            if (told := self._tellers.get(place)) is not None:
                for message in messages:
                    offset = Offset(message.offset())
                    told.arrivals.admit(offset, decoded(message.value() or b"", offset))
                    self._at[place] = after(offset)
            else:
                table = self._by_topic[place.topic]
                table.arrivals.offer(place.partition, Records.of(messages, headers=table.epochs is not None))
        if count or not self._loaded:
            for place, end in self._reader.ends.items():
                if place in self._tellers:
                    self._at[place] = max(end, self._at.get(place, end))
                else:
                    self._by_topic[place.topic].arrivals.reach(place.partition, end)
            for table in self._tables:
                table.keep()
        self._loaded = self._loaded or self._reader.at_end(self._everything)

    def ready(self, task: BoundTask, ends: Mapping[InputPartition, Offset]) -> bool:
        """Whether the tables are read at least as far as the task's last step saw them."""
        return not task.shared or (
            self._loaded and all(at >= ends.get(partition, at) for partition, at in self.positions(task).items())
        )

    def positions(self, task: BoundTask) -> dict[InputPartition, Offset]:
        """The positions of the tables that a task looks up."""
        return {i.partition: self._position(i.place) for i in task.shared}

    def seen(self, task: BoundTask, *, held: bool = False) -> dict[str, SharedRows]:
        """Those tables, as they are now. `held`: for a step in a thread of its own, while they go on."""
        return {t.source.id: self._by_topic[t.source.topic].seen(held=held) for t in task.stage.shared}

    def close(self) -> None:
        """Close the files."""
        for table in self._tables:
            table.store.close()
        self._reader.close()

    def _position(self, place: TopicPartition) -> Offset:
        if (table := self._by_topic.get(place.topic)) is None:
            return self._at.get(place, Offset(0))
        return table.positions.get(place.partition, Offset(0))


class TableCopy:
    """A worker's copy of one broadcast table, in a store of its own."""

    def __init__(
        self,
        table: SharedTable,
        partitions: int,
        store: Store,
        hold: Callable[[], Rows] | None = None,
        topic_id: str = "",
    ) -> None:
        """`hold`: gives the store's rows of this moment. `topic_id`: Kafka's."""
        self.topic, self.partitions, self.store = table.source.topic, partitions, store
        self._hold = hold or (lambda: store)
        self.epochs = None if table.epochs is None else TopicPartition(table.epochs, 0)
        self._keeper = Keeper(table)
        self._bad = 0
        self.arrivals = Arrivals(self.topic, self._keeper.about(Overlay(store)), topic_id)

    @property
    def positions(self) -> dict[int, Offset]:
        """The next offset of each partition."""
        return self.arrivals.about.positions

    def keep(self) -> None:
        """Write what may be kept and the position, at once."""
        visible, overlay = self.arrivals.about.visible, Overlay(self.store)
        for run in self.arrivals.take():
            for letter in self._keeper.keep(run, overlay, self.arrivals.about.visible):
                self._refuse(letter)
        if overlay.changes or self.arrivals.about.visible != visible:
            self._keeper.tell(overlay, self.arrivals.about)
            self.store.write(overlay.changes, Progress(self.store.progress.step + 1, 0, 0))
        if self.arrivals.about.visible != visible:
            logger.info("table %s: epoch %s is visible", self.topic, self.arrivals.about.visible)

    def seen(self, *, held: bool = False) -> SharedRows:
        """As it is now. `held`: what is kept later changes nothing."""
        return self._keeper.seen(self._hold() if held else self.store, self.arrivals.about.visible)

    def _refuse(self, letter: bytes | None) -> None:
        """A dead letter needs a transaction, and a worker's own table has none."""
        self._bad += 1
        if self._bad <= TOLD:
            logger.warning("table %s: a record does not decode, so its key's row does not change: %s",
                           self.topic, (letter or b"").decode())  # fmt: skip


def open_tables(app: App, cluster: Cluster, topics: Topics, folder: Path, memory: Memory) -> SharedTables:
    """Those of an app's worker, kept in its folder and read from Kafka."""
    tables = []
    for table in app.plan.shared:
        info = app.topics[table.source.topic]
        epochs = None if table.epochs is None else app.topics[table.epochs]
        store = _store(app.name, table, info, epochs, folder, memory)
        tables.append(TableCopy(table, info.partitions, store, store.held, info.id))
    return SharedTables(
        tables, SourceReaders(cluster, ends=True), lambda places: topics.offsets(list(places), "earliest")
    )


def _store(
    app: str, table: SharedTable, info: TopicInfo, epochs: TopicInfo | None, folder: Path, memory: Memory
) -> RocksStore:
    """What the worker has kept of a table, if it was the same one, of the same epochs."""
    name, keeper = table.source.id, Keeper(table)
    kept = f"{table.source.key!r} → {words(keeper.kept)}, of {info.name}, {info.id}"
    if epochs is not None:
        kept += f", and {epochs.name}, {epochs.id}"
    fingerprint = hashlib.blake2b(kept.encode(), digest_size=16).hexdigest()
    own = folder / "tables" / name / fingerprint[:12]
    for other in own.parent.iterdir() if own.parent.exists() else ():
        if other != own:  # what an earlier version of the flow kept of it
            discard_folder(other)
    return RocksStore(own, Identity(app, f"table {name}", fingerprint, kept), memory)
