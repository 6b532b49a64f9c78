"""The rows of several streams as one, and the set operations of SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw

from falkirk.blame import user_line
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.aggregates.builtin import sum_
from falkirk.stream.definition.names import default_id
from falkirk.stream.flow.rowwise import RowWise
from falkirk.stream.formats.rows import RowT_co
from falkirk.stream.formats.types import described

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream


class Combining(RowWise[RowT_co]):
    """The methods of `Stream` that take other streams with the same columns."""

    def concat(self, *others: Stream, id: str | None = None) -> Stream[RowT_co]:  # noqa: A002
        """The rows of this stream and of others with the same columns, in the same order and with the same types.

        `id` names the operator. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> shop = flow.source("shop", value=fk.Json({"id": int}))
        >>> web = flow.source("web", value=fk.Json({"id": int}))
        >>> shop.concat(web).sink("orders", value=fk.Json())
        >>> fk.testing.run(flow, {"shop": [{"id": 1}], "web": [{"id": 2}]}).sinks["orders"].rows
        [{'id': 1}, {'id': 2}]
        """
        from falkirk.stream.flow.streams import Stream

        line = user_line()
        for other in others:
            self._check_like(other, f"concat ({line})")
        inputs = [self._op, *[other._op for other in others]]
        together = len({i.root for i in inputs}) == 1
        keys = {repr(i.partitioned) for i in inputs}
        name = id or default_id("concat", *dict.fromkeys(i.id for i in inputs))
        concat = op.Concat(
            id=name, line=line, inputs=tuple(inputs), schema=self.schema, changes=any(i.changes for i in inputs),
            partitioned=inputs[0].partitioned if together and len(keys) == 1 else None,
            root=self._op.root if together else name, regime=self._op.regime,
            time=self._op.time if len({i.time for i in inputs}) == 1 else None,
        )  # fmt: skip
        return Stream(self._graph, self._graph.add(concat, exchange=not together))

    def union(self, other: Stream, *, id: str | None = None) -> Stream[RowT_co]:  # noqa: A002
        """The rows of either stream, each once, as `union` in SQL. `concat` gives them as often as they come.

        Both have the same columns. `id` names the state: a count for each row. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> shop = flow.source("shop", value=fk.Json({"user": int}))
        >>> web = flow.source("web", value=fk.Json({"user": int}))
        >>> shop.union(web).sink("users", key="user", value=fk.Json())
        >>> fk.testing.run(flow, {"shop": [{"user": 1}], "web": [{"user": 1}, {"user": 2}]}).sinks["users"].rows
        [{'user': 1}, {'user': 2}]
        """
        name = self._name("union", other, id)
        return self.concat(other, id=f"{name}.both").unique(id=name)

    def intersect(self, other: Stream, *, id: str | None = None) -> Stream[RowT_co]:  # noqa: A002
        """The rows that are in both streams, each once, as `intersect` in SQL. Null is equal to null.

        Both have the same columns. The result is a table that changes: its sink needs a key. `id` names the state: two
        counts for each row. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> shop = flow.source("shop", value=fk.Json({"user": int}))
        >>> web = flow.source("web", value=fk.Json({"user": int}))
        >>> shop.intersect(web).sink("both", key="user", value=fk.Json())
        >>> list(fk.testing.run(flow, {"shop": [{"user": 1}], "web": [{"user": 1}, {"user": 2}]}).sinks["both"].table)
        [1]
        """
        left, right, counted = self._on_sides("intersect", other, id)
        return self._selected(counted.filter((nw.col(left) > 0) & (nw.col(right) > 0)))

    def subtract(self, other: Stream, *, id: str | None = None) -> Stream[RowT_co]:  # noqa: A002
        """The rows of this stream that are not in the other one, each once, as `except` in SQL. If such a row comes in the
        other stream later, it is taken back. Null is equal to null.

        Both have the same columns. The result is a table that changes: its sink needs a key. `id` names the state: two
        counts for each row. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> ordered = flow.source("ordered", value=fk.Json({"order": int}))
        >>> paid = flow.source("paid", value=fk.Json({"order": int}))
        >>> ordered.subtract(paid).sink("unpaid", key="order", value=fk.Json())
        >>> rows = {"ordered": [{"order": 1}, {"order": 2}], "paid": [{"order": 1}]}
        >>> list(fk.testing.run(flow, rows).sinks["unpaid"].table)
        [2]
        """
        left, right, counted = self._on_sides("subtract", other, id)
        return self._selected(counted.filter((nw.col(left) > 0) & (nw.col(right) == 0)))

    def _on_sides(self, kind: str, other: Stream, given: str | None) -> tuple[str, str, Stream[Any]]:
        """Each row with how often it is on both sides; first the names of these columns."""
        name = self._name(kind, other, given)
        left, right = (_free(self.schema.names(), side) for side in ("in_left", "in_right"))
        mine, theirs = (
            side.with_columns(**{left: nw.lit(number == 0), right: nw.lit(number == 1)})
            for number, side in enumerate((self, other))
        )
        grouped = mine.concat(theirs, id=f"{name}.both").group_by(self.schema.names(), id=name)
        return left, right, grouped.agg(**{left: sum_(left), right: sum_(right)})

    def _selected(self, stream: Stream[Any]) -> Stream[Any]:
        return stream.select(*self.schema.names())

    def _name(self, kind: str, other: Stream, given: str | None) -> str:
        """The name of a set operation. Raises DefinitionError if the streams cannot be combined."""
        self._check_like(other, f"{kind} ({user_line()})")
        return given or default_id(kind, self._op.id, other._op.id)

    def _check_like(self, other: Stream, where: str) -> None:
        if not isinstance(other, RowWise):
            raise DefinitionError(f"{other!r} is not a stream", where=where, hint="pass streams: a.concat(b, c)")
        if other._graph is not self._graph:
            raise DefinitionError(
                "the streams belong to different flows", where=where, hint="read both sources in one flow"
            )
        if other.schema != self.schema:
            raise DefinitionError(
                f"the streams have other columns: {described(self.schema)} and {described(other.schema)}",
                where=where,
                hint="select the same columns in the same order first",
            )
        if other._op.batch and not self._op.batch:
            raise DefinitionError(
                "one of the streams is batch, and the output of a batch part cannot be a stream again",
                where=where,
                hint="begin with the batch stream, and all of it is batch; or sink that, and read the topic as a source",
            )


def _free(names: list[str], name: str) -> str:
    """A name that is not taken."""
    while name in names:
        name += "_"
    return name
