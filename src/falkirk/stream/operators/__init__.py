"""Operators, one file each: its definition, its runner for steps, and its exchange for batches.

The interface is in `falkirk.stream.dataflow.operator`.
"""

from __future__ import annotations

from falkirk.stream.dataflow.graph import Graph, connected
from falkirk.stream.dataflow.operator import RESERVED, Earlier, Operator
from falkirk.stream.operators.changed import Changed
from falkirk.stream.operators.concat import Concat
from falkirk.stream.operators.errors import Errors
from falkirk.stream.operators.explode import Explode
from falkirk.stream.operators.filter import Filter
from falkirk.stream.operators.flat_map import FlatMap
from falkirk.stream.operators.group import Group
from falkirk.stream.operators.join import Join
from falkirk.stream.operators.late import Late
from falkirk.stream.operators.latest import Latest
from falkirk.stream.operators.lookup import Lookup, SharedLookup
from falkirk.stream.operators.map import Map
from falkirk.stream.operators.map_batches import MapBatches
from falkirk.stream.operators.parquet import ParquetSink
from falkirk.stream.operators.process import Processing
from falkirk.stream.operators.repartition import Repartition
from falkirk.stream.operators.route import Route
from falkirk.stream.operators.select import Select
from falkirk.stream.operators.sink import Sink
from falkirk.stream.operators.source import Source
from falkirk.stream.operators.table import TableSource
from falkirk.stream.operators.top_k import TopK
from falkirk.stream.operators.window_group import Final, WindowGroup
from falkirk.stream.operators.windows import Windows
from falkirk.stream.operators.with_columns import WithColumns
from falkirk.stream.operators.with_regime import WithRegime

__all__ = [
    "RESERVED", "Changed", "Concat", "Earlier", "Errors", "Explode", "Filter", "Final", "FlatMap", "Graph", "Group", "Join",
    "Late", "Latest", "Lookup", "Map", "MapBatches", "Operator", "ParquetSink", "Processing", "Repartition", "Route",
    "Select", "SharedLookup", "Sink", "Source", "TableSource", "TopK", "WindowGroup", "Windows", "WithColumns",
    "WithRegime", "connected",
]  # fmt: skip
