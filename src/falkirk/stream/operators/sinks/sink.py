"""From rows to records of a topic.

    append-only rows     one record per row; partitioned by key as in Java's producers, round-robin without a key
    updates of a table   one record for each key with a changed visible row, a tombstone for a removed row

Records of a table with a null key have partition 0. Round-robin would put them out of order.

In a batch each row is one record. Its content determines its partition:

    keyed       partition murmur2(key) mod P, as in Java's producers; a null key has partition 0
    not keyed   partition murmur2(value) mod P, because round-robin would depend on its start
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.blame import in_brief
from falkirk.errors import DefinitionError
from falkirk.state.shards import Hashes, murmur2, murmur2_partition
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch, Updates, chosen, present
from falkirk.stream.dataflow.catching import UNKNOWN_TO_PYTHON, Catching, Misfit
from falkirk.stream.dataflow.circuit import Emitted
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, SendsRows, together
from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import AHEAD, OVERHEAD, Accepts, sizes_of
from falkirk.stream.definition.keys import same_key
from falkirk.stream.formats import Format, Key
from falkirk.stream.operators.sinks.sink_changes import SinkChanges, check_once, final_rows, logged

KEYLESS = (
    "leave such rows out, or key the sink by other columns; to continue without such rows: on_error=fk.DeadLetter()"
)
UNFIT = "to continue without such rows: on_error=fk.DeadLetter()"
LARGE = (
    "make the record smaller, or raise the topic's max.message.bytes; to continue without such rows: "
    "on_error=fk.DeadLetter()"
)
DATED = "raise the topic's setting, or leave such rows out; to continue without such rows: on_error=fk.DeadLetter()"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Sink(Operator):
    """Rows as records of a topic."""

    kind: ClassVar[str] = "sink"
    role: ClassVar[Literal["source", "operator", "sink"]] = "sink"
    can_refuse: ClassVar[bool] = True
    topic: str
    key: Key | None
    value: Format
    feedback: bool = False
    """Whether a source of the flow may read the topic."""
    mode: SinkChanges = "append"
    """What it writes of rows that change."""

    @property
    def answers_kept(self) -> Mapping[str, str] | None:
        """For answers to requests over HTTP: the settings of the topic that the app makes for them."""
        return None

    @property
    def mark(self) -> str:
        """A field that all of its records have, and none of another sink of the same topic; "": no other writes there."""
        return ""

    @property
    def is_log(self) -> bool:
        """Whether it writes each change, and not the rows after it."""
        return self.mode in ("debezium", "weights")

    @property
    def exact_words(self) -> str:
        return f"{self.topic}, {self.key!r}, {self.value!r}{f', {self.mode}' if self.is_log else ''}"

    def runner(self, task: TaskContext) -> Runner:
        return SinkRunner(self, task.partitions.get(self.topic, 1), task.accepts.get(self.topic))

    def exchange(self) -> Exchange | None:
        """If the flow does not guarantee one row per key, the exchange brings rows together by key and counts them."""
        return SinkExchange(self) if self.changes and self.unique is None else None


class Written(NamedTuple):
    """Rows as a sink's records."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: pl.Series
    misfits: Mapping[int, Misfit] = MappingProxyType({})
    """Why some of the rows do not fit the formats of the sink's key and value: what does not fit is null."""

    def filter(self, mask: Sequence[bool]) -> Written:
        """The records where the mask is true, which leaves out all misfits."""
        keys, values = (list(compress(column, mask)) for column in (self.keys, self.values))
        return Written(keys, values, self.timestamps.filter(pl.Series(mask, dtype=pl.Boolean)))


def written(sink: Sink, batch: Batch) -> Written:
    """Append-only rows: one record per row."""
    keys, unfit = keys_of(sink.key, batch.rows)
    values, misfits = encoded(sink.value.encode, batch.rows)
    return Written(keys, values, batch.meta[TS], unfit | misfits)


def keys_of(key: Key | None, rows: pl.DataFrame) -> tuple[Sequence[bytes | None], dict[int, Misfit]]:
    """The key of each row, and why some do not fit the key's format."""
    return ([None] * rows.height, {}) if key is None else encoded(key.encode, rows)


