"""A stream: the output of one operator, and the operators that can follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.alternatives import STREAM, missing
from falkirk.stream.blame import user_line
from falkirk.stream.earlier import Migrate
from falkirk.stream.expressions import words
from falkirk.stream.formats import Format, Key, KeyLike
from falkirk.stream.formats.rows import Row, RowT_co
from falkirk.stream.keyed import Grouped, Keyed
from falkirk.stream.keys import checked_key, columns_of, sink_format
from falkirk.stream.lookups import Table, lookup
from falkirk.stream.on_error import OnError, checked_on_error
from falkirk.stream.regimes import Batch, Regime, checked_regime
from falkirk.stream.routing import routed
from falkirk.stream.rowwise import RowWise


class Stream(RowWise[RowT_co]):
    """Rows of one schema, from here on. Every method gives a new stream and leaves this one as it is."""

    if not TYPE_CHECKING:  # to type checkers it would say that every name exists
        __getattr__ = missing(STREAM)

    def concat(self, *others: Stream, id: str | None = None) -> Stream[RowT_co]:  # noqa: A002
        """The rows of this stream and of others with the same columns."""
        line = user_line()
        inputs = [self._op, *[other._op for other in others]]
        for other in others:
            if other._graph is not self._graph:
                raise DefinitionError(
                    "streams of two flows cannot be one",
                    where=f"concat ({line})",
                    hint="read both sources in one flow",
                )
            if other.schema != self.schema:
                raise DefinitionError(
                    f"the streams have other columns: {words(self.schema)} and {words(other.schema)}",
                    where=f"concat ({line})",
                    hint="select the same columns in the same order first",
                )
            if other._op.batch and not self._op.batch:
                raise DefinitionError(
                    "one of the streams is batch, and what is batch does not stream again",
                    where=f"concat ({line})",
                    hint="begin with the batch stream, and all of it is batch; or sink that, and read the topic as a source",
                )
        together = len({i.root for i in inputs}) == 1
        keys = {repr(i.partitioned) for i in inputs}
        name = id or "concat." + "+".join(dict.fromkeys(i.id for i in inputs))
        concat = op.Concat(
            id=name, line=line, inputs=tuple(inputs), schema=self.schema, changes=any(i.changes for i in inputs),
            partitioned=inputs[0].partitioned if together and len(keys) == 1 else None,
            root=self._op.root if together else name, regime=self._op.regime,
        )  # fmt: skip
        return Stream(self._graph, self._graph.add(concat, exchange=not together))

    def repartition(self, by: KeyLike, *, id: str | None = None) -> Stream[RowT_co]:  # noqa: A002
        """Send each row, through a topic, to the task that owns its key."""
        line = user_line()
        key = checked_key(by, self.schema, f"repartition ({line})")
        name = id or f"{self._op.id}.by.{'.'.join(key.columns)}"
        moved = self._made(op.Repartition, line, id=name, key=key, partitioned=key, root=name)
        return Stream(self._graph, self._graph.add(moved, exchange=True))

    def with_regime(self, regime: Regime, *, id: str | None = None) -> Stream[RowT_co]:  # noqa: A002
        """From here on, another regime. Unless this is a source, rows pass through a topic; but what is batch is computed
        from the sources, together with all before it."""
        line = user_line()
        checked_regime(regime, f"with_regime ({line})")
        if self._op.batch and not isinstance(regime, Batch) and not isinstance(self._op, op.Source):
            raise DefinitionError(
                "what is batch does not stream again",
                where=f"with_regime ({line})",
                hint="sink it, and read the topic as a source",
            )
        name = id or f"{self._op.id}.{regime.kind}"
        changed = self._made(op.WithRegime, line, id=name, root=name, regime=regime)
        return Stream(self._graph, self._graph.add(changed, exchange=True))

    def group_by(
        self,
        *columns: str | Sequence[str],
        id: str | None = None,  # noqa: A002
        version: int = 1,
        migrate: Migrate = (),
    ) -> Grouped:
        """Group rows by columns; `.agg(…)` says what to keep. The id names the state, across changes of the code: it
        is derived from the columns if it is not given. `migrate` goes on with state of an earlier version: see `From`."""
        line = user_line()
        names = columns_of(columns, self.schema, f"group_by ({line})")
        return Grouped(self._graph, self._op, names, id, version, migrate, line)

    def lookup(
        self,
        table: Table,
        on: str | Sequence[str] | None = None,
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        how: Literal["left", "inner"] = "left",
        id: str | None = None,  # noqa: A002
        version: int = 1,
    ) -> Stream[Row]:
        """Each row with the table's row of its key, as of the step that reads it.

        `on` names the columns that hold the key, if they are not called as the table's are. `columns` are those of the
        table that are added, all but its key if it is not given; a dict renames. Where the table has no row, they are
        null, or with `how="inner"` the row goes. A change of the table changes what is looked up later on, and no row that
        came before.
        """
        line = user_line()
        made = lookup(self._op, self._graph, table, on, columns, how, id, version, line)
        return Stream(self._graph, self._graph.add(made, exchange=True))

    def key_by(self, *columns: str | Sequence[str]) -> Keyed[RowT_co]:
        """Give the rows of each key, in order, to a Python object: `.process(…)`."""
        line = user_line()
        return Keyed(self._graph, self._op, columns_of(columns, self.schema, f"key_by ({line})"))

    def sink(
        self,
        name: str,
        *,
        value: Format,
        key: KeyLike | None = None,
        topic: str | Sequence[str] | None = None,
        topic_by: str | None = None,
        on_error: OnError | None = None,
        feedback: bool = False,
    ) -> None:
        """Write rows to a topic. A grouped result writes one record a changed key and step, and a tombstone for a
        group that is gone; its `key` must tell its rows apart.

        With a list of topics, `topic_by` is the column that says to which of them a row goes; each is then a sink by itself,
        called as the topic is. `on_error` says what becomes of rows that name none of them, and of rows that a topic does not
        accept.

        A topic from which the rows come back to this sink is refused, for they would come round without end. `feedback=True`
        asks for it: the flow itself sees to it that fewer and fewer do. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("shop")
        >>> orders = flow.source("orders", value=fk.Json({"id": int, "region": str}))
        >>> targets = orders.with_columns(target=fk.concat_str(fk.lit("sold-"), "region"))
        >>> targets.sink("sold", topic=["sold-eu", "sold-us"], topic_by="target", value=fk.Json())
        >>> app = fk.testing.run(flow, {"orders": [{"id": 1, "region": "us"}, {"id": 2, "region": "eu"}]})
        >>> app.sinks["sold-us"].rows
        [{'id': 1, 'region': 'us', 'target': 'sold-us'}]
        """
        from falkirk.stream.flow import check_name

        line = user_line()
        where = f"sink {name!r} ({line})"
        check_name(name, "sink", line)
        if topic_by is not None:
            for each, rows in routed(self._graph, self._op, name, topic, topic_by, on_error, line):
                Stream(self._graph, rows).sink(each, value=value, key=key, on_error=on_error, feedback=feedback)
            return
        if topic is not None and not isinstance(topic, str):
            raise DefinitionError(
                f"topic={topic!r} is no topic",
                where=where,
                hint="to write several, name the column that says to which: topic_by=",
            )
        spelt = checked_key(key, self.schema, where) if key is not None else None
        if self._op.changes:
            self._check_upserts(spelt, where)
        value = sink_format(value, topic or name, self.schema, where)
        chosen = checked_on_error(on_error, where)
        told = {"topic": topic or name, "key": spelt, "value": value, "on_error": chosen, "feedback": feedback}
        self._graph.add(self._made(op.Sink, line, id=name, **told))

    def _check_upserts(self, key: Key | None, where: str) -> None:
        if key is None:
            raise DefinitionError(
                "a grouped result is written by key, and the sink has none", where=where, hint='key="…"'
            )
        unique = self._op.unique
        if unique is not None and not unique <= set(key.columns):
            raise DefinitionError(
                f"the sink's key {', '.join(key.columns)} does not tell the rows apart",
                where=where,
                hint=f"a row for each {', '.join(sorted(unique))} arrives here: use these columns as the key",
            )
