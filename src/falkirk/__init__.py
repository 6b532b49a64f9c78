"""Falkirk: exactly-once stream processing on Kafka, with batch on Spark.

>>> import falkirk as fk
>>> flow = fk.Flow("auction-stats", regime=fk.EagerCheckpoint(step="100ms"))
>>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
>>> stats = bids.filter(fk.col("price") > 100).group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"))
>>> stats.sink("auction-stats", key="auction", value=fk.Json())

Layers, each of which imports only those below it:
    testing/            tests of flows without Kafka, and the simulator that tests the step protocol
    cli/                the command line
    runtime/            an app at work: its processes on hosts, and what people ask of it
    connectors/         Kafka, Spark, and the systems that sinks write to
    stream/             from the flow that a user defines to circuits that run its steps
    checkpoint/         the step protocol, without I/O
    state/              the state of one task: its database, and copies of versions

Ways in:
    __main__.py         `falkirk` on a command line, and `python -m falkirk`
    _face.py            imports all that `import falkirk as fk` offers, when a name is first used
    spark.py            `falkirk.spark`: topics as DataFrames of PySpark
    pytest_plugin.py    fixtures of pytest: a real Kafka, and runs of a flow on it

What any layer may use:
    errors.py           the exceptions: what happened, where, what to do, and the exit code
    blame.py            the line of the user's code that an error is about
    durations.py        durations and sizes as people write them: "100ms", "64MiB"
    cadence.py          when to log a wait that lasts
    wording.py          numbers before nouns: "1 row", "2 rows"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [  # noqa: F405
    "Aggregate",
    "Avro",
    "Batch",
    "Binary",
    "Boolean",
    "Date",
    "Datetime",
    "DatetimeMicros",
    "DeadLetter",
    "Decimal",
    "EagerCheckpoint",
    "FalkirkError",
    "Float32",
    "Float32BE",
    "Float64",
    "Float64BE",
    "Flow",
    "From",
    "Int8",
    "Int16",
    "Int16BE",
    "Int32",
    "Int32BE",
    "Int64",
    "Int64BE",
    "Json",
    "Key",
    "KeyContext",
    "LazyCheckpoint",
    "List",
    "Once",
    "Pattern",
    "Process",
    "Protobuf",
    "Provenance",
    "Raw",
    "RecoverWithin",
    "Registry",
    "Skip",
    "Stop",
    "Stream",
    "String",
    "Struct",
    "Text",
    "Timer",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "all",
    "all_horizontal",
    "any",
    "any_horizontal",
    "approx_n_unique",
    "approx_quantile",
    "coalesce",
    "col",
    "collect",
    "concat_str",
    "count_window",
    "dense_rank",
    "exclude",
    "first",
    "hopping",
    "lag",
    "last",
    "lead",
    "len",
    "lit",
    "max",
    "max_horizontal",
    "mean",
    "mean_horizontal",
    "min",
    "min_horizontal",
    "n_unique",
    "provenance",
    "rank",
    "row_number",
    "session",
    "std",
    "sum",
    "sum_horizontal",
    "testing",
    "tumbling",
    "var",
    "when",
]

if TYPE_CHECKING:
    from falkirk import testing as testing
    from falkirk._face import *  # noqa: F403
else:
    # Not for type checkers: to them this function says that every name exists, and a misspelt one passes.
    def __getattr__(name: str) -> object:
        """Import what is offered when it is first used: `falkirk --help` needs neither Polars nor Kafka's client."""
        if name.startswith("_"):
            # Nobody means another name: tools ask for these, pytest a thousand times while it collects.
            raise AttributeError(f"falkirk has no {name!r}")
        if name not in __all__:
            from falkirk.stream.flow.alternatives import NAMES, instead

            words = instead(NAMES, name, __all__) or "see dir(falkirk) for what it has"
            raise AttributeError(f"falkirk has no {name!r}: {words}")
        from importlib import import_module

        value = import_module("falkirk.testing") if name == "testing" else getattr(import_module("falkirk._face"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