def encoded(
    encode: Callable[[pl.DataFrame], Sequence[bytes | None]], rows: pl.DataFrame
) -> tuple[Sequence[bytes | None], dict[int, Misfit]]:
    """The bytes of each row, and why some rows do not fit the format: then halves are tried, and their halves, down to single
    rows."""
    try:
        return encode(rows), {}
    except (DefinitionError, *UNKNOWN_TO_PYTHON) as error:
        if rows.height == 1:
            what = (
                error.what if isinstance(error, DefinitionError) else f"the format cannot write it: {in_brief(error)}"
            )
            hint = error.hint if isinstance(error, DefinitionError) else ""
            return [None], {0: Misfit(what, "; ".join(filter(None, [hint, UNFIT])))}
        if not rows.height:
            raise
    half = rows.height // 2
    (first, misfits), (second, others) = encoded(encode, rows[:half]), encoded(encode, rows[half:])
    return [*first, *second], misfits | {half + i: why for i, why in others.items()}


def refused(topic: str, accepts: Accepts, records: Written, clock: int) -> dict[int, Misfit]:
    """The records that the topic does not accept at this time (milliseconds), with the reasons. The broker would reject their
    whole transaction at each attempt."""
    found: dict[int, Misfit] = {}
    if not accepts.keyless and None in records.keys:
        why = Misfit(f"its key is null, and topic {topic!r} is compacted: it accepts no record without a key", KEYLESS)
        found |= {i: why for i, key in enumerate(records.keys) if key is None}
    found |= too_large(topic, accepts, records.keys, records.values)
    times = records.timestamps
    first, last = accepts.dates(clock)
    for name, bound, beyond in (("after", accepts.after, times > last), ("before", accepts.before, times < first)):
        if beyond.any():
            limit = f"message.timestamp.{name}.max.ms is {bound:,}"
            found |= {
                i: Misfit(f"its timestamp is {times[i]}, and topic {topic!r} does not accept that: its {limit}", DATED)
                for i in beyond.arg_true()
            }
    return found


