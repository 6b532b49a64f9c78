"""A stream: the output of one operator, and the operators that can follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.blame import user_line
from falkirk.stream.earlier import Migrate
from falkirk.stream.expressions import IntoExpr, computed_columns, evaluate, expressions, passed_through, words
from falkirk.stream.failing import CAN_FAIL, ERRORS
from falkirk.stream.formats import Format, Key, KeyLike
from falkirk.stream.formats.types import SchemaLike, schema_of
from falkirk.stream.functions import checked_function
from falkirk.stream.keyed import Grouped, Keyed
from falkirk.stream.keys import checked_key, columns_of, sink_format
from falkirk.stream.lookups import Table, lookup
from falkirk.stream.on_error import OnError, checked_on_error
from falkirk.stream.regimes import Batch, Regime, checked_regime
from falkirk.stream.routing import routed


class Stream:
    """Rows of one schema, from here on. Every method gives a new stream and leaves this one as it is."""

    def __init__(self, graph: op.Graph, operator: op.Operator) -> None:
        self._graph, self._op = graph, operator

    @property
    def schema(self) -> pl.Schema:
        """The columns."""
        return self._op.schema

    def __repr__(self) -> str:
        return f"<Stream of {self._op.kind} {self._op.id!r}: {words(self.schema)}>"

    def filter(self, *predicates: IntoExpr) -> Stream:
        """Keep the rows for which all predicates are true."""
        line = user_line()
        where = f"filter ({line})"
        exprs = expressions(predicates, {}, where)
        for expr in exprs:  # one at a time: two predicates of one column give columns of one name
            for name, dtype in evaluate([expr], self.schema, "select", where).items():
                if dtype != pl.Boolean():
                    raise DefinitionError(
                        f"a predicate is {dtype} (column {name!r}), not Boolean",
                        where=where,
                        hint="compare it to something",
                    )
        return self._then(op.Filter, line, predicates=exprs)

    def branch(self, *predicates: IntoExpr) -> tuple[Stream, ...]:
        """One stream a predicate: each row goes to the first whose predicate is true, and nowhere if none is."""
        streams = []
        before: list[Any] = []
        for expr in expressions(predicates, {}, f"branch ({user_line()})"):
            streams.append(self.filter(expr, *[~p.fill_null(False) for p in before]))
            before.append(expr)
        return tuple(streams)

    def select(self, *exprs: IntoExpr, **named: Any) -> Stream:
        """Only these columns, as Narwhals' select."""
        line = user_line()
        given = expressions(exprs, named, f"select ({line})")
        schema = evaluate(given, self.schema, "select", f"select ({line})")
        return self._then(op.Select, line, schema, passed_through(given, self.schema), exprs=given)

    def with_columns(self, *exprs: IntoExpr, **named: Any) -> Stream:
        """These columns beside the others, as Narwhals' with_columns."""
        line = user_line()
        given = expressions(exprs, named, f"with_columns ({line})")
        schema = evaluate(given, self.schema, "with_columns", f"with_columns ({line})")
        computed = computed_columns(given, self.schema)
        kept = (self.schema.keys() - computed) | passed_through(given, self.schema)
        return self._then(op.WithColumns, line, schema, frozenset(kept), exprs=given)

    def map(
        self,
        function: Callable[[dict[str, Any]], Mapping[str, Any]],
        *,
        returns: SchemaLike | None = None,
        on_error: OnError | None = None,
    ) -> Stream:
        """A row for each row: a Python function from dict to dict. `returns` is the schema, if it is another; `on_error`
        says what becomes of rows for which the function fails."""
        return self._function(op.Map, function, returns, on_error)

    def flat_map(
        self,
        function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]],
        *,
        returns: SchemaLike | None = None,
        on_error: OnError | None = None,
    ) -> Stream:
        """Any number of rows for each row: a Python function from dict to an iterable of dicts. A row for which it fails
        midway gives none."""
        return self._function(op.FlatMap, function, returns, on_error)

    def map_batches(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        *,
        returns: SchemaLike | None = None,
        on_error: OnError | None = None,
    ) -> Stream:
        """A Polars frame for the frame of a step's rows. How rows are cut into frames is not for the function to
        depend on: f(a ++ b) = f(a) ++ f(b). Rows keep their timestamps if there are as many as before; else each gets
        the greatest. With an `on_error` that goes on, the halves of a frame that fails are tried, and theirs, down to the
        rows that fail."""
        return self._function(op.MapBatches, function, returns, on_error)

    @property
    def errors(self) -> Stream:
        """What failed here: a stream beside this one, of the same steps. Where it is used, it takes the place of dead
        letters, unless `on_error=fk.DeadLetter()` asks for them too.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> flow.source("bids", value=fk.Json({"price": fk.Int64})).errors.schema.names()
        ['operator', 'reason', 'topic', 'partition', 'offset', 'timestamp', 'key', 'payload', 'row']
        """
        before, line = self._op, user_line()
        if (
            isinstance(before, op.Repartition)
            and isinstance(source := before.inputs[0], op.Source)
            and not source.checked
        ):
            before = source  # the exchange that repartition=True puts behind it
        return errors_of(self._graph, before, line)

    def concat(self, *others: Stream, id: str | None = None) -> Stream:  # noqa: A002
        """The rows of this stream and of others with the same columns."""
        line = user_line()
        inputs = [self._op, *[other._op for other in others]]
        for other in others:
            if other._graph is not self._graph:
                raise DefinitionError("streams of two flows cannot be one", where=f"concat ({line})")
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

    def repartition(self, by: KeyLike, *, id: str | None = None) -> Stream:  # noqa: A002
        """Send each row, through a topic, to the task that owns its key."""
        line = user_line()
        key = checked_key(by, self.schema, f"repartition ({line})")
        name = id or f"{self._op.id}.by.{'.'.join(key.columns)}"
        moved = self._made(op.Repartition, line, id=name, key=key, partitioned=key, root=name)
        return Stream(self._graph, self._graph.add(moved, exchange=True))

    def with_regime(self, regime: Regime, *, id: str | None = None) -> Stream:  # noqa: A002
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
    ) -> Stream:
        """Each row with the table's row of its key, as of the step that reads it.

        `on` names the columns that hold the key, if they are not called as the table's are. `columns` are those of the
        table that are added, all but its key if it is not given; a dict renames. Where the table has no row, they are
        null, or with `how="inner"` the row goes. A change of the table changes what is looked up later on, and no row that
        came before.
        """
        line = user_line()
        made = lookup(self._op, self._graph, table, on, columns, how, id, version, line)
        return Stream(self._graph, self._graph.add(made, exchange=True))

    def key_by(self, *columns: str | Sequence[str]) -> Keyed:
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

    def _function(
        self, kind: type[Any], function: Callable[..., Any], returns: SchemaLike | None, on_error: OnError | None
    ) -> Stream:
        line = user_line()
        checked_function(function, f"{kind.kind} ({line})")
        schema = self.schema if returns is None else schema_of(returns)
        name = getattr(function, "__name__", type(function).__name__)
        chosen = checked_on_error(on_error, f"{kind.kind} ({line})")
        return self._then(kind, line, schema, frozenset(), id=name, function=function, on_error=chosen)

    def _then(
        self,
        kind: type[Any],
        line: str,
        schema: pl.Schema | None = None,
        kept: frozenset[str] | None = None,
        **more: Any,
    ) -> Stream:
        """The next operator in the same task. `kept` are the columns that it hands on unchanged; None: all."""
        partitioned, unique = self._op.partitioned, self._op.unique
        if kept is not None:
            partitioned = partitioned if partitioned is not None and set(partitioned.columns) <= kept else None
            unique = unique if unique is not None and unique <= kept else None
        made = self._made(kind, line, schema=schema or self.schema, partitioned=partitioned, unique=unique, **more)
        return Stream(self._graph, self._graph.add(made))

    def _made(self, kind: type[Any], line: str, **more: Any) -> Any:
        before = self._op
        given = {
            "id": kind.kind, "schema": before.schema, "changes": before.changes, "unique": before.unique,
            "partitioned": before.partitioned, "root": before.root, "regime": before.regime,
        }  # fmt: skip
        return kind(line=line, inputs=(before,), **{**given, **more})


def errors_of(graph: op.Graph, before: op.Operator, line: str) -> Stream:
    """The stream of what fails in an operator. Raises DefinitionError where nothing can that the app goes on after."""
    where = f"errors of {before.kind} {before.id!r} ({line})"
    if not isinstance(before, CAN_FAIL):
        raise DefinitionError(
            "nothing fails here that the app goes on after",
            where=where,
            hint=f"take .errors of a {', '.join(kind.kind for kind in CAN_FAIL[:-1])} or {CAN_FAIL[-1].kind}",
        )
    if isinstance(before, op.TableSource) and before.broadcast:
        raise DefinitionError(
            "a broadcast table is read in no step, so what does not decode is logged, and nothing else", where=where
        )
    errors = op.Errors(
        id=f"{before.id}.errors", line=line, inputs=(before,), schema=ERRORS, root=before.root, regime=before.regime
    )
    return Stream(graph, graph.add(errors))
