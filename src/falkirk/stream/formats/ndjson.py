"""Reading a batch of JSON objects at once, so that each record's outcome depends on that record alone.

    good(a + b) = good(a) + good(b)         bad(a + b) = bad(a) + shifted bad(b)

Polars reads lines, a core's fastest way by far, but one bad line fails the batch, and some records could change what
others become: an empty one vanishes, one with newlines becomes several, a first one that starts like a compressed file
is unpacked. `_rows` takes such a batch only in a form in which line i is record i, or refuses it; a refused batch is
cut until the reader has judged the bad records by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import orjson
import polars as pl

from falkirk.stream.formats import fields, reasons
from falkirk.stream.formats.base import Decoded

_READ_FAILED = (pl.exceptions.ComputeError, pl.exceptions.SchemaError)


class _Refused(Exception):
    """Some record of the batch is bad."""


def read(values: Sequence[bytes | None], schema: Mapping[str, pl.DataType]) -> Decoded:
    """The records as rows of one contiguous frame, and the bad ones with their reasons.

    >>> read([b'{"a": 1}', b'{"a": "x"}', None], {"a": pl.Int64()}).bad
    [(1, "field 'a': cannot read 'x' as Int64"), (2, 'null value')]
    """
    columns = {name: fields.as_read(dtype) for name, dtype in schema.items()}
    bad: dict[int, str] = {}
    try:
        frame = _rows(values, columns)
    except _Refused:
        frame = _good_rows(values, schema, columns, bad)
    if unsure := {name: dtype for name, dtype in schema.items() if fields.to_check(dtype)}:
        good = [i for i in range(len(values)) if i not in bad] if bad else range(len(values))
        flaws = _flaws(frame, unsure, schema, values, good)
        if flaws:
            bad.update((good[row], reason) for row, reason in flaws.items())
            keep = pl.Series([row not in flaws for row in range(frame.height)], dtype=pl.Boolean)
            frame = frame.filter(keep)
        frame = frame.with_columns(fields.converted(pl.col(n), t).alias(n) for n, t in unsure.items())
    return Decoded(frame.rechunk(), sorted(bad.items()))


def _rows(values: Sequence[bytes | None], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Row i is record i, for all records; or _Refused."""
    if not values:
        return pl.DataFrame(schema=columns)
    try:
        # The empty first line keeps Polars from unpacking a batch whose first record starts like a gzip file.
        lines = b"\n".join((b"", *values))  # type: ignore[arg-type]
    except TypeError:
        raise _Refused("null value") from None
    if lines.count(b"\n") != len(values):
        # Within JSON a carriage return stands wherever a newline may, and nowhere else.
        lines = b"\n".join((b"", *(v.replace(b"\n", b"\r") for v in values if v is not None)))
    if b"\\ud" in lines or b"\\uD" in lines:
        _refuse_lone_surrogates(values)
    try:
        frame = pl.read_ndjson(lines, schema=columns)
    except _READ_FAILED as error:
        raise _Refused(str(error).partition("\n")[0]) from None
    if frame.height != len(values):
        raise _Refused("empty")
    return frame


def _refuse_lone_surrogates(values: Iterable[bytes | None]) -> None:
    """Polars reads an escaped half of a surrogate pair as U+0000: text that nobody wrote."""
    for value in values:
        if value is not None and (b"\\ud" in value or b"\\uD" in value):
            try:
                orjson.loads(value)
            except orjson.JSONDecodeError as error:
                raise _Refused(str(error)) from None


def _good_rows(
    values: Sequence[bytes | None],
    schema: Mapping[str, pl.DataType],
    columns: Mapping[str, pl.DataType],
    bad: dict[int, str],
) -> pl.DataFrame:
    """The rows of the good records; the others and their reasons are put into `bad`.

    Records that are certainly bad are set aside first, at a few microseconds each, for a batch of nothing else must not
    take a read apiece (0.2 ms).
    """
    for i, value in enumerate(values):
        if reason := reasons.certain(value, schema):
            bad[i] = reason
    frames = [pl.DataFrame(schema=columns)]
    parts = [[i for i in range(len(values)) if i not in bad]]
    while parts:
        part = parts.pop()
        try:
            frames.append(_rows([values[i] for i in part], columns))
        except _Refused as refused:
            if len(part) == 1:
                bad[part[0]] = reasons.not_json(values[part[0]] or b"", str(refused))
            else:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
    return pl.concat(frames)


def _flaws(
    frame: pl.DataFrame,
    unsure: Mapping[str, pl.DataType],
    schema: Mapping[str, pl.DataType],
    values: Sequence[bytes | None],
    good: Sequence[int],
) -> dict[int, str]:
    """Rows that the reader took although a value is not of its column's type, and why."""
    flaws: dict[int, str] = {}
    lost = frame.select(fields.lost(pl.col(n), t).alias(n) for n, t in unsure.items())
    for name, dtype in unsure.items():
        for row in lost[name].arg_true():
            certain = reasons.certain(values[good[row]], schema)
            read = frame[name].slice(row, 1).to_list()[0]
            flaws.setdefault(row, certain or reasons.unreadable(name, read, dtype))
    doubtful = frame.select(pl.any_horizontal(fields.doubtful(pl.col(n), t) for n, t in unsure.items())).to_series()
    for row in doubtful.arg_true():
        if certain := reasons.certain(values[good[row]], schema):
            flaws.setdefault(row, certain)
    return flaws
