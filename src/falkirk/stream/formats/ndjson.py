"""Reading a batch of JSON objects at once, so that each record's outcome depends on that record alone.

    good(a + b) = good(a) + good(b)         bad(a + b) = bad(a) + shifted bad(b)

Polars reads lines, a core's fastest way by far, but one bad line fails the batch, and some records could change what
others become: an empty one vanishes, one with newlines becomes several, a first one that starts like a compressed file
is unpacked. `_rows` takes such a batch only in a form in which line i is record i, or refuses it; a refused batch is
cut until the reader has judged the bad records by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson
import polars as pl

from falkirk.stream.formats import fields, reasons
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


def read(values: Sequence[bytes | None], schema: Mapping[str, pl.DataType]) -> Decoded:
    """The records as rows of one contiguous frame, and the bad ones with their reasons.

    >>> read([b'{"a": 1}', b'{"a": "x"}', None], {"a": pl.Int64()}).bad
    [(1, "field 'a': cannot read 'x' as Int64"), (2, 'null value')]
    """
    bad: dict[int, str] = {}
    try:
        rows = _rows(values, schema)
    except _Refused:
        rows = _good_rows(values, schema, bad)
    frame = rows.frame.with_columns(
        fields.converted(pl.col(name), dtype).alias(name)
        for name, dtype in schema.items()
        if fields.as_read(dtype) != dtype
    )
    good = [i for i in range(len(values)) if i not in bad] if bad else range(len(values))
    flaws: dict[int, str] = {}
    for row, name in _lost(rows.frame, frame, schema):
        read = rows.frame[name].slice(row, 1).to_list()[0]
        reason = reasons.certain(values[good[row]], schema) or reasons.unreadable(name, read, schema[name])
        flaws.setdefault(row, reason)
    for row in _doubtful(rows, schema):
        if certain := reasons.certain(values[good[row]], schema):
            flaws.setdefault(row, certain)
    if flaws:
        bad.update((good[row], reason) for row, reason in flaws.items())
        frame = frame.filter(pl.Series([row not in flaws for row in range(frame.height)], dtype=pl.Boolean))
    return Decoded(frame.rechunk(), sorted(bad.items()))


def _rows(values: Sequence[bytes | None], schema: Mapping[str, pl.DataType]) -> _Rows:
    """Row i is record i, for all records; or _Refused."""
    columns = {name: fields.as_read(dtype) for name, dtype in schema.items()}
    if not values:
        return _Rows(pl.DataFrame(schema=columns), flat=True)
    try:
        # The empty first line keeps Polars from unpacking a batch whose first record starts like a gzip file.
        lines = b"\n".join((b"", *values))  # type: ignore[arg-type]
    except TypeError:
        raise _Refused("null value") from None
    if lines.count(b"\n") != len(values):
        # Within JSON a carriage return stands wherever a newline may, and nowhere else.
        lines = b"\n".join((b"", *(v.replace(b"\n", b"\r") for v in values if v is not None)))
    if b"\\" in lines:
        _refuse_lone_surrogates(values, lines)
    try:
        frame = pl.read_ndjson(lines, schema=columns)
    except _READ_FAILED as error:
        raise _Refused(str(error).partition("\n")[0]) from None
    if frame.height != len(values):
        raise _Refused("empty")
    return _Rows(frame, flat=b"[" not in lines and lines.count(b"{") == len(values))


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


def _good_rows(values: Sequence[bytes | None], schema: Mapping[str, pl.DataType], bad: dict[int, str]) -> _Rows:
    """The rows of the good records; the others and their reasons are put into `bad`."""
    found: list[_Rows] = [_rows([], schema)]
    parts = [list(range(len(values)))]
    while parts:
        part = parts.pop()
        try:
            found.append(_rows([values[i] for i in part], schema))
        except _Refused as refused:
            known = {i: why for i in part if (why := reasons.certain(values[i], schema))} if len(part) <= _FEW else {}
            if known:
                bad |= known
                parts.append([i for i in part if i not in known])
            elif len(part) == 1:
                bad[part[0]] = reasons.not_json(values[part[0]] or b"", str(refused))
            else:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
    return _Rows(pl.concat([rows.frame for rows in found]), flat=all(rows.flat for rows in found))


def _lost(before: pl.DataFrame, after: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> list[tuple[int, str]]:
    """(row, column) wherever the reader found something that is no value of the column's type."""
    lost: list[tuple[int, str]] = []
    for name, dtype in schema.items():
        read = fields.as_read(dtype)
        if read == dtype or (not dtype.is_nested() and before[name].null_count() == after[name].null_count()):
            continue
        both = pl.DataFrame({"before": before[name], "after": after[name]})
        mask = both.select(fields.present(pl.col("before"), read) != fields.present(pl.col("after"), dtype))
        lost += [(row, name) for row in mask.to_series().arg_true()]
    return lost


def _doubtful(rows: _Rows, schema: Mapping[str, pl.DataType]) -> pl.Series:
    """Rows with text that the reader may have made from something that is no text."""
    kinds = (pl.Binary(),) if rows.flat else (pl.Binary(), pl.String())
    doubts = [fields.doubtful(pl.col(name), dtype) for name, dtype in schema.items() if fields.holds(dtype, *kinds)]
    return rows.frame.select(pl.any_horizontal(doubts)).to_series().arg_true() if doubts else pl.Series([])
