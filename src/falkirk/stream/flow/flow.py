"""A flow: the graph that a user defines, and its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

import polars as pl

from falkirk.blame import user_line
from falkirk.durations import DurationLike
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.dataflow.metadata import METADATA
from falkirk.stream.definition.event_time import check_time, checked_lateness
from falkirk.stream.definition.keys import checked_format, checked_key
from falkirk.stream.definition.names import PREFIX, check_name
from falkirk.stream.definition.on_error import OnError, checked_on_error
from falkirk.stream.definition.on_failure import OnFailure, checked_on_failure
from falkirk.stream.definition.pattern import TopicLike, checked_topics
from falkirk.stream.definition.regimes import EagerCheckpoint, Regime, checked_regime
from falkirk.stream.definition.task_numbers import checked_tasks
from falkirk.stream.flow.alternatives import FLOW, missing
from falkirk.stream.flow.changing import SourceChanges, changing, table_source
from falkirk.stream.flow.joining.lookups import Table, table_of
from falkirk.stream.flow.launcher import launch
from falkirk.stream.flow.requests import http
from falkirk.stream.flow.sources import checked_metadata, checked_start, in_cluster
from falkirk.stream.flow.streams import Stream
from falkirk.stream.formats import Format, KeyLike
from falkirk.stream.formats.rows import Row, TypedRow
from falkirk.stream.stages.plan import Plan


class Flow:
    """A dataflow from topics to topics. It is checked while it is built; `falkirk run` runs it.

    >>> import falkirk as fk
    >>> flow = fk.Flow("auction-stats", regime=fk.EagerCheckpoint(step="100ms"))
    >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
    >>> stats = bids.filter(fk.col("price") > 100).group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"))
    >>> stats.sink("auction-stats", key="auction", value=fk.Json())
    >>> [stage.id for stage in flow.plan().stages]
    ['stats']
    """

    if not TYPE_CHECKING:  # to type checkers it would say that every name exists
        __getattr__ = missing(FLOW)

    def __init__(
        self,
        name: str,
        regime: Regime | None = None,
        *,
        dead_letters: str | None = None,
        on_error: OnError | None = None,
        on_failure: OnFailure = "app",
        tasks: int | None = None,
    ) -> None:
        """`name` is the app's name. Its consumer group and internal topics begin with this name. It must be unique.
        `regime` applies to all operators unless `with_regime` changes it. The default is `fk.EagerCheckpoint()`.
        `dead_letters` is the topic for records and rows that fail. `on_error` applies to operators that have no
        `on_error` themselves: `fk.Stop()`, `fk.Skip()` or `fk.DeadLetter()`. `on_failure` says what a failure stops: the
        whole app, or with `"part"` only the stage or batch part that has failed. `tasks` is the number of tasks of each
        stage behind an exchange; by default, as many as its sources have partitions. To change it later, see
        docs/how-to/rescale.md. Raises DefinitionError.
        """
        line = user_line()
        check_name(name, "flow", line)
        self.name = name
        chosen = EagerCheckpoint() if regime is None else checked_regime(regime, f"flow {name!r} ({line})")
        chosen_for_errors = checked_on_error(on_error, f"flow {name!r} ({line})")
        stops = checked_on_failure(on_failure, f"flow {name!r} ({line})")
        chosen_tasks = checked_tasks(tasks, f"flow {name!r} ({line})")
        self.graph = op.Graph(name, line, chosen, dead_letters, chosen_for_errors, stops, chosen_tasks)

    @overload
    def source(
        self,
        name: str,
        *,
        value: Format,
        key: KeyLike | None = None,
        topic: TopicLike | None = None,
        cluster: str = "",
        start: str | datetime | Mapping[int, int] = "earliest",
        metadata: Sequence[str] | Mapping[str, str],
        time: str | None = None,
        late: DurationLike | None = None,
        idle: DurationLike | None = None,
        repartition: bool = False,
        changes: SourceChanges = "append",
        on_error: OnError | None = None,
    ) -> Stream[Row]: ...
    @overload
    def source(
        self,
        name: str,
        *,
        value: Format[TypedRow],
        key: KeyLike | None = None,
        topic: TopicLike | None = None,
        cluster: str = "",
        start: str | datetime | Mapping[int, int] = "earliest",
        time: str | None = None,
        late: DurationLike | None = None,
        idle: DurationLike | None = None,
        repartition: bool = False,
        changes: SourceChanges = "append",
        on_error: OnError | None = None,
    ) -> Stream[TypedRow]: ...
    def source(
        self,
        name: str,
        *,
        value: Format,
        key: KeyLike | None = None,
        topic: TopicLike | None = None,
        cluster: str = "",
        start: str | datetime | Mapping[int, int] = "earliest",
        metadata: Sequence[str] | Mapping[str, str] = (),
        time: str | None = None,
        late: DurationLike | None = None,
        idle: DurationLike | None = None,
        repartition: bool = False,
        changes: SourceChanges = "append",
        on_error: OnError | None = None,
    ) -> Stream:
        """Read one or more topics: one row for each record.

        `value` is the format of the records' values, with a schema.
        `key` names the column that holds the topic's record key. Grouping by this column needs no exchange. With
        `repartition=True`, the app first sends each row to the task that owns its key. Use this if the topic is
        partitioned in another way.
        `topic` is the topic's name, if it differs from `name`. It can also be a list of topics, or
        `fk.Pattern("orders-.*")` for all matching topics, including topics created while the app runs.
        `cluster` is the name of the topic's Kafka cluster, if it differs from the app's cluster. The settings of a run
        have its address.
        `start` is where a new app begins to read: "earliest", "latest", a datetime with a zone, or a dict of offsets
        by partition.
        `metadata` adds a record's `key`, `headers`, `timestamp`, `topic`, `partition` or `offset` as columns. A dict
        renames them.
        `time` names a column of the value that holds the event time: a datetime or an integer of milliseconds since
        1970. Outputs then have this time as their timestamp, and not the record's timestamp.
        `late` is how much later than others a row may come, by its event time: "30s", or "0s". It gives the source a
        watermark, which windows need. Rows that come later leave the stream: they are in `.late`. `idle` is the time
        without records after which a partition no longer holds back the watermark. See docs/operators/event-time.md.
        `changes` says what a record is: "append", a row; "upsert", the row that replaces its key's, or a tombstone;
        "debezium", an envelope of Debezium, for rows of the schema `value`; "weights", a row that comes as often as its
        column `weight` says. The last three take rows back. See docs/operators/changes.md.
        `on_error` applies to records that do not decode. By default they become dead letters. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> flow.source("bids", key="auction", value=fk.Json({"auction": int}), metadata=["offset"])
        <Stream of source 'bids': auction Int64, offset Int64>
        """
        line = user_line()
        where = f"source {name!r} ({line})"
        check_name(name, "source", line)
        value = checked_format(value, where)
        if value.schema is None:
            raise DefinitionError(
                "the source's format needs a schema", where=where, hint='give it one: fk.Json({"price": fk.Int64})'
            )
        topics = checked_topics(name if topic is None else topic, where)
        if changes != "append":
            others = {
                "start": start != "earliest", "metadata": bool(metadata), "time": time is not None,
                "late": late is not None, "idle": idle is not None, "repartition": repartition,
            }  # fmt: skip
            at, handling = in_cluster(cluster, topics, where), checked_on_error(on_error, where)
            made = changing(
                graph=self.graph,
                changes=changes,
                name=name,
                line=line,
                where=where,
                key=key,
                value=value,
                topics=at,
                on_error=handling,
                others=others,
            )
            return Stream(self.graph, made)
        columns = checked_metadata(metadata, where)
        if both := sorted(columns.keys() & value.schema.keys()):
            raise DefinitionError(
                f"{both[0]!r} is a column of the value and of the metadata",
                where=where,
                hint=f'rename the latter: metadata={{"record_{both[0]}": "{columns[both[0]]}"}}',
            )
        schema = pl.Schema({**value.schema, **{c: METADATA[m] for c, m in columns.items()}})
        spelt = checked_key(key, schema, where) if key is not None else None
        if isinstance(start, Mapping) and not isinstance(topics, str):
            raise DefinitionError(
                f"start={start!r} names offsets, and those of one topic mean nothing in another",
                where=where,
                hint='use "earliest", "latest" or a datetime; or define one source for each topic, and concat them',
            )
        if time is not None:
            check_time(time, value.schema, where)
        lateness = checked_lateness(late, idle, time, where)
        if repartition and spelt is None:
            raise DefinitionError("repartition=True needs a key", where=where, hint='give key="auction"')
        source = op.Source(
            id=name, line=line, inputs=(), schema=schema, partitioned=spelt, root="", regime=self.graph.regime,
            topics=in_cluster(cluster, topics, where), key=spelt, value=value, start=checked_start(start, where),
            metadata=columns, time=time, lateness=lateness, checked=spelt is not None and not repartition,
            spread=spelt is None or repartition, on_error=checked_on_error(on_error, where),
        )  # fmt: skip
        stream = Stream(self.graph, self.graph.add(source))
        return stream.repartition(spelt) if repartition and spelt is not None else stream

    http = http

    def table(
        self,
        of: str | Stream,
        *,
        key: KeyLike,
        value: Format | None = None,
        topic: str | None = None,
        cluster: str = "",
        broadcast: bool = False,
        on_error: OnError | None = None,
    ) -> Table:
        """A table: the last row of each key, for lookups from streams. It reads a topic or a grouped stream.

        In a topic, a record replaces the row of its key, and a tombstone removes it. The columns of `key` come from
        the records' keys: as text, unless `key` is an `fk.Key` with a format. They have the type that `value` gives
        them, or String. With `broadcast=True` every worker has the whole topic, and lookups need no exchange.
        `topic`, `cluster` and `on_error` are as for `source`. For a grouped stream, `key` is the columns of its
        `group_by`. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("named")
        >>> carriers = flow.table("carriers", key="carrier", value=fk.Json({"name": fk.String}))
        >>> flights = flow.source("flights", key="carrier", value=fk.Json({"carrier": fk.String, "delay": fk.Int64}))
        >>> flights.lookup(carriers)
        <Stream of lookup 'carriers.on.carrier': carrier String, delay Int64, name String>
        """
        line = user_line()
        if isinstance(of, Stream):
            where = f"table of {of!r} ({line})"
            if value is not None or topic is not None or cluster or broadcast or on_error is not None:
                raise DefinitionError(
                    "value=, topic=, cluster=, broadcast= and on_error= are for a table of a topic", where=where
                )
            return table_of(self.graph, of._op, checked_key(key, of.schema, where), where)
        where = f"table {of!r} ({line})"
        check_name(of, "table", line)
        if broadcast and on_error is not None:
            raise DefinitionError(
                "a broadcast table is read in no step, so what does not decode is logged, and nothing else",
                where=where,
                hint="leave out on_error=, or broadcast=True",
            )
        value = checked_format(value, where)
        if value.schema is None:
            raise DefinitionError(
                "the table's format needs a schema", where=where, hint='give it one: fk.Json({"name": fk.String})'
            )
        source = table_source(
            graph=self.graph, name=of, line=line, where=where, key=key, value=value,
            topics=in_cluster(cluster, topic or of, where), on_error=checked_on_error(on_error, where),
            broadcast=broadcast,
        )  # fmt: skip
        return Table(self.graph, self.graph.add(source), source.key)

    def sql(self, query: str, /, *, id: str | None = None, **streams: Stream) -> Stream[Row]:  # noqa: A002
        """The result of a SQL query over streams, as a stream: the DSL's operators, written as SQL.

        A table of the query is a stream that you pass under its name, or a source or a grouped result of this flow
        under its id. `id` begins the ids of the query's operators with state. Without it, they are named after the
        query's text, and a changed query begins with an empty state. Needs the extra `falkirk[sql]`. docs/sql/index.md says
        what is supported. Raises DefinitionError with the place in the query.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
        >>> tops = flow.sql("select auction, count(*) as n, max(price) as top from bids group by auction", id="tops")
        >>> tops.sink("tops", key="auction", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"auction": 7, "price": 120}, {"auction": 7, "price": 90}]}).sinks["tops"].table
        {7: {'auction': 7, 'n': 2, 'top': 120}}
        """
        try:
            from falkirk.stream.sql.query import sql
        except ModuleNotFoundError as error:
            raise DefinitionError(
                f"SQL needs a library that is not installed: {error.name}",
                where=user_line(),
                hint="pip install 'falkirk[sql]'",
            ) from None
        return sql(self, query, id, streams)

    def run(self, brokers: str | None = None, **options: Any) -> None:
        """Run the flow on a Kafka cluster, as `falkirk run` does. It runs until Ctrl-C. With `until="end"`, it
        processes everything that is in the sources at the start, and then returns.

        The options are those of `falkirk run`, with underscores: `workers=4`, `state_dir="state"`, `until="end"`,
        `set={"security.protocol": "SASL_SSL"}`. Other options come from falkirk.toml and the environment.

        Each worker is a process that loads the flow from its file. So the flow must be a global variable of a script
        or a module, and importing the script must not run the flow:

            if __name__ == "__main__":
                flow.run("broker-1:9092", workers=4)

        Raises FalkirkError.
        """
        launch(self, "run", {"brokers": brokers, **options})

    def dev(self, **options: Any) -> None:
        """Run the flow on this machine with an embedded Kafka, as `falkirk dev` does. See `run`."""
        launch(self, "dev", options)

    def plan(self, prefix: str = PREFIX) -> Plan:
        """The stages of the flow and their topics. Internal topics are named `prefix`.NAME.…

        Raises DefinitionError, for example if the flow has no sinks.

        >>> import falkirk as fk
        >>> flow = fk.Flow("copy")
        >>> flow.source("lines", value=fk.Text()).sink("copies", value=fk.Text())
        >>> [stage.id for stage in flow.plan().stages]
        ['lines']
        """
        from falkirk.stream.planner.planner import plan

        return plan(self.graph, prefix)
