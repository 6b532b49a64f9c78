"""The rows of a sink that writes the last row of each key, if nothing known says that a key has one row at a time.

    step 1   +a       the sink has a
    step 2   +b       b has the same key: the sink has b
    step 3   −b       without a memory of a, the key would be gone

So the rows of each key are kept in state, as by `top_k`: the greatest is written, and the next one when that is taken back.
This does not depend on the order in which rows come, nor on how they are cut into steps.

A row that is taken back and never came is one from before the sink was there. It passes, if its key has no other row. (Not if
the key has all columns: then rows are counted, as by `unique`.)

The key is trusted in three cases. The user says that it identifies the rows: `assume_unique`. What a function of the user
makes of a row may differ when the row is taken back: such rows cannot be counted, but their key can be written again. And the
rows of an operator that forgets them, as a join in event time does, would be here for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import narwhals as nw

from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.definition.keys import columns_of
from falkirk.stream.flow.tops import top_k
from falkirk.stream.formats.rows import RowT_co
from falkirk.stream.operators.groups.unique import unique

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream


def assume_unique(before: op.Operator, line: str, *columns: str) -> op.Operator:
    """Say what Falkirk cannot know: no two rows that are there at the same time have the same values in these columns. A sink
    by a key that contains them then needs no state (docs/operators/sinks.md).

    This is not checked, except among the rows of one step: two rows of one key there stop the app. Raises DefinitionError for
    columns that do not exist or that cannot be a key.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> orders = flow.source("orders", value=fk.Json({"order": int, "zip": str}))
    >>> places = flow.source("places", value=fk.Json({"zip": str, "city": str}))
    >>> rows = orders.join(places, on="zip", how="left").assume_unique("order")
    >>> rows.sink("placed", key=["zip", "order"], value=fk.Json())
    >>> app = fk.testing.run(flow, {"orders": [{"order": 1, "zip": "a"}], "places": [{"zip": "a", "city": "Bo'ness"}]})
    >>> app.sinks["placed"].rows
    [{'order': 1, 'zip': 'a', 'city': "Bo'ness"}]
    """
    known = frozenset(columns_of(columns, before.schema, f"assume_unique ({line})"))
    kind: type[op.Select] = op.AssumeUnique
    if before.unique is not None and before.unique <= known:  # there is nothing to assume
        known, kind = before.unique, op.Select
    return kind(
        id=kind.kind, line=line, inputs=(before,), schema=before.schema, changes=before.changes, unique=known,
        partitioned=before.partitioned, root=before.root, regime=before.regime, time=before.time,
        exprs=tuple(map(nw.col, before.schema)),
    )  # fmt: skip


def identified(stream: Stream[RowT_co], key: Sequence[str], sink: str, line: str) -> Stream[RowT_co]:
    """The stream, with one row for each key at most. (A batch part has all rows of an epoch at once, and its sink checks
    them.) Raises DefinitionError if state cannot hold the rows."""
    before = stream._op
    if not before.changes or before.unique is not None or before.batch or _is_trusted(before):
        return stream
    name, columns = f"{sink}.rows", tuple(c for c in before.schema if c in key)
    others = [c for c in before.schema if c not in key]
    made: op.Operator
    try:
        if others:
            top = top_k(before, line, columns, 1, others, False, None, False, name, 1)
            made = replace(top, lenient=True)
        else:
            made = unique(before, line, id=name)
    except DefinitionError as error:
        raise DefinitionError(
            f"nothing known says that a key has one row at a time, so the rows of each key are kept; but {error.what}",
            where=f"sink {sink!r} ({line}), {error.where.partition(' of ')[0]}",
            hint=f"{error.hint}; or write a grouped result by the columns that it is grouped by",
        ) from error
    return type(stream)(stream._graph, stream._graph.add(made, exchange=made.root != before.root))


def _is_trusted(operator: op.Operator) -> bool:
    """Whether a function of the user has made the rows, or an operator that forgets them."""
    if isinstance(operator, op.Map | op.FlatMap | op.MapBatches) or operator.forgets:
        return True
    return operator.row_wise and any(map(_is_trusted, operator.inputs))
