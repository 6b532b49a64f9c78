"""A function of the rows around each row, as a column: `fk.sum("price").over("auction")`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Never

from falkirk.blame import user_line
from falkirk.errors import DefinitionError

if TYPE_CHECKING:
    from falkirk.stream.aggregates.bound import AggregateLike


class Window(NamedTuple):
    """The options of `stream.over`, in a form that tells which of them are the same."""

    columns: tuple[Any, ...]
    order_by: Any
    descending: Any
    rows: Any
    range: Any
    id: str | None
    version: int


def no_operand(self: object, other: object) -> Never:
    """What stands for the operators of functions of several rows, which are no expressions. Raises DefinitionError."""
    raise DefinitionError(
        "an expression cannot be made of a function of several rows",
        where=user_line(),
        hint='name it, and use the column behind it: .agg(n=fk.len(), usd=fk.sum("usd")).with_columns(mean=fk.col("usd") / '
        'fk.col("n"))',
    )


@dataclass(frozen=True)
class OverColumn:
    """A function, and the rows that it is of, for `with_columns`."""

    function: AggregateLike
    window: Window

    if not TYPE_CHECKING:
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = no_operand
        __floordiv__ = __mod__ = __lt__ = __le__ = __gt__ = __ge__ = no_operand


def frozen(given: Any) -> Any:
    """Sequences as tuples, so that they can be compared and hashed.

    >>> frozen(["at", "id"]), frozen("at"), frozen(None)
    (('at', 'id'), 'at', None)
    """
    return tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else given
