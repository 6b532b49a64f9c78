"""Reads an app's state, without asking its workers or opening their files.

lazy     the newest version of each task in the checkpoint store
eager    the same plus the changelog's tail, or the whole changelog: state as of the last committed step
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from typing import Literal

import msgspec
import polars as pl
from polars.exceptions import PolarsError

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.regimes.eager import TOMBSTONE_RETENTION
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.errors import ConfigError, StateError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.app_lookup import known_app
from falkirk.runtime.layout.compatibility import as_recorded
from falkirk.runtime.layout.layout import LayoutRecord, check_not_ending
from falkirk.runtime.layout.progress import last_records, last_step
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.codec import prefix_end
from falkirk.state.engine import Engine
from falkirk.state.objects import connect
from falkirk.state.remote import RemoteVersion
from falkirk.stream.access.stored_state import Pair, Table, opened, pairs_of, table_of
from falkirk.stream.definition.names import changelog_topic, steps_topic
from falkirk.stream.stages.plan import Plan
from falkirk.wording import counted


@dataclass(frozen=True, slots=True)
class TaskState:
    """A table in one task: a version, if there is one, and what has changed since, as far as is known."""

    table: Table
    task: str
    step: int
    """The state as of this step; or, if it comes from a changelog that is being written, of this one or a later one."""
    at: int
    """When that step was made: milliseconds since 1970."""
    engine: Engine | None
    changes: dict[bytes, bytes | None] = field(default_factory=dict)

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values under full keys."""
        before = [None] * len(keys) if self.engine is None else self.engine.get(keys)
        return [self.changes.get(key, old) for key, old in zip(keys, before, strict=True)]

    def get(self, key: pl.DataFrame) -> list[Pair]:
        """The row of a key; in an index all of its rows; nothing if the key is not there."""
        if self.table.ordered:
            prefixes = self.table.keys_of(key)
            return [pair for prefix in prefixes for pair in self._span(prefix, prefix_end(prefix))]
        found = self._there(self.table.keys_of(key))
        spans = [span for pair in found if (span := self.table.others(pair)) is not None]
        return [*found, *(pair for span in spans for pair in self._between(*span))]

    def _there(self, keys: Sequence[bytes]) -> list[Pair]:
        found = zip(keys, self.values(keys), strict=True)
        return [(full, value) for full, value in found if value is not None]

    def _span(self, first: bytes, last: bytes) -> Iterator[Pair]:
        """The rows with keys from `first` on and before `last`."""
        old = iter(()) if self.engine is None else self.engine.scan(first, last)
        new = ((k, v) for k in sorted(self.changes) if first <= k < last and (v := self.changes[k]) is not None)
        return merge((pair for pair in old if pair[0] not in self.changes), new)

    def scan(self) -> Iterator[Pair]:
        """All rows, in the order of shards and keys."""
        old = iter(()) if self.engine is None else pairs_of(self.table, self.engine)
        prefixes = frozenset(self.table.prefixes())
        return self._changed(old, (key for key in self.changes if key[:3] in prefixes))

    def _between(self, start: bytes, end: bytes) -> Iterator[Pair]:
        """The rows with start ≤ key < end."""
        old = iter(()) if self.engine is None else self.engine.scan(start, end)
        return self._changed(old, (key for key in self.changes if start <= key < end))

    def _changed(self, old: Iterator[Pair], changes: Iterable[bytes]) -> Iterator[Pair]:
        """Pairs of the version, with these changes."""
        ours = sorted(changes)
        new = ((key, value) for key in ours if (value := self.changes[key]) is not None)
        return merge((pair for pair in old if pair[0] not in self.changes), new)


