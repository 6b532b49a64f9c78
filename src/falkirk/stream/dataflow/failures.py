"""The handling of records and rows that fail while a step runs. Dead letters are part of the step's transaction.

A dead letter is JSON. For a record that does not decode, and for a row with a known record:

    app, stage, source · topic, partition, offset, timestamp · reason · key, payload (base64)
    operator                                                      if a function failed

For a row that came over an edge, and for a group or a timer, `row` is the operator's input, and there is no payload.

A dead letter is part of a step's output: if the step runs again, it must give the same bytes. So a dead letter never contains
a line number of code or a memory address.
"""

from __future__ import annotations

import base64
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import polars as pl

from falkirk.errors import SourceError, UserCodeError
from falkirk.stream.dataflow.batch import ORIGIN, TS, Batch
from falkirk.stream.dataflow.circuit import Emitted, Slice
from falkirk.stream.dataflow.handling import ERRORS, Handling, letter_output
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Accepts

WINDOW = 10_000
"""`stop_above` is a share of this number of records or rows."""

_LONGEST = 500
"""Characters of a reason: the dead letter must fit into its topic."""
_ENCODER = msgspec.json.Encoder(enc_hook=repr)


class Failed(NamedTuple):
    """A record or a row that failed."""

    place: int
    """The index in the operator's input."""
    reason: str
    origin: int | None
    """The number of its record in the step, if it comes from one record."""
    time: int
    row: Mapping[str, Any] | str | None = None
    """The operator's input, if it is not a record; or why it is not kept."""


class Failures:
    """The handling of failures in one task."""

    def __init__(
        self,
        app: str,
        stage: str,
        handled: Mapping[Operator, Handling],
        partitions: Mapping[str, int],
        *,
        dead_letters: str = "",
        dead_letters_from: Mapping[tuple[str, int], int] | None = None,
        shares: bool = True,
        accepts: Mapping[str, Accepts] = MappingProxyType({}),
    ) -> None:
        """`dead_letters_from`, by topic and partition: undecodable records below this offset already have dead letters.
        If not `shares`, any number may fail. `accepts`: which records the topics accept."""
        self.app, self.stage, self.handled, self.partitions = app, stage, handled, partitions
        self.dead_letters, self.dead_letters_from = dead_letters, dead_letters_from or {}
        self.sources = {o.id for o in handled if o.role == "source"}
        self.shares, self.accepts = shares, accepts
        self.rewind()

    def rewind(self) -> None:
        """Forget the recent failures: the task may read their records again."""
        limits = {o: h.share for o, h in self.handled.items() if h.share is not None and self.shares}
        self.windows = {o: Window(share) for o, share in limits.items()}

    def stops(self, operator: Operator) -> bool:
        """Whether any failure of an operator stops the app."""
        handling = self.handled.get(operator)
        return handling is None or handling.stops

    def take(self, run: StepRun, operator: Operator, given: int, failed: Sequence[Failed]) -> None:
        """Part of the operator's input (`given`) failed; failures are in the order of places. Raises UserCodeError or
        SourceError if this must stop the app."""
        handling = self.handled[operator]
        if (window := self.windows.get(operator)) is not None:
            self._watch(run, operator, window, given, failed)
        if not failed:
            return
        if handling.letters is not None:
            self._bury(run, operator, handling.letters, failed)
        if handling.errors:
            run.errors[operator] = self._errors(run, operator, failed)
        if handling.letters is None and not handling.errors:
            run.skipped += len(failed)

    def known(self, run: StepRun, origin: int | None) -> tuple[Slice, int] | None:
        """The source record with this number, and its place in its slice."""
        found = None if origin is None else run.record(origin)
        return found if found is not None and found[0].input in self.sources else None

    def _watch(self, run: StepRun, operator: Operator, window: Window, given: int, failed: Sequence[Failed]) -> None:
        bad, of = window.take(given, [f.place for f in failed])
        if not bad:
            return
        reasons = [reason for reason, _ in Counter(f.reason for f in failed).most_common(3)]
        address = next((a for f in failed if f.origin is not None and (a := run.address(f.origin))), "")
        kind = SourceError if operator.role == "source" else UserCodeError
        raise kind(
            f"{bad:,} of the last {of:,} failed, and stop_above= allows {window.most:,} of {WINDOW:,}; "
            f"for instance: {'; '.join(reasons)}",
            where=", ".join(filter(None, [operator.where, address])),
            hint="nothing of this step is committed: fix the producer or the code and start again; or raise stop_above=",
        )

    def _bury(self, run: StepRun, operator: Operator, topic: str, failed: Sequence[Failed]) -> None:
        out = Emitted(letter_output(topic, self.dead_letters), topic, [], [], [], [])
        count, accepts = self.partitions.get(topic, 1), self.accepts.get(topic)
        dates = None if accepts is None else accepts.dates(run.step.clock)
        partitions, keys, values, times = [], [], [], []
        for f in failed:
            record = self.known(run, f.origin)
            if record is None:
                partition, key = 0, None
            else:
                piece, at = record
                before = self.dead_letters_from.get((piece.topic, piece.partition), 0)
                # A function's failures depend on its code, which may have changed: they get a dead letter each time.
                if operator.role == "source" and piece.records.offsets[at] < before:
                    continue
                partition, key = piece.partition % count, piece.records.keys[at]
            letter = _ENCODER.encode(self._letter(run, operator, f, record))
            if accepts is not None and not accepts.fits([key], [letter]) and f.row is not None:
                shorter = f._replace(row=f"a row of {len(letter):,} bytes: too large for a dead letter")
                letter = _ENCODER.encode(self._letter(run, operator, shorter, record))
            partitions.append(partition)
            keys.append(key)
            values.append(letter)
            times.append(f.time if dates is None else min(max(f.time, dates[0]), dates[1]))
        if values:
            out.partitions, out.keys, out.values, out.timestamps = partitions, keys, values, times
            run.bury(out)

    def _letter(
        self, run: StepRun, operator: Operator, failed: Failed, record: tuple[Slice, int] | None
    ) -> dict[str, Any]:
        piece, at = record or run.record(failed.origin) or (None, 0)
        letter: dict[str, Any] = {
            "app": self.app,
            "stage": self.stage,
            "source": piece.input if record is not None and piece is not None else None,
            "topic": piece.topic if piece is not None else None,
            "partition": piece.partition if piece is not None else None,
            "offset": piece.records.offsets[at] if piece is not None else None,
            "timestamp": failed.time,
            "reason": failed.reason,
            "key": None if record is None else _base64(record[0].records.keys[at]),
            "payload": None if record is None else _base64(record[0].records.values[at]),
        }
        if operator.role != "source":
            letter["operator"] = f"{operator.kind} {operator.id}"
        if record is None:
            letter["row"] = failed.row
        return letter

    def _errors(self, run: StepRun, operator: Operator, failed: Sequence[Failed]) -> Batch:
        rows = []
        for f in failed:
            record = self.known(run, f.origin)
            piece, at = record or run.record(f.origin) or (None, 0)
            rows.append(
                (
                    f"{operator.kind} {operator.id}",
                    f.reason,
                    *((piece.topic, piece.partition, piece.records.offsets[at]) if piece is not None else [None] * 3),
                    f.time,
                    *((record[0].records.keys[at], record[0].records.values[at]) if record is not None else [None] * 2),
                    None if record is not None else _ENCODER.encode(f.row).decode(),
                )
            )
        columns = zip(*rows, strict=True)
        frame = pl.DataFrame(
            [_column(name, values, dtype) for (name, dtype), values in zip(ERRORS.items(), columns, strict=True)]
        )
        meta = {
            TS: pl.Series([f.time for f in failed], dtype=pl.Int64),
            ORIGIN: pl.Series([f.origin for f in failed], dtype=pl.UInt32),
        }
        return Batch(frame, pl.DataFrame(meta))


