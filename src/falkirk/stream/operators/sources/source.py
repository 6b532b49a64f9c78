"""The records of a topic, or of several, as rows: one contiguous frame in (partition, offset) order."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import ClassVar, Literal, TypeVar

import numpy as np
import polars as pl

from falkirk.errors import SourceError
from falkirk.stream.dataflow.batch import ORIGIN, TS, Batch
from falkirk.stream.dataflow.circuit import Slice
from falkirk.stream.dataflow.failures import Failed
from falkirk.stream.dataflow.metadata import metadata_column
from falkirk.stream.dataflow.operator import Operator, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import AHEAD
from falkirk.stream.definition.event_time import Lateness
from falkirk.stream.definition.pattern import Topics, in_words
from falkirk.stream.formats import Format, Key

logger = logging.getLogger(__name__)

T = TypeVar("T")

TOO_FAR_AHEAD = f"more than {AHEAD // 60_000} minutes after the step's clock"
"""The reason why a row fails whose time is in the future."""

_SECONDS_OF_NOW = range(1_000_000_000, 10_000_000_000)
"""Seconds since 1970 of the years 2001 to 2286. As milliseconds, they are days 12 to 116 of 1970."""

_NO_META = pl.DataFrame(schema={TS: pl.Int64(), ORIGIN: pl.UInt32()})


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Source(Operator):
    """The records of a topic, or of several, as rows."""

    kind: ClassVar[str] = "source"
    role: ClassVar[Literal["source", "operator", "sink"]] = "source"
    can_fail: ClassVar[bool] = True
    latest_per_key: ClassVar[bool] = False
    """Whether only the last record of each key counts."""
    topics: Topics
    key: Key | None
    value: Format
    start: str | int | Mapping[int, int]
    metadata: Mapping[str, str]
    """Metadata columns: name of the column → `key`, `headers`, `timestamp`…"""
    checked: bool
    """Whether a record's key must match its column. Not if an exchange sends each row to the task of its key."""
    time: str | None = None
    """The column of the value with the event time; None: the record's timestamp is the event time."""
    lateness: Lateness | None = None
    """How much later than others a row may come. None: the source has no watermark."""
    every: bool = False
    """Whether a change that is missing makes all that follows wrong: the rows are the sum of its records."""
    spread: bool = False
    """Whether its rows need no order, and rows of one key need not be in one task: its topics may get more partitions."""

    @property
    def topic(self) -> str:
        """Its name, if it is a single topic; otherwise readable text."""
        return in_words(self.topics)

    @property
    def watermarked(self) -> bool:
        return self.lateness is not None

    @property
    def own_columns(self) -> Set[str]:
        """The columns that it needs itself."""
        keys = self.key.columns if self.checked and self.key is not None else ()
        return {*keys, *filter(None, [self.time])}

    @property
    def value_columns(self) -> Sequence[str]:
        """The columns that come from values."""
        return list(self.schema)

    @property
    def exact_words(self) -> str:
        time = f", {self.time}" if self.time is not None else ""
        time += f", {self.lateness}" if self.lateness is not None else ""
        return f"{self.topic}, {self.key!r}, {self.value!r}, {self.start}, {dict(self.metadata)}{time}"

    def reader(self, value: Format) -> SourceReader:
        """Its decoder, with a format for the needed columns."""
        return SourceReader(self, value)

    def runner(self, task: TaskContext) -> Runner:
        raise NotImplementedError("a source is read, not run")


