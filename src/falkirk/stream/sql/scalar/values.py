"""An expression with its type, and what compiles one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.formats.types import type_name
from falkirk.stream.sql.text import Text

_NOT_LITERAL: Any = object()


@dataclass(frozen=True, slots=True)
class Value:
    """A row-wise expression and the type of its result."""

    expr: nw.Expr
    dtype: pl.DataType
    literal: Any = _NOT_LITERAL

    @property
    def is_literal(self) -> bool:
        return self.literal is not _NOT_LITERAL

    @property
    def family(self) -> str:
        """Values of one family can be compared."""
        return family(self.dtype)

    def settled(self) -> nw.Expr:
        """The expression with its own type. A literal alone takes the type of what it meets."""
        if self.is_literal and isinstance(self.literal, int) and not isinstance(self.literal, bool):
            return nw.lit(self.literal, dtype=nw.Int64)
        return self.expr


class Build(Protocol):
    """Compiles the expressions of one relation."""

    text: Text

    def __call__(self, node: exp.Expr) -> Value:
        """Any expression. Raises DefinitionError."""
        ...

    def typed(self, node: exp.Expr, expr: nw.Expr) -> Value:
        """An expression with its type. Raises DefinitionError if it has none."""
        ...


Handler = Callable[[Build, Any], Value]
"""Compiles one kind of node."""


def literal(value: Any) -> Value:
    """A constant.

    >>> literal("a").dtype, literal(None).dtype
    (String, Null)
    """
    dtype = pl.Int64() if isinstance(value, int) and not isinstance(value, bool) else pl.select(pl.lit(value)).dtypes[0]
    return Value(nw.lit(value), dtype, value)


def family(dtype: pl.DataType) -> str:
    """What values of a type are, in one word.

    >>> family(pl.Int8()), family(pl.Datetime("ms", "UTC")), family(pl.Null())
    ('number', 'time', '')
    """
    if dtype == pl.Null():
        return ""
    if dtype.is_numeric():
        return "number"
    if dtype == pl.Date() or isinstance(dtype, pl.Datetime):
        return "time"
    return type_name(dtype) if not isinstance(dtype, pl.Duration) else "interval"


def called(dtype: pl.DataType) -> str:
    """A type in the words of an error.

    >>> called(pl.Int8()), called(pl.Duration("ms"))
    ('Int8', 'an interval')
    """
    return "an interval" if isinstance(dtype, pl.Duration) else type_name(dtype)


def need(build: Build, node: exp.Expr, wanted: str, what: str) -> Value:
    """The value of a node, of the wanted family. Raises DefinitionError."""
    value = build(node)
    if not value.family:
        return null(_TYPES[wanted])
    if value.family != wanted:
        raise build.text.error(
            node, f"{what} takes {_PLURAL[wanted]}, and this is {called(value.dtype)}", _HINTS.get(wanted, "")
        )
    return value


_TYPES: Mapping[str, pl.DataType] = {
    "number": pl.Int64(), "String": pl.String(), "Boolean": pl.Boolean(), "time": pl.Datetime("ms", "UTC"),
}  # fmt: skip
"""The types of null as an argument: Polars has no functions of values without a type."""
_PLURAL = {"number": "numbers", "String": "text", "Boolean": "conditions", "time": "dates and timestamps"}
_HINTS = {
    "number": "cast it: cast(x as bigint)",
    "String": "cast it: cast(x as varchar)",
    "Boolean": "compare it to something",
    "time": "to_timestamp(seconds) and epoch_ms(milliseconds) make a timestamp of a number, strptime(text, format) of text",
}


_CONSTANTS: Mapping[str, tuple[type, ...]] = {
    "a text": (str,),
    "a whole number": (int,),
    "a number": (int, float, Decimal),
}


def constant(build: Build, node: exp.Expr, what: str, wanted: str) -> Any:
    """The Python value of a constant, None for null. Raises DefinitionError for anything that is not what is wanted."""
    value = build(node)
    if not value.is_literal:
        raise build.text.error(node, f"{what} must be a constant", f"write {wanted}")
    if value.literal is None:
        return None
    if isinstance(value.literal, bool) or not isinstance(value.literal, _CONSTANTS[wanted]):
        raise build.text.error(node, f"{what} is {wanted}, and this is not", f"write {wanted}")
    return float(value.literal) if isinstance(value.literal, Decimal) else value.literal


def null(dtype: pl.DataType) -> Value:
    """No value, with a type: what a function gives if one of its constants is null."""
    return Value(nw.lit(None, dtype=narwhals(dtype)), dtype)


def narwhals(dtype: pl.DataType) -> Any:
    """A type of Polars, for an expression.

    >>> narwhals(pl.List(pl.Int8()))
    List(Int8)
    """
    return nw.from_native(pl.DataFrame(schema={"x": dtype})).schema["x"]
