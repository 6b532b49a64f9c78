"""Operators: the definition of each, its runner for steps, and its exchange for batches. A large one has several files.
Each room imports only rooms below it.

routing/      where rows go next: to the task of a key, to a topic, to another regime, to the errors
sources/      records of topics as rows
sinks/        rows as records of topics, and for systems outside Kafka
windows/      groups by spans of event time, and by counts of rows
processes/    a user's class with state and timers
loops/        a part of a flow that runs until its result stays the same
joins/        two inputs, brought together by key
groups/       aggregates, distinct rows, the first rows of each key, functions over rows
rows/         functions of rows, and the union of streams

The interface is in `falkirk.stream.dataflow.operator`.
"""

from __future__ import annotations

from falkirk.stream.dataflow.graph import Graph, connected
from falkirk.stream.dataflow.operator import RESERVED, Earlier, Operator
from falkirk.stream.operators.groups.group import Group
from falkirk.stream.operators.groups.over import Over
from falkirk.stream.operators.groups.partials import BestPartials, Partials
from falkirk.stream.operators.groups.top_k import TopK
from falkirk.stream.operators.groups.total import Total
from falkirk.stream.operators.joins.asof import AsofJoin
from falkirk.stream.operators.joins.interval import IntervalJoin
from falkirk.stream.operators.joins.join import Join
from falkirk.stream.operators.joins.lookup import Lookup, SharedLookup
from falkirk.stream.operators.loops.iterate import Iterate
from falkirk.stream.operators.loops.variable import LoopVariable
from falkirk.stream.operators.processes.process import Processing
from falkirk.stream.operators.routing.errors import Errors
from falkirk.stream.operators.routing.repartition import Repartition
from falkirk.stream.operators.routing.route import Route
from falkirk.stream.operators.routing.with_regime import WithRegime
from falkirk.stream.operators.rows.concat import Concat
from falkirk.stream.operators.rows.enrich import Enrich
from falkirk.stream.operators.rows.explode import Explode
from falkirk.stream.operators.rows.filter import Filter
from falkirk.stream.operators.rows.flat_map import FlatMap
from falkirk.stream.operators.rows.map import Map
from falkirk.stream.operators.rows.map_batches import MapBatches
from falkirk.stream.operators.rows.select import AssumeUnique, Select, WithColumns
from falkirk.stream.operators.sinks.answer import AnswerSink
from falkirk.stream.operators.sinks.delta import DeltaSink
from falkirk.stream.operators.sinks.outlet import OutletSink
from falkirk.stream.operators.sinks.parquet import ParquetSink
from falkirk.stream.operators.sinks.postgres import PostgresSink
from falkirk.stream.operators.sinks.sink import Sink
from falkirk.stream.operators.sources.changed import Changed
from falkirk.stream.operators.sources.late import Late
from falkirk.stream.operators.sources.latest import Latest
from falkirk.stream.operators.sources.requests import HttpSource
from falkirk.stream.operators.sources.source import Source
from falkirk.stream.operators.sources.table import TableSource
from falkirk.stream.operators.windows.count_group import CountGroup
from falkirk.stream.operators.windows.deduplicate import Deduplicate
from falkirk.stream.operators.windows.final import Final
from falkirk.stream.operators.windows.session_group import SessionGroup
from falkirk.stream.operators.windows.window_group import WindowGroup
from falkirk.stream.operators.windows.windows import Windows

__all__ = [
    "RESERVED", "AnswerSink", "AsofJoin", "AssumeUnique", "BestPartials", "Changed", "Concat", "CountGroup",
    "Deduplicate", "DeltaSink", "Earlier", "Enrich", "Errors", "Explode", "Filter", "Final", "FlatMap", "Graph",
    "Group", "HttpSource", "IntervalJoin", "Iterate", "Join", "Late", "Latest", "Lookup", "LoopVariable", "Map",
    "MapBatches", "Operator", "OutletSink", "Over", "ParquetSink", "Partials", "PostgresSink", "Processing",
    "Repartition", "Route", "Select", "SessionGroup", "SharedLookup", "Sink", "Source", "TableSource", "TopK",
    "Total", "WindowGroup", "Windows", "WithColumns", "WithRegime", "connected",
]  # fmt: skip
