"""Where the names of `import falkirk as fk` are defined. `falkirk.__getattr__` imports this module on first use.

`X as X` tells type checkers that X is re-exported.
"""
# ruff: noqa: A004, PLC0414

from __future__ import annotations

from collections.abc import Mapping as _Mapping
from typing import Any as _Any

from narwhals import all_horizontal as all_horizontal
from narwhals import any_horizontal as any_horizontal
from narwhals import coalesce as coalesce
from narwhals import col as col
from narwhals import concat_str as concat_str
from narwhals import exclude as exclude
from narwhals import lit as lit
from narwhals import max_horizontal as max_horizontal
from narwhals import mean_horizontal as mean_horizontal
from narwhals import min_horizontal as min_horizontal
from narwhals import sum_horizontal as sum_horizontal
from narwhals import when as when

from falkirk.connectors.once import Once as Once
from falkirk.connectors.registry import Registry as Registry
from falkirk.errors import FalkirkError as FalkirkError
from falkirk.stream.aggregates import Aggregate as Aggregate
from falkirk.stream.aggregates import all as all
from falkirk.stream.aggregates import any as any
from falkirk.stream.aggregates import approx_n_unique as approx_n_unique
from falkirk.stream.aggregates import approx_quantile as approx_quantile
from falkirk.stream.aggregates import collect as collect
from falkirk.stream.aggregates import dense_rank as dense_rank
from falkirk.stream.aggregates import first as first
from falkirk.stream.aggregates import lag as lag
from falkirk.stream.aggregates import last as last
from falkirk.stream.aggregates import lead as lead
from falkirk.stream.aggregates import len as len
from falkirk.stream.aggregates import max as max
from falkirk.stream.aggregates import mean as mean
from falkirk.stream.aggregates import min as min
from falkirk.stream.aggregates import n_unique as n_unique
from falkirk.stream.aggregates import rank as rank
from falkirk.stream.aggregates import row_number as row_number
from falkirk.stream.aggregates import std as std
from falkirk.stream.aggregates import sum as sum
from falkirk.stream.aggregates import var as var
from falkirk.stream.dataflow.earlier import From as From
from falkirk.stream.dataflow.process import KeyContext as KeyContext
from falkirk.stream.dataflow.process import Process as Process
from falkirk.stream.dataflow.process import Timer as Timer
from falkirk.stream.dataflow.provenance import Provenance as Provenance
from falkirk.stream.dataflow.provenance import provenance as provenance
from falkirk.stream.definition.on_error import DeadLetter as DeadLetter
from falkirk.stream.definition.on_error import Skip as Skip
from falkirk.stream.definition.on_error import Stop as Stop
from falkirk.stream.definition.pattern import Pattern as Pattern
from falkirk.stream.definition.regimes import Batch as Batch
from falkirk.stream.definition.regimes import EagerCheckpoint as EagerCheckpoint
from falkirk.stream.definition.regimes import LazyCheckpoint as LazyCheckpoint
from falkirk.stream.definition.regimes import RecoverWithin as RecoverWithin
from falkirk.stream.definition.windows import count_window as count_window
from falkirk.stream.definition.windows import hopping as hopping
from falkirk.stream.definition.windows import session as session
from falkirk.stream.definition.windows import tumbling as tumbling
from falkirk.stream.flow.flow import Flow as Flow
from falkirk.stream.flow.launcher import register as _register
from falkirk.stream.flow.streams import Stream as Stream
from falkirk.stream.formats import Avro as Avro
from falkirk.stream.formats import Float32BE as Float32BE
from falkirk.stream.formats import Float64BE as Float64BE
from falkirk.stream.formats import Int16BE as Int16BE
from falkirk.stream.formats import Int32BE as Int32BE
from falkirk.stream.formats import Int64BE as Int64BE
from falkirk.stream.formats import Json as Json
from falkirk.stream.formats import Key as Key
from falkirk.stream.formats import Protobuf as Protobuf
from falkirk.stream.formats import Raw as Raw
from falkirk.stream.formats import Text as Text
from falkirk.stream.formats.types import Binary as Binary
from falkirk.stream.formats.types import Boolean as Boolean
from falkirk.stream.formats.types import Date as Date
from falkirk.stream.formats.types import Datetime as Datetime
from falkirk.stream.formats.types import DatetimeMicros as DatetimeMicros
from falkirk.stream.formats.types import Decimal as Decimal
from falkirk.stream.formats.types import Float32 as Float32
from falkirk.stream.formats.types import Float64 as Float64
from falkirk.stream.formats.types import Int8 as Int8
from falkirk.stream.formats.types import Int16 as Int16
from falkirk.stream.formats.types import Int32 as Int32
from falkirk.stream.formats.types import Int64 as Int64
from falkirk.stream.formats.types import List as List
from falkirk.stream.formats.types import String as String
from falkirk.stream.formats.types import Struct as Struct
from falkirk.stream.formats.types import UInt8 as UInt8
from falkirk.stream.formats.types import UInt16 as UInt16
from falkirk.stream.formats.types import UInt32 as UInt32
from falkirk.stream.formats.types import UInt64 as UInt64


def _launch(flow: Flow, command: str, options: _Mapping[str, _Any]) -> None:
    from falkirk.cli.script import start

    start(flow, command, options)


_register(_launch)