class States:
    """One table of an app's state, task by task."""

    def __init__(self, plan: Plan, name: str, settings: Settings, topics: Topics) -> None:
        """`name` is OPERATOR, or OPERATOR/TABLE. Raises ConfigError if the flow, or the cluster, does not have it."""
        table_of(plan, name)
        known = known_app(plan.app, settings, topics)
        check_not_ending(plan.app, known)
        if known.layout is None:
            raise ConfigError(f"app {plan.app!r} has not run yet, and has no state", hint="falkirk run runs it")
        plan = replace(plan, stages=tuple(as_recorded(known.layout, plan.stages)))
        self.table = table_of(plan, name)
        recorded = {s.id: s.state for s in known.layout.stages}
        if self.table.stage in recorded:
            self.table = self.table.within(recorded[self.table.stage])
        self._settings, self._layout = settings, known.layout
        self._store = connect(settings.checkpoint_url())
        self._first, self.tasks = place_of(known.layout, self.table.stage)
        recovery = next(s.recovery for s in known.layout.stages if s.id == self.table.stage)
        changelog = changelog_topic(settings.prefix, plan.app, self.table.stage)
        self._changelog = changelog if recovery.logs_changes else None

    @contextmanager
    def open(self, task: int, as_of: int | None = None) -> Iterator[TaskState]:
        """The table of one task; `as_of`: not later than that step, by a version. Raises StateError if there is none, or if
        it is not migrated yet."""
        with self._open(task, as_of) as found:
            self.table.check_whole(found.values, found.task)
            yield found

    @contextmanager
    def _open(self, task: int, as_of: int | None) -> Iterator[TaskState]:
        copies = CheckpointStore(self._store, self.table.identity(self._layout.incarnation, task))
        version = copies.newest(as_of)
        name = f"{self.table.stage}/{task}"
        with ExitStack() as stack:
            if self._changelog is None or as_of is not None:
                if version is None:
                    raise self._none(name, copies, as_of)
                engine = stack.enter_context(opened(self._store, version))
                yield TaskState(self.table, name, version.step, version.progress.clock, engine)
                return
            if version is not None and _old(version) and version.progress.base < 0:
                version = None  # a later tombstone may be gone: the whole changelog is complete
            engine_or_none = None if version is None else stack.enter_context(opened(self._store, version))
            if version is not None and _old(version):
                yield TaskState(self.table, name, version.step, version.progress.clock, engine_or_none)
                return
            steps = TopicPartition(steps_topic(self._settings.prefix, self.table.app), self._first + task)
            (records,) = last_records(self._settings, [steps])
            last = last_step(records)
            changes = self._changes(TopicPartition(self._changelog, task), version)
            step, at = (-1, 0) if last is None else (last.step, last.clock)
            yield TaskState(self.table, name, step, at, engine_or_none, changes)

    def _changes(self, place: TopicPartition, version: RemoteVersion | None) -> dict[bytes, bytes | None]:
        """What is committed in the changelog behind the version."""
        changes: dict[bytes, bytes | None] = {}
        with closing(BoundedReader(self._settings.cluster())) as reader:
            first, mark = (reader.watermarks([place], end=end)[place] for end in (False, True))
            at = max(first, Offset(0 if version is None else version.progress.log_offset))
            while at < mark:
                some, reached = reader.read_changes(place, at, mark)
                changes.update(some)
                if reached == at:
                    break  # a transaction is open there
                at = reached
        return changes

    def _none(self, task: str, copies: CheckpointStore, as_of: int | None) -> StateError:
        steps = ", ".join(map(str, copies.versions()))
        early = "" if as_of is None else f" as early as step {as_of}"
        return StateError(
            f"there is no version of task {task}{early} in the checkpoint store",
            where=self._settings.checkpoint_url(),
            hint=f"the steps of its versions are {steps}"
            if steps
            else "is it the run's (--checkpoints, or its --state-dir)? If it is, the first version is made after the "
            f"regime's `every`, or by falkirk checkpoint {self.table.app}",
        )


def _old(version: RemoteVersion) -> bool:
    return time.time() * 1000 - version.progress.clock > TOMBSTONE_RETENTION / 2


def place_of(layout: LayoutRecord, stage: str) -> tuple[int, int]:
    """The number of a stage's first task, and its number of tasks. Raises ConfigError if the app has no such stage."""
    if (numbers := layout.numbers.get(stage)) is not None:
        return numbers.start, len(numbers)
    raise ConfigError(
        f"app {layout.app!r} has no stage {stage!r}",
        where=f"its stages: {', '.join(s.id for s in layout.stages)}",
        hint="is this the flow that runs there?",
    )


def key_of(table: Table, texts: Sequence[str | None]) -> pl.DataFrame:
    """A key from its columns as text. Raises ConfigError if they are not the table's."""
    names = ", ".join(f"{name}: {dtype}" for name, dtype in table.keys.items())
    if len(texts) != len(table.keys):
        raise ConfigError(
            f"a key of this state has {counted(len(table.keys), 'column')}, and {len(texts)} given",
            where=f"its columns: {names}",
        )
    columns = []
    for (name, dtype), text in zip(table.keys.items(), texts, strict=True):
        try:
            columns.append(_series(name, dtype, text))
        except (PolarsError, ValueError) as error:
            raise ConfigError(f"{text!r} is not a valid {dtype}", where=f"the key's columns: {names}") from error
    return pl.DataFrame(columns)


def _series(name: str, dtype: pl.DataType, text: str | None) -> pl.Series:
    if dtype == pl.Boolean and text is not None:
        if text not in ("true", "false"):
            raise ValueError(text)
        return pl.Series(name, [text == "true"], dtype)
    if dtype == pl.Binary and text is not None:
        return pl.Series(name, [_bytes(text)], dtype)
    given = pl.Series(name, [text], pl.String)
    if isinstance(dtype, pl.Datetime):
        return _time(given, dtype)
    return given.str.to_date() if dtype == pl.Date else given.cast(dtype)


def _time(given: pl.Series, dtype: pl.Datetime) -> pl.Series:
    """Raises ValueError if a key of this type cannot have this time: it would be looked for as another one."""
    unit: Literal["ns", "us"] = "ns" if dtype.time_unit == "ns" else "us"
    fine = given.str.to_datetime(time_unit=unit, time_zone=dtype.time_zone)
    found = fine.dt.cast_time_unit(dtype.time_unit)
    if found.dtype != dtype or (found.dt.cast_time_unit(unit) != fine).any():
        raise ValueError(given)
    return found


def _bytes(text: str) -> bytes:
    """As text, or as `plain` shows bytes that are no text."""
    try:
        return _decode_bytes(text)["base64"]
    except (msgspec.DecodeError, KeyError):
        return text.encode()


# Made at import: two threads that decode a type for the first time can crash.
_decode_bytes = msgspec.json.Decoder(dict[Literal["base64"], bytes]).decode


def first_rows(state: TaskState, count: int) -> pl.DataFrame:
    """This many rows at most; 0: all."""
    pairs = state.scan()
    rows = state.table.frame(list(islice(pairs, count) if count else pairs))
    return rows.head(count) if count else rows