class Window:
    """Counts the failures among the last records or rows.

    bad(i) = failures among i − WINDOW < j ≤ i;  too many  ⇔  bad(i) > most = ⌊share · WINDOW⌋ at any failure i

    The count does not depend on the division into steps. A window that has forgotten earlier failures counts at most as many
    as a window that remembers them. So a step that runs again does not stop if its first run did not stop.

    >>> window = Window(0.0002)
    >>> window.take(5_000, [0, 4_999]), window.take(5_002, [5_001]), window.take(9, [0])
    ((0, 0), (0, 0), (3, 10000))
    """

    def __init__(self, share: float) -> None:
        self.most = int(round(share * WINDOW, 6))
        self.seen = 0
        self.bad: deque[int] = deque()

    def take(self, given: int, places: Sequence[int]) -> tuple[int, int]:
        """Count the next rows and their failures. Returns failures and rows if there are too many failures, else zeros."""
        for place in places:
            at = self.seen + place
            self.bad.append(at)
            while self.bad[0] <= at - WINDOW:
                self.bad.popleft()
            if len(self.bad) > self.most:
                return len(self.bad), min(at + 1, WINDOW)
        self.seen += given
        return 0, 0


def worded(reason: str) -> str:
    """A short reason that is the same in every process.

    >>> worded("bad operand type: <object object at 0x7f3a5c1e4d50>")
    'bad operand type: <object object at 0x…>'
    """
    same = re.sub(r"0x[0-9a-fA-F]{6,}", "0x…", reason)
    return same if len(same) <= _LONGEST else f"{same[: _LONGEST - 1]}…"


def _column(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.Datetime):
        return pl.Series(name, values, dtype=pl.Int64).cast(dtype)
    return pl.Series(name, values, dtype=dtype)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
