"""Reading a batch of JSON objects at once, so that each record's outcome depends on that record alone.

    good(a + b) = good(a) + good(b)         bad(a + b) = bad(a) + shifted bad(b)

Polars reads lines, a core's fastest way by far, but one bad line fails the batch, and some records could change what
others become: an empty one vanishes, one with newlines becomes several, a first one that starts like a compressed file
is unpacked. `_batch` takes such a batch only in a form in which line i is record i, or refuses it; a refused batch is
cut until the reader has judged the bad records by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import polars as pl

from falkirk.stream.formats import few, fields, reasons
from falkirk.stream.formats.base import Decoded

_READ_FAILED = (pl.exceptions.ComputeError, pl.exceptions.SchemaError)
_FEW = 64
"""A refused part of so many records is looked through one by one: dearer for each, but a read takes 0.2 ms at least."""


class _Refused(Exception):
    """Some record of the batch is bad."""


@dataclass(frozen=True, slots=True)
class _Rows:
    frame: pl.DataFrame
    flat: bool
    """No record holds an object or a list, so that no text in the frame was made from one."""


class Reader:
    """Reads objects of one schema.

    >>> Reader({"a": pl.Int64()}).read([b'{"a": 1}', b'{"a": "x"}', None]).bad
    [(1, "field 'a': cannot read 'x' as Int64"), (2, 'null value')]
    """

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self.schema = schema
        self.columns = {name: fields.as_read(dtype) for name, dtype in schema.items()}
        self.few = few.readable(self.columns)
        self.converted = {
            name: fields.converted(pl.col(name), dtype).alias(name)
            for name, dtype in schema.items()
            if self.columns[name] != dtype
        }
        self.texts = any(fields.holds(dtype, pl.Binary(), pl.Decimal, pl.String()) for dtype in schema.values())

    def read(self, values: Sequence[bytes | None]) -> Decoded:
        """The records as rows of one contiguous frame, and the bad ones with their reasons."""
        schema, bad = self.schema, dict[int, str]()
        try:
            rows = self._rows(values)
        except _Refused:
            rows = self._good_rows(values, bad)
        frame = rows.frame.with_columns(self.converted.values()) if self.converted else rows.frame
        good = [i for i in range(len(values)) if i not in bad] if bad else range(len(values))
        flaws: dict[int, str] = {}
        for row, name in self._lost(rows.frame, frame):
            read = rows.frame[name].slice(row, 1).to_list()[0]
            reason = reasons.certain(values[good[row]], schema) or reasons.unreadable(name, read, schema[name])
            flaws.setdefault(row, reason)
        for row in self._doubtful(rows):
            if certain := reasons.certain(values[good[row]], schema):
                flaws.setdefault(row, certain)
        if flaws:
            bad.update((good[row], reason) for row, reason in flaws.items())
            frame = frame.filter(pl.Series([row not in flaws for row in range(frame.height)], dtype=pl.Boolean))
        # Even a frame of one chunk costs a query to rechunk.
        return Decoded(frame if set(frame.n_chunks("all")) <= {1} else frame.rechunk(), sorted(bad.items()))

    def _rows(self, values: Sequence[bytes | None]) -> _Rows:
        """Row i is record i, for all records; or _Refused."""
        if not values:
            return _Rows(pl.DataFrame(schema=self.columns), flat=True)
        if self.few and len(values) <= few.ROWS and (frame := few.read(values, self.columns)) is not None:
            return _Rows(frame, flat=True)
        return self._batch(values)

    def _batch(self, values: Sequence[bytes | None]) -> _Rows:
        try:
            # The empty first line keeps Polars from unpacking a batch whose first record starts like a gzip file.
            lines = b"\n" + b"\n".join(values)  # type: ignore[arg-type]
        except TypeError:
            raise _Refused("null value") from None
        if _count(lines, b"\n") != len(values):
            # Within JSON a carriage return stands wherever a newline may, and nowhere else.
            lines = b"\n" + b"\n".join(v.replace(b"\n", b"\r") for v in values if v is not None)
        if b"\\" in lines:
            _refuse_lone_surrogates(values, lines)
        try:
            frame = pl.read_ndjson(lines, schema=self.columns)
        except _READ_FAILED as error:
            raise _Refused(str(error).partition("\n")[0]) from None
        if frame.height != len(values):
            raise _Refused("empty")
        return _Rows(frame, flat=not self.texts or (b"[" not in lines and _count(lines, b"{") == len(values)))

    def _good_rows(self, values: Sequence[bytes | None], bad: dict[int, str]) -> _Rows:
        """The rows of the good records; the others and their reasons are put into `bad`."""
        found: list[_Rows] = [self._rows([])]
        parts = [list(range(len(values)))]
        while parts:
            part = parts.pop()
            try:
                found.append(self._rows([values[i] for i in part]))
            except _Refused as refused:
                known = (
                    {i: why for i in part if (why := reasons.certain(values[i], self.schema))}
                    if len(part) <= _FEW
                    else {}
                )
                if known:
                    bad |= known
                    parts.append([i for i in part if i not in known])
                elif len(part) == 1:
                    bad[part[0]] = reasons.not_json(values[part[0]] or b"", str(refused))
                else:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
        return _Rows(pl.concat([rows.frame for rows in found]), flat=all(rows.flat for rows in found))

    def _lost(self, before: pl.DataFrame, after: pl.DataFrame) -> list[tuple[int, str]]:
        """(row, column) wherever the reader found something that is not a value of the column's type."""
        lost: list[tuple[int, str]] = []
        for name in self.converted:
            read, dtype = self.columns[name], self.schema[name]
            if not dtype.is_nested() and before[name].null_count() == after[name].null_count():
                continue
            both = pl.DataFrame({"before": before[name], "after": after[name]})
            mask = both.select(fields.present(pl.col("before"), read) != fields.present(pl.col("after"), dtype))
            lost += [(row, name) for row in mask.to_series().arg_true()]
        return lost

    def _doubtful(self, rows: _Rows) -> Sequence[int]:
        """Rows with text that the reader may have made from something that is no text."""
        kinds = (pl.Binary(), pl.Decimal) if rows.flat else (pl.Binary(), pl.Decimal, pl.String())
        doubts = [
            fields.doubtful(pl.col(name), dtype) for name, dtype in self.schema.items() if fields.holds(dtype, *kinds)
        ]
        return rows.frame.select(pl.any_horizontal(doubts)).to_series().arg_true().to_list() if doubts else ()


def _count(lines: bytes, byte: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(lines, np.uint8) == byte[0]))


def _refuse_lone_surrogates(values: Iterable[bytes | None], lines: bytes) -> None:
    """Polars reads an escaped half of a surrogate pair as U+0000: text that nobody wrote."""
    for half in (b"\\ud", b"\\uD"):
        if half in lines:
            for value in values:
                if value is not None and half in value:
                    try:
                        orjson.loads(value)
                    except orjson.JSONDecodeError as error:
                        raise _Refused(str(error)) from None
