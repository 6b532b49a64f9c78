"""Numbers: operators and functions.

Integers divide as DuckDB does it: / gives a Float64, and // and % truncate towards zero. Polars rounds down. (Division of an
integer by zero is null.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.sql.scalar import times
from falkirk.stream.sql.scalar.values import Build, Handler, Value, constant, literal, narwhals, need, null

_OPERATORS: Mapping[type[exp.Expr], tuple[str, Callable[[Any, Any], Any]]] = {
    exp.Add: ("+", lambda a, b: a + b),
    exp.Sub: ("-", lambda a, b: a - b),
    exp.Mul: ("*", lambda a, b: a * b),
}


def _arithmetic(build: Build, node: exp.Binary) -> Value:
    if isinstance(node, exp.Add | exp.Sub) and (shifted := times.shifted(build, node)) is not None:
        return shifted
    sign, apply = _OPERATORS[type(node)]
    a, b = (need(build, side, "number", sign) for side in (node.left, node.right))
    if a.is_literal and b.is_literal and a.literal is not None and b.literal is not None:
        return number(apply(Decimal(a.literal), Decimal(b.literal)), a, b)
    if isinstance(node, exp.Mul):
        a, b = _scaled(a, b)
    return _held(build, node, apply, a.expr, b.expr)


def _held(build: Build, node: exp.Expr, apply: Callable[..., nw.Expr], *of: nw.Expr) -> Value:
    """A result with Polars' type of it. The cast from 64 bits fails the row if a smaller integer does not hold it."""
    value = build.typed(node, apply(*of))
    if not value.dtype.is_integer() or value.dtype in (pl.Int64(), pl.UInt64()):
        return value
    return build.typed(node, apply(*[x.cast(nw.Int64) for x in of]).cast(narwhals(value.dtype)))


def _scaled(a: Value, b: Value) -> tuple[Value, Value]:
    """Two decimals with the digits behind the point that their product has: Polars would round it to those of one factor."""
    if not isinstance(a.dtype, pl.Decimal) or not isinstance(b.dtype, pl.Decimal):
        return a, b
    wide = nw.Decimal(38, min(a.dtype.scale + b.dtype.scale, 38))
    return Value(a.expr.cast(wide), a.dtype), Value(b.expr.cast(wide), b.dtype)


def _negative(build: Build, node: exp.Neg) -> Value:
    value = need(build, node.this, "number", "-")
    if value.is_literal and value.literal is not None:
        return number(-value.literal if isinstance(value.literal, float) else -Decimal(value.literal), value)
    if isinstance(value.dtype, pl.Decimal):  # Polars gives it 38 digits
        return build.typed(node, (0 - value.expr).cast(narwhals(value.dtype)))
    return _held(build, node, lambda x: 0 - x, value.expr)


def number(value: Decimal | float, *of: Value) -> Value:
    """A constant that was computed of others."""
    if all(v.dtype.is_integer() for v in of):
        return literal(int(value))
    return Value(nw.lit(float(value)), pl.Float64(), value)


def _divide(build: Build, node: exp.Div) -> Value:
    a, b = (_float(need(build, side, "number", "/")) for side in (node.left, node.right))
    return build.typed(node, a / b)


def _float(value: Value) -> nw.Expr:
    return value.expr if value.dtype.is_float() else value.settled().cast(nw.Float64)


def _integer_divide(build: Build, node: exp.IntDiv) -> Value:
    a, b, remainder = _sides(build, node, "//")
    quotient = a // b
    towards_zero = nw.when(_other_sign(remainder, a)).then(quotient + 1).otherwise(quotient)
    return build.typed(node, towards_zero)


def _modulo(build: Build, node: exp.Mod) -> Value:
    a, b, remainder = _sides(build, node, "%")
    return build.typed(node, nw.when(_other_sign(remainder, a)).then(remainder - b).otherwise(remainder))


def _sides(build: Build, node: exp.Binary, sign: str) -> tuple[nw.Expr, nw.Expr, nw.Expr]:
    left, right = (side.unnest() for side in (node.left, node.right))
    values = [need(build, side, "number", sign) for side in (left, right)]
    a, b = (value.settled() for value in values)
    # Polars fails where a decimal is divided by zero, and 1.5 is a decimal too, though a float for Polars.
    constants = [isinstance(value.literal, Decimal) for value in values]
    floats = any(value.dtype.is_float() and not constant for value, constant in zip(values, constants, strict=True))
    if any(isinstance(value.dtype, pl.Decimal) for value in values) or (any(constants) and not floats):
        b = nw.when(b != 0).then(b)
    return a, b, a % b


def _other_sign(remainder: nw.Expr, a: nw.Expr) -> nw.Expr:
    """Where Polars' remainder, which has the sign of the divisor, must get the dividend's."""
    return (remainder != 0) & ((remainder < 0) != (a < 0))


