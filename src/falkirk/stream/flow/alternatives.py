"""Names that other tools use for Falkirk's methods. An AttributeError for such a name suggests the Falkirk method.

Falkirk's code is on the left; the names in Polars, pandas, Spark, Flink, Kafka Streams, Quix and Bytewax are on the right.
This module imports nothing, because `falkirk.__getattr__` needs it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

_WINDOWS = (
    '.group_by("id", fk.tumbling("at", "1h")), or fk.hopping, or fk.session, then .agg(…); '
    "and .final() for each window once"
)
_JOIN = (
    '.join(other, on="id", how="left") for two streams, or .lookup(flow.table("customers", key="id", value=…)) for the rows '
    "of a table as they are when a row comes"
)
_AGG = '.group_by("id").agg(n=fk.len(), total=fk.sum("price"))'

STREAM = {
    '.filter(fk.col("price") > 100)': "where query having filter_not filterNot",
    ".map(function) for a row at a time, or .map_batches(function) for a Polars frame": (
        "apply transform map_values mapValues for_each foreach foreachBatch pipe map_rows map_elements "
        "mapPartitions mapInPandas"
    ),
    '.enrich(async_function, returns={"score": float}), which calls a service': (
        "async_map map_async mapAsync unordered_wait unorderedWait ordered_wait orderedWait async_io enrich_cached call"
    ),
    ".flat_map(function)": "flatMap expand flat_map_values flatMapValues",
    '.select("id", "price")': "project drop_columns keep",
    '.select(fk.exclude("price"))': "drop",
    '.select(fk.exclude("old"), new=fk.col("old"))': "rename withColumnRenamed with_column_renamed",
    '.with_columns(total=fk.col("price") * 2)': "withColumn with_column withColumns assign add_column mutate",
    '.with_columns(price=fk.col("price").cast(fk.Float64))': "cast astype",
    '.with_columns(price=fk.col("price").fill_null(0))': "fillna fill_null na_fill",
    '.filter(~fk.col("price").is_null())': "dropna drop_nulls",
    _AGG: "count len sum min max mean avg aggregate reduce groupby groupBy group groupByKey group_by_key size",
    '.over("id", order_by="at").agg(total=fk.sum("price"))': (
        "cum_sum cumsum cumulative_eval rolling_sum rolling_mean rolling_agg expanding shift lag lead diff pct_change ewm"
    ),
    '.key_by("id")': "keyBy",
    '.key_by("id").process(…), with state and timers': (
        "process update fold scan map_with_state mapWithState stateful_map mapGroupsWithState transformWithState "
        "applyInPandasWithState"
    ),
    _WINDOWS: (
        "window window_by windowedBy windowed_by tumbling_window hopping_window sliding_window session_window "
        "group_by_dynamic tumble resample rolling"
    ),
    _JOIN: "left_join leftJoin inner_join outer_join join_latest coGroup",
    '.join(other, on="id", within=("-5m", "1h")), by the event times of both': "interval_join intervalJoin join_interval",
    '.join_asof(other, by="id", tolerance="1m"), by the event times of both': "merge_asof asof_join asofJoin",
    'flow.table(grouped_stream, key="id"), or flow.table("topic", key="id", value=…)': "to_table toTable table",
    '.sink("topic", value=fk.Json())': (
        "to_topic to to_kafka write write_stream writeStream output send publish sink_to sinkTo add_sink addSink "
        "produce sink_table insert_into"
    ),
    ".concat(other)": "merge union_all unionAll unionByName vstack append",
    ".iterate(body)": "recursive with_recursive loop fixed_point fixpoint transitive_closure connectedComponents pregel",
    ".subtract(other)": "minus difference except_ exceptAll except_all",
    ".intersect(other)": "intersection intersectAll intersect_all",
    ".branch(predicate, …)": "split side_output partition",
    '.repartition("id")': "through shuffle rebalance partition_by partitionBy redistribute rekey re_key selectKey",
    '.unique() for equal rows, or .deduplicate("id", within="1h") for the first row of each key': (
        "distinct drop_duplicates dropDuplicates dedup dropDuplicatesWithinWatermark"
    ),
    '.assume_unique("id") before a sink by key, or changes="upsert" of a source': "primary_key primaryKey unique_key",
    'the best rows of a group: .group_by("id").top_k(3, by="price"). A stream has no end by which it could be sorted': (
        "sort order_by orderBy sort_values top_k bottom_k nlargest nsmallest row_number rank"
    ),
    "falkirk peek app:flow SINK -n 10, which shows records": "head limit take tail show print display collect peek log",
    'fk.testing.run(flow, {"bids": rows}).sinks["out"].rows, in a test': (
        "to_pandas toPandas to_polars to_list fetchall"
    ),
    'time="at" of flow.source: outputs are dated by it': (
        "watermark with_watermark withWatermark assign_timestamps set_timestamp assignTimestampsAndWatermarks"
    ),
    ".schema": "columns dtypes printSchema print_schema",
    "flow.run(…), or falkirk run app:flow": "run start execute awaitTermination",
}

FLOW = {
    'flow.source("bids", value=fk.Json({"price": fk.Int64}))': (
        "topic stream read_stream readStream dataframe from_source add_source addSource input read_topic read "
        "from_topic kafka_source builder"
    ),
    'flow.table("customers", key="id", value=…)': "ktable global_table globalTable lookup",
    'stream.sink("topic", value=fk.Json())': "sink output to_topic write add_sink",
    "flow.run(…), or falkirk run app:flow": "start execute main launch awaitTermination",
    'fk.testing.run(flow, {"bids": rows}), in a test': "test",
    'stream = flow.source(…), which has the operators: stream.filter(fk.col("price") > 100)': (
        "filter where select map group_by groupby with_columns join concat key_by apply"
    ),
}

GROUPED = {
    ".agg(n=fk.len())": "count len size",
    '.agg(total=fk.sum("price")), and fk.min, fk.max, fk.mean': "sum min max mean avg aggregate",
    '.agg(spread=fk.std("price")), and fk.var, fk.n_unique, fk.any, fk.all': "std var n_unique nunique any all stddev",
    '.agg(last=fk.last("price", by="at")), and fk.first, fk.collect': "first last collect implode",
    '.top_k(3, by="price"), and with reverse=True the smallest': "head top nlargest nsmallest bottom_k row_number rank",
    ".agg(x=MyAggregate(…)), with a class of fk.Aggregate": "reduce fold apply map",
    'stream.key_by("id").process(…) in place of .group_by("id")': "process update transform scan",
    ".agg(n=fk.len()) first": "filter where select sink to_topic with_columns",
    _WINDOWS: "window windowed_by windowedBy tumbling_window hopping_window session_window tumble",
}

OVER = {
    '.agg(total=fk.sum("price"))': "sum mean min max count len cum_sum rolling_sum with_columns select aggregate",
    ".agg(place=fk.row_number()), and fk.rank, fk.dense_rank, fk.lag, fk.lead": "rank row_number lag lead shift",
}

KEYED = {
    ".process(function) or .process(MyProcess()), with state and timers": (
        "map apply transform reduce fold scan update flat_map for_each filter"
    ),
    'stream.group_by("id").agg(n=fk.len()) in place of .key_by("id")': (
        "agg aggregate count len sum min max mean group_by"
    ),
    _WINDOWS: "window windowed_by windowedBy tumbling_window hopping_window session_window",
}

TABLE = {
    "stream.lookup(table)": "join left_join get lookup merge",
    'a source of the same topic, to see its records as a stream: flow.source("topic", value=…)': (
        "filter where select map to_stream toStream sink group_by with_columns"
    ),
}

NAMES = {
    "fk.len()": "count size",
    'fk.mean("price")': "avg average",
    'fk.approx_quantile("price", 0.5)': "median quantile percentile approx_percentile percentile_approx approx_median",
    "fk.collect": "collect_list array_agg implode list",
    'fk.first("price", by="at") and fk.last("price", by="at")': "first_value last_value arg_min arg_max min_by max_by",
    'fk.n_unique("user")': "count_distinct countDistinct nunique",
    'fk.std("price") and fk.var("price")': "stddev stddev_samp variance var_samp",
    "stream.concat(other)": "concat union merge",
    'fk.Flow("name")': "App Application Dataflow Pipeline StreamExecutionEnvironment SparkSession Topology flow",
    'flow.source("bids", value=fk.Json({"price": fk.Int64}))': "source Source read_stream from_kafka topic Topic",
    'stream.sink("topic", value=fk.Json())': "sink Sink",
    'flow.table("customers", key="id", value=…)': "table Table",
    "fk.Int64": "Int Integer Long BigInt int int64",
    "fk.Float64": "Float Double float float64 Real",
    "fk.String": "Str Utf8 string Varchar str",
    "fk.Boolean": "Bool Bool8 bool",
    "fk.Datetime": "Timestamp DateTime datetime timestamp",
    "fk.Binary": "Bytes bytes",
    "fk.List": "Array Sequence",
    'a dict of types, {"city": str}, or fk.Struct': "Dict Map Object Record Row",
    "fk.Json": "JSON json Jsonl JsonFormat",
    "fk.EagerCheckpoint() or fk.LazyCheckpoint()": "Checkpoint Eager Lazy eager lazy Regime",
    "flow.run(…), or falkirk run app:flow": "run execute start",
    _WINDOWS: "window sliding Tumbling Window",
    _JOIN: "join",
}

Table = Mapping[str, str]


def instead(table: Table, name: str, known: Mapping[str, object] | list[str]) -> str:
    """A suggestion for an unknown name: from this table, or the known name with the most similar spelling, or "".

    >>> instead(GROUPED, "count", [])
    'write .agg(n=fk.len())'
    >>> instead(GROUPED, "ag", ["agg"])
    "did you mean 'agg'?"
    """
    if found := next((text for text, names in table.items() if name in names.split()), None):
        return f"write {found}"
    close = difflib.get_close_matches(name, [k for k in known if not k.startswith("_")], n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def subscript(self: object, key: object) -> object:
    """The `__getitem__` of a stream: pandas and Quix take columns of one like this, and loops its rows."""
    raise TypeError(
        f'{type(self).__name__} has no items: a column is fk.col("price"), as in .filter(fk.col("price") > 100) and '
        '.with_columns(total=fk.col("price") * 2); a loop over rows is .map(…)'
    )


def missing(table: Table) -> Callable[[object, str], object]:
    """A `__getattr__` for a class. Its error suggests what to write instead of an unknown name."""

    def __getattr__(self: object, name: str) -> object:  # noqa: N807
        what = f"{type(self).__name__} has no attribute {name!r}"
        words = "" if name.startswith("_") else instead(table, name, [])
        if not words and name in getattr(vars(self).get("_op"), "schema", ()):
            words = f"write fk.col({name!r}) for the column"
        if not words and not name.startswith("_"):
            words = instead(table, name, dir(type(self)))
        raise AttributeError(f"{what}: {words}" if words else what)

    return __getattr__
