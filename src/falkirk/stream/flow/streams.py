"""A stream: the output of one operator, and the operators that can follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Never

from falkirk.blame import user_line
from falkirk.durations import DurationLike, duration
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.aggregates.bound import AggregateLike
from falkirk.stream.dataflow.earlier import Migrate
from falkirk.stream.definition.keys import checked_key, columns_of, sink_format
from falkirk.stream.definition.names import default_id
from falkirk.stream.definition.on_error import OnError, checked_on_error
from falkirk.stream.definition.outlets import WEIGHT_COLUMN, FilesPlan
from falkirk.stream.definition.pattern import check_topic
from falkirk.stream.definition.regimes import Regime, checked_regime
from falkirk.stream.definition.windows import CountWindow, Session, Window
from falkirk.stream.flow.alternatives import STREAM, missing, subscript
from falkirk.stream.flow.changing import sink_changes
from falkirk.stream.flow.combining import Combining
from falkirk.stream.flow.databases import sink_postgres
from falkirk.stream.flow.enriching import enrich
from falkirk.stream.flow.identified import assume_unique, identified
from falkirk.stream.flow.iterating import iterate
from falkirk.stream.flow.joining.asof import join_asof
from falkirk.stream.flow.joining.joins import join
from falkirk.stream.flow.joining.lookups import Table, lookup
from falkirk.stream.flow.keyed import Grouped, Keyed
from falkirk.stream.flow.lakes import sink_delta
from falkirk.stream.flow.method import method
from falkirk.stream.flow.overs import over
from falkirk.stream.flow.requests import answer
from falkirk.stream.flow.routing import routed
from falkirk.stream.flow.totals import check_named, whole
from falkirk.stream.flow.windowing import again, final_size, windowed
from falkirk.stream.formats import Format, KeyLike
from falkirk.stream.formats.rows import Row, RowT_co
from falkirk.stream.operators.groups.unique import unique
from falkirk.stream.operators.rows.explode import explode
from falkirk.stream.operators.sinks.sink_changes import record_schema
from falkirk.stream.operators.windows.deduplicate import deduplicate


class Stream(Combining[RowT_co]):
    """The stream of rows that one operator emits. Each method returns a new stream and does not change this one.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    >>> bids.filter(fk.col("price") > 100).select("price")
    <Stream of select 'select': price Int64>

    For type checkers, `fk.Stream[Order]` has rows that the TypedDict `Order` describes, and `fk.Stream` has any rows.
    """

    if not TYPE_CHECKING:  # to type checkers it would say that every name exists
        __getattr__ = missing(STREAM)
        __getitem__ = subscript

    unique = method(unique)
    assume_unique = method(assume_unique)
    explode = method(explode)
    deduplicate = method(deduplicate)
    join = join
    enrich = enrich
    sink_postgres = sink_postgres
    sink_delta = sink_delta
    answer = answer
    over = over
    iterate = iterate
    join_asof = join_asof

    def repartition(self, by: KeyLike, *, id: str | None = None) -> Stream[RowT_co]:  # noqa: A002
        """Send each row, through an internal topic, to the task that owns its key.

        `by` is a column, a list of columns or an `fk.Key`. `group_by`, `key_by` and `lookup` do this automatically
        where they need it. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", value=fk.Json({"auction": int}))
        >>> bids.repartition("auction").sink("by-auction", key="auction", value=fk.Json())
        >>> [stage.id for stage in flow.plan().stages]
        ['bids', 'bids.by.auction']
        """
        line = user_line()
        key = checked_key(by, self.schema, f"repartition ({line})")
        name = id or default_id(self._op.id, "by", *key.columns)
        moved = self._made(op.Repartition, line, id=name, key=key, partitioned=key, root=name)
        return Stream(self._graph, self._graph.add(moved, exchange=True))

    def with_regime(self, regime: Regime, *, id: str | None = None) -> Stream[RowT_co]:  # noqa: A002
        """Use another fault-tolerance regime from here on: `fk.EagerCheckpoint`, `fk.LazyCheckpoint`, `fk.Batch`.

        Unless this stream is a source, its rows pass through an internal topic. A batch part starts from the sources
        and includes all operators before this point. Raises DefinitionError for a stream after a batch part.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int}))
        >>> lazy = bids.with_regime(fk.LazyCheckpoint(step="1s", every="1m"))
        >>> lazy.group_by("auction").agg(n=fk.len()).sink("counts", key="auction", value=fk.Json())
        >>> [stage.regime.kind for stage in flow.plan().stages]
        ['lazy']
        """
        line = user_line()
        checked_regime(regime, f"with_regime ({line})")
        if self._op.batch and not regime.recovery.in_epochs and not isinstance(self._op, op.Source):
            raise DefinitionError(
                "the output of a batch part cannot be a stream again",
                where=f"with_regime ({line})",
                hint="sink it, and read the topic as a source",
            )
        name = id or default_id(self._op.id, regime.kind)
        changed = self._made(op.WithRegime, line, id=name, root=name, regime=regime)
        return Stream(self._graph, self._graph.add(changed, exchange=True))

    def group_by(
        self,
        *columns: str | Sequence[str] | Window | Session | CountWindow,
        id: str | None = None,  # noqa: A002
        version: int = 1,
        migrate: Migrate = (),
    ) -> Grouped:
        """Group rows by columns, for `.agg(…)`, which says what to keep for each group.

        One of them can be windows of time: `fk.tumbling("at", "1h")`, `fk.hopping("at", "1h", every="5m")` or
        `fk.session("at", gap="30m")`; or windows of so many rows: `fk.count_window(100)`. The group then has the columns
        `window_start` and `window_end`.

        `id` names the state, across versions of your code. By default it is made from the columns. Raise `version` if
        the meaning of the state changes. `migrate` converts the state of earlier versions (see `fk.From`). Raises
        DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
        >>> bids.group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"))
        <Stream of group_by 'stats': auction Int64, n Int64, top Int64>
        """
        line = user_line()
        before, names, made_later = windowed(self._graph, self._op, columns, line)
        return Grouped(
            graph=self._graph,
            before=before,
            columns=names,
            given=id,
            version=version,
            migrate=migrate,
            line=line,
            made_later=made_later,
            in_windows=before is not self._op,
        )

    def agg(self, *unnamed: Never, id: str | None = None, version: int = 1, **aggregates: AggregateLike) -> Stream[Row]:  # noqa: A002
        """One row for the whole stream: these aggregates by name. There is none as long as there are no rows.

        Each task adds up its own rows, and one task adds up what they send: one row a task and step. Aggregates that cannot
        be added up (`fk.n_unique`, `fk.collect`, your own) send all rows to one task. The result is a table of one row that
        changes. Its sink needs no key. `id` and `version` are as for `group_by`. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", value=fk.Json({"auction": int, "price": int}))
        >>> bids.agg(n=fk.len(), top=fk.max("price")).sink("stats", value=fk.Json())
        >>> rows = [{"auction": 7, "price": 120}, {"auction": 8, "price": 90}]
        >>> fk.testing.run(flow, {"bids": rows}).sinks["stats"].table
        {b'': {'n': 2, 'top': 120}}
        """
        line = user_line()
        name = id or default_id(self._op.id, "agg")
        for option, given, wanted in (("id", name, str), ("version", version, int)):
            if not isinstance(given, wanted):
                raise DefinitionError(
                    f"{option}={given!r} is not the {option} of the state",
                    where=f"agg ({line})",
                    hint="choose another name for the aggregate",
                )
        check_named(unnamed, f"agg ({line})")
        return Stream(self._graph, whole(self._graph, self._op, aggregates, name, version, line))

    def final(self, *, time: Literal["window_start", "window_end"] = "window_end") -> Stream[RowT_co]:
        """The result of each window once, when its time has passed: after it, no row of the window can come. Rows are only
        added, in the order of the windows' ends.

        It follows `.agg(…)` of a `group_by` with windows, or a filter, select or with_columns of that. `time` is the event
        time of the results, for windows of windows; sessions have only their end. Raises DefinitionError if the windows'
        column is not the time of a source with `late=`. The result of `fk.count_window` comes when the window's last row
        has come, and has no event time.

        >>> import falkirk as fk
        >>> flow = fk.Flow("totals")
        >>> orders = flow.source("orders", value=fk.Json({"usd": int, "at": int}), time="at", late="0s")
        >>> hourly = orders.group_by(fk.tumbling("at", "1h")).agg(usd=fk.sum("usd"))
        >>> hourly.final().sink("hourly", value=fk.Json())
        >>> rows = [{"usd": 3, "at": 60_000}, {"usd": 4, "at": 3_599_999}, {"usd": 5, "at": 3_600_000}]
        >>> fk.testing.run(flow, {"orders": rows}).sinks["hourly"].rows
        [{'window_start': 0, 'window_end': 3600000, 'usd': 7}]
        """
        line = user_line()
        if isinstance(self._op, (op.Filter, op.Select, op.WithColumns)):
            before: Stream[Row] = Stream(self._graph, self._op.inputs[0]).final(time=time)
            return again(self._op, before)  # a final row gives what the same row gave before
        size = final_size(self._op, time, f"final ({line})")
        dated = None if isinstance(self._op, op.CountGroup) else time
        return Stream(self._graph, self._graph.add(self._made(op.Final, line, changes=False, time=dated, size=size)))

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
        """Add columns of a table to each row: from the row that the table has for the same key during this step.

        `on` names this stream's key columns, if the table has other names for them. `columns` are the table's columns
        to add, by default all except its key. A dict renames them. If the table has no row, the columns are null; with
        `how="inner"` the row is dropped. `version` is as for `group_by`. A later change of the table does not change
        earlier output. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> names = flow.table("names", key="auction", value=fk.Json({"name": str}))
        >>> bids = flow.source("bids", key="item", value=fk.Json({"item": str, "price": int}))
        >>> bids.lookup(names, on="item").sink("named", value=fk.Json())
        >>> rows = {"names": [{"auction": "7", "name": "lamp"}], "bids": [{"item": "7", "price": 120}]}
        >>> fk.testing.run(flow, rows).sinks["named"].rows
        [{'item': '7', 'price': 120, 'name': 'lamp'}]
        """
        line = user_line()
        made = lookup(self._op, self._graph, table, on, columns, how, id, version, line)
        return Stream(self._graph, self._graph.add(made, exchange=True))

    def key_by(self, *columns: str | Sequence[str]) -> Keyed[RowT_co]:
        """Pass the rows of each key, in order, to a Python object or function with state: `.process(…)`.

        Raises DefinitionError for columns that do not exist or cannot be a key.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int}))
        >>> timed = {"auction": int, "at": fk.Datetime}
        >>> bids.key_by("auction").process(lambda row, key: {**row, "at": key.now()}, id="timed", returns=timed)
        <Stream of process 'timed': auction Int64, at Datetime>
        """
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
        changes: Literal["append", "upsert", "debezium", "weights"] | None = None,
        on_error: OnError | None = None,
        feedback: bool = False,
    ) -> None:
        """Write rows to a topic: one record for each row.

        `topic` is the topic's name, if it differs from `name`. A grouped result writes one record for each key that
        changed in a step, and a tombstone for a removed group. It needs a `key`, and the key must identify its rows.
        That is `changes="upsert"`. "debezium" writes each change as an envelope with before, after and op; "weights"
        writes each change as a row with the column `weight`. See docs/operators/changes.md.

        If `topic` is a list, `topic_by` is the column with the topic name of each row. Each topic is then a separate
        sink with the topic's name. `on_error` applies to rows whose topic is not in the list, and to rows that the format
        or the topic does not accept.

        Falkirk rejects a flow if this sink's output returns to the sink, because its rows would circulate forever.
        `feedback=True` allows it. The flow must then make sure that fewer and fewer rows come back. Raises
        DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("shop")
        >>> orders = flow.source("orders", value=fk.Json({"id": int, "region": str}))
        >>> targets = orders.with_columns(target=fk.concat_str(fk.lit("sold-"), "region"))
        >>> targets.sink("sold", topic=["sold-eu", "sold-us"], topic_by="target", value=fk.Json())
        >>> app = fk.testing.run(flow, {"orders": [{"id": 1, "region": "us"}, {"id": 2, "region": "eu"}]})
        >>> app.sinks["sold-us"].rows
        [{'id': 1, 'region': 'us', 'target': 'sold-us'}]
        """
        from falkirk.stream.definition.names import check_name

        line = user_line()
        where = f"sink {name!r} ({line})"
        check_name(name, "sink", line)
        if topic_by is not None:
            for each, rows in routed(self._graph, self._op, name, topic, topic_by, on_error, line):
                Stream(self._graph, rows).sink(
                    each, value=value, key=key, changes=changes, on_error=on_error, feedback=feedback
                )
            return
        if topic is not None and not isinstance(topic, str):
            raise DefinitionError(
                f"topic={topic!r} is not a topic",
                where=where,
                hint="to write several, name the column that says to which: topic_by=",
            )
        check_topic(topic or name, where)
        spelt = checked_key(key, self.schema, where) if key is not None else None
        mode, spelt = sink_changes(self._op, changes, spelt, value, where)
        shown = self if mode == "weights" or spelt is None else identified(self, spelt.columns, name, line)
        value = sink_format(value, topic or name, record_schema(mode, self.schema), where)
        chosen = checked_on_error(on_error, where)
        told = {"topic": topic or name, "key": spelt, "value": value, "on_error": chosen, "feedback": feedback}
        told["mode"] = mode
        self._graph.add(shown._made(op.Sink, line, id=name, **told))

    def sink_parquet(self, name: str, url: str, *, every: DurationLike = "10s", changes: bool = False) -> None:
        """Write rows to Parquet files in a folder or bucket, each row exactly once.

        `url` is a folder, or a URL such as "s3://bucket/folder". Every step's rows appear in the files as a whole. `every`
        is the time for which a task collects committed rows before it writes a file. Until then they wait in a topic of the
        app, named after `name`.

        A stream with retractions, such as a grouped result, has no final rows. With `changes=True`, each change becomes a
        row with its weight, 1 or −1, in the column `weight`. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("archive")
        >>> bids = flow.source("bids", value=fk.Json({"auction": int, "price": int}))
        >>> bids.filter(fk.col("price") > 100).sink_parquet("high-bids", "s3://auctions/high-bids", every="1m")
        """
        from falkirk.stream.definition.names import check_name

        line = user_line()
        where = f"sink {name!r} ({line})"
        check_name(name, "sink", line)
        self._check_files(url, changes, where)
        pause = duration(every, "every", where=where, error=DefinitionError)
        self._graph.add(self._made(op.ParquetSink, line, id=name, plan=FilesPlan(str(url), pause)))

    def _check_files(self, url: str, changes: bool, where: str) -> None:
        if not str(url):
            raise DefinitionError(
                "the sink has no folder", where=where, hint='sink_parquet("name", "s3://bucket/folder")'
            )
        if self._op.batch:
            raise DefinitionError(
                "a batch part writes to topics only",
                where=where,
                hint='use .sink("topic", …), or write the files with Spark',
            )
        if not changes and self._op.changes:
            raise DefinitionError(
                "rows of this stream can be retracted, and a row in a file stays",
                where=where,
                hint="changes=True writes each change as a row with its weight; a windowless result belongs in a topic",
            )
        if self._op.changes and WEIGHT_COLUMN in self.schema:
            raise DefinitionError(
                f"the stream has a column {WEIGHT_COLUMN!r}, and so have the files",
                where=where,
                hint="rename the column",
            )
