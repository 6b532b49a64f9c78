"""The records of requests, made of several requests in one call. It does no input or output.

one row        the record as it is, if it fits the format of the flow
`reduce=`      a record with the rows that are left, if there are any
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from falkirk.connectors.http.messages import Reply, refused
from falkirk.runtime.gateway.desk import ToAppend
from falkirk.runtime.gateway.metrics import ReducedRows
from falkirk.stream.formats import Json
from falkirk.stream.operators.sources.reduction import Misfit, Reduction, Request

Recording: TypeAlias = Callable[[Sequence[ToAppend]], Sequence[bytes | Reply | None]]
"""Gives for each request its record, or why there can be none; None: no row is left, and nothing is to be appended."""


def as_they_are(value: Json) -> Recording:
    """For requests of one row. `value`: the format of records.

    >>> record, wrong = b'{"usd":1}', b'{"usd":"1"}'
    >>> made = as_they_are(Json({"usd": int}))([ToAppend("a", record), ToAppend("b", wrong)])
    >>> made[0], made[1].status
    (b'{"usd":1}', 400)
    """

    def records(asked: Sequence[ToAppend]) -> list[bytes | Reply | None]:
        bad = dict(value.decode([one.value for one in asked]).bad)
        return [
            one.value if (why := bad.get(i)) is None else refused(400, f"the body does not fit: {why}")
            for i, one in enumerate(asked)
        ]

    return records


def reduced_by(reduction: Reduction, source: str, rows: ReducedRows) -> Recording:
    """For requests of many rows. `rows`: counts them, for this source."""

    def records(asked: Sequence[ToAppend]) -> list[bytes | Reply | None]:
        found = reduction.reduced([Request(one.key, one.digest, one.rows) for one in asked])
        taken = [(one, made) for one, made in zip(asked, found, strict=True) if not isinstance(made, Misfit)]
        rows.received[source] += sum(len(one.rows) for one, _ in taken)
        rows.logged[source] += sum(made.rows for _, made in taken)
        return [_refused(made) if isinstance(made, Misfit) else made.value for made in found]

    return records


def _refused(why: Misfit) -> Reply:
    return refused(400, f"the body does not fit: row {why.row}: {why.reason}", hint="the first row is row 0")