def _round(build: Build, node: exp.Round) -> Value:
    value = need(build, node.this, "number", "round")
    given = node.args.get("decimals")
    digits = constant(build, given, "the number of digits", "a whole number") if given is not None else 0
    if digits is None:
        return null(value.dtype)
    if digits < 0:
        raise build.text.error(node, "round to tens is not supported", "divide, round, and multiply")
    if isinstance(value.literal, Decimal):
        return number(shorter(value.literal, digits), value)
    if isinstance(value.dtype, pl.Decimal):
        return build.typed(node, rounded(value, digits))
    if not value.dtype.is_float():
        return value
    return build.typed(node, rounded_float(value.expr, digits))


def shorter(constant: Decimal, digits: int) -> Decimal:
    """A constant with so many digits behind the point at most, half away from zero.

    >>> shorter(Decimal("-1.005"), 2), shorter(Decimal("0.5"), 2)
    (Decimal('-1.01'), Decimal('0.5'))
    """
    exponent = constant.as_tuple().exponent
    more = isinstance(exponent, int) and -exponent > digits
    return constant.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP) if more else constant


def rounded_float(x: nw.Expr, digits: int) -> nw.Expr:
    """A float with so many digits behind the point, half away from zero, as in SQL. Polars rounds half to even."""
    scaled = x * 10**digits
    size = scaled.abs()
    whole = size.floor() + ((size - size.floor()) >= 0.5).cast(nw.Float64)
    found: nw.Expr = nw.when(scaled < 0).then(0 - whole).otherwise(whole) / 10**digits
    # From 2**52 on a float is a whole number, and the largest ones have no such multiple.
    return nw.when(x.abs() < 2.0**52).then(found).otherwise(x)


def rounded(value: Value, digits: int) -> nw.Expr:
    """A decimal with so many digits behind the point, half away from zero.

    Polars rounds half to even. A little more than the value, in a digit that it does not have, is never half.
    """
    assert isinstance(value.dtype, pl.Decimal)
    scale = value.dtype.scale
    if digits >= scale:
        return value.expr
    little = nw.lit(Decimal(1).scaleb(-scale - 1))
    wide = value.expr.cast(nw.Decimal(38, scale + 1))
    moved = nw.when(wide < 0).then(wide - little).otherwise(wide + little)
    return moved.round(digits).cast(nw.Decimal(value.dtype.precision, digits))


def _sign(build: Build, node: exp.Sign) -> Value:
    value = need(build, node.this, "number", "sign")
    x = value.settled()
    above = (x > 0) & ~x.is_nan() if value.dtype.is_float() else x > 0  # Polars has NaN above all numbers
    return build.typed(node, above.cast(nw.Int64) - (x < 0).cast(nw.Int64))


def _power(build: Build, node: exp.Pow) -> Value:
    a, b = (need(build, side, "number", "power").settled().cast(nw.Float64) for side in (node.this, node.expression))
    return build.typed(node, a**b)


def _log(build: Build, node: exp.Log) -> Value:
    """log(x) has base 10, log(b, x) base b."""
    of = node.args.get("expression")
    base = 10 if of is None else constant(build, node.this, "the base of a logarithm", "a number")
    value = need(build, node.this if of is None else of, "number", "log")
    return null(pl.Float64()) if base is None else build.typed(node, _float(value).log(base))


def _float_function(name: str, function: Callable[[nw.Expr], nw.Expr]) -> Handler:
    def handler(build: Build, node: exp.Func) -> Value:
        return build.typed(node, function(_float(need(build, node.this, "number", name))))

    return handler


def _whole(name: str, function: Callable[[nw.Expr], nw.Expr]) -> Handler:
    def handler(build: Build, node: exp.Func) -> Value:
        value = need(build, node.this, "number", name)
        return value if value.dtype.is_integer() else build.typed(node, function(value.expr))

    return handler


def _abs(build: Build, node: exp.Abs) -> Value:
    return _held(build, node, lambda x: x.abs(), need(build, node.this, "number", "abs").settled())


def _is_nan(build: Build, node: exp.IsNan) -> Value:
    value = need(build, node.this, "number", "isnan")
    return build.typed(node, value.expr.is_nan() if value.dtype.is_float() else nw.lit(value=False))


def as_integer(value: Value) -> nw.Expr:
    """The nearest integer, as in DuckDB: half of a float goes to even, and half of a decimal away from zero.

    Polars' cast truncates.
    """
    if isinstance(value.dtype, pl.Decimal):
        return rounded(value, 0)
    return value.expr.round(0) if value.dtype.is_float() else value.expr


HANDLERS: Mapping[type[exp.Expr], Handler] = {
    exp.Add: _arithmetic,
    exp.Sub: _arithmetic,
    exp.Mul: _arithmetic,
    exp.Neg: _negative,
    exp.Div: _divide,
    exp.IntDiv: _integer_divide,
    exp.Mod: _modulo,
    exp.Round: _round,
    exp.Sign: _sign,
    exp.Pow: _power,
    exp.Log: _log,
    exp.Ln: _float_function("ln", lambda x: x.log(math.e)),
    exp.Exp: _float_function("exp", lambda x: x.exp()),
    exp.Sqrt: _float_function("sqrt", lambda x: x.sqrt()),
    exp.Floor: _whole("floor", lambda x: x.floor()),
    exp.Ceil: _whole("ceil", lambda x: x.ceil()),
    exp.Abs: _abs,
    exp.IsNan: _is_nan,
}