def too_large(
    topic: str, accepts: Accepts, keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> dict[int, Misfit]:
    """The records that are larger than the topic accepts, with the reasons."""
    if accepts.largest is None or accepts.fits(keys, values):
        return {}
    limit = f"its max.message.bytes, {accepts.largest:,}, is for key, value and headers together"
    return {
        i: Misfit(
            f"a record of {size - OVERHEAD:,} bytes does not fit into topic {topic!r}: {limit}; its key is {str(key)[:80]}",
            LARGE,
        )
        for i, (key, size) in enumerate(zip(keys, sizes_of(keys, values), strict=True))
        if size > accepts.largest
    }


def accepted(
    sink: Sink, accepts: Accepts | None, run: StepRun, batch: Batch, records: Written
) -> tuple[Written, list[bool] | None]:
    """The records of a batch that fit the sink's formats, and that its topic accepts (None: any), and a mask of their rows
    (None: all rows). The other rows fail. Raises UserCodeError if the app must stop."""
    if accepts is None and not records.misfits:
        return records, None
    times, latest = records.timestamps, run.step.clock + AHEAD
    if len(times) and times.max() > latest:  # type: ignore[operator]  # to clip costs more than to look
        records = records._replace(timestamps=times.clip(upper_bound=latest))
    catching = Catching(sink, run, batch)
    bad = {} if accepts is None else refused(sink.topic, accepts, records, run.step.clock)
    bad |= records.misfits
    for i, why in sorted(bad.items()):
        catching.row(i, why)
    catching.close(len(batch))
    if not bad:
        return records, None
    good = [i not in bad for i in range(len(batch))]
    return records.filter(good), good


class SinkRunner(Runner):
    """Writes one sink for one task."""

    def __init__(self, sink: Sink, partitions: int, accepts: Accepts | None = None) -> None:
        self.sink, self.partitions, self.accepts = sink, partitions, accepts

    def step(self, run: StepRun, *inputs: Flowing | None) -> None:
        """Emit the records of this step."""
        (batch,) = inputs
        if batch is None or not len(batch):
            return
        if self.sink.is_log:
            self._log(run, batch.zset() if isinstance(batch, Updates) else batch)
        elif isinstance(batch, Updates):
            self._updates(run, batch)
        elif WEIGHT in batch.meta.columns:
            self._net(run, batch)
        else:
            self._append(run, batch)

    def _append(self, run: StepRun, batch: Batch) -> None:
        records = written(self.sink, batch)
        # The first partition depends on the clock. Otherwise steps of one row each would fill only one partition.
        places = (np.arange(len(batch)) + run.step.clock) % self.partitions
        self._emit(run, batch, records, self._placed(records.keys, None, places))

    def _updates(self, run: StepRun, updates: Updates) -> None:
        key = self.sink.key
        assert key is not None
        if set(key.columns) != set(updates.columns):
            # The key can have more columns than the group. If they change, the old key needs a tombstone.
            return self._net(run, updates.zset())
        keys, hashes = (updates.key_bytes, updates.hashes) if same_key(key, updates.key) else (None, None)
        rows, here, times = updates.new, updates.has, updates.meta[TS]
        wanted = updates.changed()
        if not wanted.all():
            rows, here, times = chosen(rows, wanted), here.filter(wanted), times.filter(wanted)
            if keys is not None and hashes is not None:
                keys, hashes = list(compress(keys, wanted.to_list())), hashes[wanted.to_numpy()]
        unfit: dict[int, Misfit] = {}
        if keys is None:
            keys, unfit = encoded(key.encode, rows)
        values, misfits = encoded(self.sink.value.encode, rows if here.all() else rows.filter(here))
        if not here.all():
            # A removed row is all nulls. Some formats cannot encode it.
            left = iter(values)
            values = [next(left) if alive else None for alive in here.to_list()]
            numbers = here.arg_true()
            misfits = {numbers[i]: why for i, why in misfits.items()}
        places = self._placed(keys, hashes, np.zeros(len(keys), np.int64))
        return self._emit(run, Batch(rows, times.to_frame()), Written(keys, values, times, unfit | misfits), places)

    def _log(self, run: StepRun, batch: Batch) -> None:
        """Each change as a record."""
        made = logged(self.sink.mode, batch, self.sink.key, self.sink.where)
        if not made.values.height:
            return
        key = self.sink.key
        keys, unfit = keys_of(key, made.keyed)
        values, misfits = encoded(self.sink.value.encode, made.values)
        records = Written(keys, values, made.times, unfit | misfits)
        places = (np.arange(len(keys)) + run.step.clock) % self.partitions
        shown = Batch(made.keyed, made.times.to_frame())
        # Changes of one row must not go round: without a key, its rows only come.
        self._emit(run, shown, records, self._placed(keys, None, places if key is None else places * 0))

    def _net(self, run: StepRun, batch: Batch) -> None:
        """A Z-set as updates: the added row of a key is now visible. A key without an added row is gone."""
        key = self.sink.key
        assert key is not None
        shown, here, times = final_rows(batch, key.columns, self.sink.where)
        if not len(here):
            return
        keys, unfit = encoded(key.encode, shown)
        values, misfits = encoded(self.sink.value.encode, shown)
        unfit |= {i: why for i, why in misfits.items() if here[i]}
        records, places = Written(keys, present(values, here), times, unfit), np.zeros(len(keys), np.int64)
        self._emit(run, Batch(shown, times.to_frame()), records, self._placed(keys, None, places))

    def _placed(
        self, keys: Sequence[bytes | None], hashes: Hashes | None, nulls: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """One partition per record: by the key's hash, or from `nulls` for records without a key."""
        if hashes is None and keys.count(None) == len(keys):
            return nulls
        if hashes is None:
            hashes = murmur2(keys)
        places = murmur2_partition(hashes, self.partitions)
        if None in keys:
            places = np.where(np.fromiter((k is None for k in keys), np.bool_, len(keys)), nulls, places)
        return places

    def _emit(self, run: StepRun, batch: Batch, records: Written, places: npt.NDArray[np.int64]) -> None:
        """Emit a record for each row of the batch, except for rows that do not fit the format or that the topic does not
        accept."""
        records, good = accepted(self.sink, self.accepts, run, batch, records)
        places = places if good is None else places[good]
        if not len(records.keys):
            return
        run.emitted.append(
            Emitted(
                output=self.sink.id,
                topic=self.sink.topic,
                partitions=places.tolist(),
                keys=records.keys,
                values=records.values,
                timestamps=records.timestamps.to_list(),
            )
        )


def partitions_of(key: Key | None, records: Written, partitions: int) -> npt.NDArray[np.int64]:
    """The result partition of each record of a sink with this key."""
    if key is None:
        return murmur2_partition(murmur2(records.values), partitions)
    places = murmur2_partition(murmur2(records.keys), partitions)
    if None in records.keys:
        places[[k is None for k in records.keys]] = 0
    return places


class SinkExchange(SendsRows):
    """Sends rows."""

    def __init__(self, sink: Sink) -> None:
        assert sink.key is not None
        self.sink, self.key = sink, sink.key
        self.columns = list(sink.schema)

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        return batch.rows.select(self.columns).hstack(batch.meta.select(TS))

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        whole = together([frame for _, frame in parcels])
        keys = whole.group_by(list(self.key.columns), maintain_order=True).len("__falkirk_rows")
        check_once(keys.drop("__falkirk_rows"), keys["__falkirk_rows"], self.sink.where)
        yield Batch(whole.select(self.columns), whole.select(TS))