class SourceReader:
    """Decodes one source for one task."""

    def __init__(self, source: Source, value: Format) -> None:
        self.source, self.value = source, value

    def read(self, run: StepRun) -> Batch | None:
        """The rows of the source's slices. Records that do not decode become failures of the run."""
        slices = run.slices(self.source.id)
        if not slices:
            return None
        pieces = [s.records for _, s in slices]
        decoded = self.value.decode(joined([records.values for records in pieces]))
        rows, bad, dated = decoded.frame, decoded.bad, None
        if self.source.time is not None:
            rows, bad, dated = timed(rows, bad, self.source.time, run.step.clock)
            if len(dated) and dated[0] in _SECONDS_OF_NOW:
                warn_of_seconds(self.source)
        good = self._good(run, slices, bad)
        if good is not None and not good:
            self._split(run, slices, Batch(rows, _NO_META))
            return None
        times = pl.Series(TS, joined([records.times for records in pieces]), dtype=pl.Int64)
        numbers = np.concatenate([np.arange(start, start + len(s.records)) for start, s in slices])
        meta = [times, pl.Series(ORIGIN, numbers, dtype=pl.UInt32)]
        meta = meta if good is None else [column[good] for column in meta]
        if dated is not None:
            meta[0] = dated.alias(TS)
        for column, what in self.source.metadata.items():
            whole = pl.concat([metadata_column(what, s) for _, s in slices])
            rows = rows.with_columns((whole if good is None else whole[good]).alias(column))
        if self.source.checked:
            self._check_keys(slices, rows, good, len(numbers))
        return self._split(run, slices, Batch(rows, pl.DataFrame(meta)))

    def _split(self, run: StepRun, slices: list[tuple[int, Slice]], batch: Batch) -> Batch:
        """The rows that are not late; the late ones become the stream of late rows."""
        if self.source.lateness is None or run.event_time is None:
            return batch
        starts = [start for start, _ in slices]
        ends = np.searchsorted(batch.meta[ORIGIN].to_numpy(), [*starts[1:], np.iinfo(np.uint32).max]).tolist()
        dates = batch.meta[TS].to_numpy()
        kept, first = [], 0
        for (_, piece), end in zip(slices, ends, strict=True):
            kept.append(run.event_time.on_time(self.source.id, piece.topic, piece.partition, dates[first:end]))
            first = end
        on_time = pl.Series(np.concatenate(kept))
        if on_time.all():
            return batch
        run.late[self.source] = batch.filter(~on_time)
        return batch.filter(on_time)

    def _check_keys(
        self, slices: list[tuple[int, Slice]], rows: pl.DataFrame, good: list[int] | None, total: int
    ) -> None:
        """Check that the key of each slice's first record matches its column."""
        key = self.source.key
        assert key is not None
        firsts = _firsts(slices)
        places = firsts if good is None else np.searchsorted(good, firsts)
        for (_, piece), first, row in zip(slices, firsts.tolist(), places.tolist(), strict=True):
            index = row if good is None else (good[row] if row < len(good) else total)
            if not first <= index < first + len(piece.records):
                continue
            (spelt,) = key.encode(rows[row : row + 1])
            if (found := piece.records.keys[index - first]) != spelt:
                raise other_key(
                    self.source, found, spelt, piece.topic, piece.partition, piece.records.offsets[index - first]
                )

    def _good(self, run: StepRun, slices: list[tuple[int, Slice]], bad: Sequence[tuple[int, str]]) -> list[int] | None:
        """The indexes of the records that decode; None: all. Raises SourceError if a bad record must stop the app."""
        total = sum(len(s.records) for _, s in slices)
        firsts, failed = _firsts(slices), []
        for i, reason in bad:
            n = int(np.searchsorted(firsts, i, "right")) - 1
            start, piece = slices[n]
            at = i - int(firsts[n])
            failed.append(Failed(i, reason, start + at, piece.records.times[at]))
            if run.failures.stops(self.source):
                raise SourceError(
                    f"a record does not decode: {reason}",
                    where=f"{self.source.where}, {run.address(start + at)}",
                    hint="fix the producer; to continue without such records: on_error=fk.DeadLetter()",
                )
        run.failures.take(run, self.source, total, failed)
        if not bad:
            return None
        lost = {i for i, _ in bad}
        return [i for i in range(total) if i not in lost]


def other_key(
    source: Source, found: bytes | None, spelt: bytes | None, topic: str, partition: int, offset: int
) -> SourceError:
    """A record's key is not that of its column."""
    assert source.key is not None
    said = "the record has no key" if found is None else f"the record's key is {found!r}"
    hint = (
        "give repartition=True: then the records' keys do not count; on_error does not apply to them"
        if found is None
        else 'name the key\'s format, like fk.Key("id", fk.Int64BE); or, if the topic is keyed otherwise, give '
        "repartition=True"
    )
    return SourceError(
        f"{said}, but column {', '.join(source.key.columns)} encodes to {spelt!r}",
        where=f"source {source.id!r} ({source.line}), topic {topic}, partition {partition}, offset {offset}",
        hint=hint,
    )


@cache
def warn_of_seconds(source: Source) -> None:
    """Say once that the times of a source seem to be seconds. A window of an hour then has 41 days, and results are dated so
    long ago that their topic may delete them."""
    logger.warning(
        "column %r, the time of source %r (%s), has dates in January to April 1970: it seems to have seconds. To do: write "
        "milliseconds since 1970, or ISO 8601 for an fk.Datetime; or let the flow write them to another topic, and read that",
        source.time,
        source.id,
        source.line,
    )


def timed(
    rows: pl.DataFrame, bad: Sequence[tuple[int, str]], column: str, clock: int
) -> tuple[pl.DataFrame, list[tuple[int, str]], pl.Series]:
    """The rows with a valid event time, and these times in milliseconds. Also the `bad` records, with the records of the
    other rows.

        0 < time ≤ clock + AHEAD        for the client, 0 means now; brokers reject timestamps far in the future
    """
    given = rows[column]
    millis = millis_of(given)
    # To find the ends takes a small part of the time of a mask of all rows.
    first, last = millis.min(), millis.max()
    if not len(millis) or (not millis.null_count() and first >= 1 and last <= clock + AHEAD):  # type: ignore[operator]
        return rows, list(bad), millis
    fits = millis.is_between(1, clock + AHEAD).fill_null(value=False)
    lost = {i for i, _ in bad}
    numbers = [i for i in range(len(given) + len(lost)) if i not in lost]
    late = [(numbers[i], _misdated(column, given[i], millis[i])) for i in (~fits).arg_true()]
    return rows.filter(fits), sorted([*bad, *late]), millis.filter(fits)


def millis_of(column: pl.Series) -> pl.Series:
    """Times, or milliseconds, as milliseconds since 1970."""
    return column.dt.timestamp("ms") if column.dtype.is_temporal() else column.cast(pl.Int64, strict=False)


def _misdated(column: str, value: object, millis: int | None) -> str:
    if value is None:
        return f"column {column!r}, its time, is null"
    far = TOO_FAR_AHEAD if millis is None or millis > 0 else "before 1970-01-01 00:00:00.001"
    return f"column {column!r}, its time, is {value}: {far}"


def _firsts(slices: list[tuple[int, Slice]]) -> np.ndarray:
    """The number of each slice's first record, among those of these slices."""
    return np.cumsum([0, *[len(s.records) for _, s in slices[:-1]]])


def joined(columns: list[list[T]]) -> list[T]:
    """One after the other."""
    return columns[0] if len(columns) == 1 else list(chain.from_iterable(columns))
